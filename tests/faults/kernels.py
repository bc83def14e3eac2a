"""Small kernels of a user's own, written into a folder for a test."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from scripts.recording_files import write_recording
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status
from tuner.formats.recording import (
    RecordedProblem,
    Recording,
    Row,
    short_implementation,
)
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

TOML = """\
[kernel]
name = "scale"

[problem]
sizes = {{ n = 1024 }}
dtypes = {{ input = ["float32", "float16"], output = "input" }}
options = {{ order = ["up", "down"] }}
presets.small = {{ n = 64 }}

[tensors]
x = {{ shape = ["n"], dtype = "input" }}
y = {{ shape = ["n"], dtype = "output", role = "output" }}

[reference]
numpy = "2 * x"

[work]
flops = "n"
bytes = "2 * n * itemsize(input)"

[variants.plain.parameters]
fault = {{ values = [{faults}] }}
block_size = {{ values = {blocks} }}
items = {{ values = {items} }}

{extra}
[[variants.plain.launches]]
template = "scale.cu.j2"
entry = "scale__{{{{ fault }}}}"
arguments = ["x", "y", {{ value = "n", dtype = "int64" }}]
grid = ["ceil_div(n, block_size * items)"]
block = ["block_size"]
"""

SOURCE = """\
extern "C" __global__ void scale__{{ fault }}(const float* x, float* y, long long n) {
    for (int j = 0; j < {{ items }}; ++j) {
        const long long i = (blockIdx.x * {{ items }}ll + j) * {{ block_size }} + threadIdx.x;
        if (i < n) y[i] = 2.0f * x[i];
    }
}
"""


def write_kernel(
    folder: Path,
    faults: Sequence[str] = ("ok",),
    blocks: Sequence[int] = (32, 64, 128, 256),
    items: Sequence[int] = (1, 2, 3, 4),
    extra: str = "",
    source: str = SOURCE,
) -> Path:
    """Write a kernel whose configurations misbehave as their ``fault`` says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scale.cu.j2").write_text(source)
    path = folder / "scale.toml"
    names = ", ".join(f'"{fault}"' for fault in faults)
    path.write_text(TOML.format(faults=names, blocks=list(blocks), items=list(items), extra=extra))
    return path


def scale_kernel(folder: Path, **changes: object) -> KernelSpec:
    return read_kernel(write_kernel(folder, **changes).resolve())  # type: ignore[arg-type]


def configuration(fault: str = "ok", block_size: int = 32, items: int = 1) -> Configuration:
    return Configuration.of("plain", {"fault": fault, "block_size": block_size, "items": items})


def synthetic_row(
    identity: KernelIdentity, problem: Problem, gpu: Gpu, configuration: Configuration, index: int
) -> Row:
    """Make up what a GPU might have answered: every seventh configuration fails, the others differ."""
    sources = [source for source, _ in render(identity.kernel, problem, gpu, configuration)]
    implementation = identity.implementation(configuration.variant, sources)
    source = short_implementation(implementation)
    if index % 7 == 3:
        return Row(Status.WRONG_RESULT, (), None, "c[5] is 1, expected 2", source)
    time_ns = 50_000 + 37 * (index * 7919 % 1009)
    return Row(
        Status.OK, tuple(float(time_ns + d) for d in (0, 9, 4, 7, 2, 5, 3, 8)), Resources(32), "", source
    )


def write_synthetic_recording(
    path: Path, kernel: KernelSpec, problems: Sequence[Problem], limit: int = 400, failing: bool = False
) -> Path:
    """Record made-up answers for the first configurations of some problems."""
    gpu, identity = ARCHITECTURES[90], KernelIdentity(kernel)
    recorded = []
    for problem in problems:
        space = SearchSpace.from_kernel(kernel, problem, gpu)
        every = max(1, len(space) // limit)
        chosen = dict.fromkeys([space.default, *itertools.islice(space.configurations(), 0, None, every)])
        rows = {
            c: synthetic_row(identity, problem, gpu, c, 3 if failing else i) for i, c in enumerate(chosen)
        }
        recorded.append(RecordedProblem(problem, rows))
    name = path.name.removesuffix(".json.gz")
    versions = {"nvrtc": "13.0", "driver": "13.0"}
    recording = Recording(
        name, kernel.name, gpu, date(2026, 1, 1).isoformat(), versions, tuple(recorded),
        computation=identity.parts,
    )  # fmt: skip
    write_recording(path, recording)
    return path


def altered(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a recording holds, right or not."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
