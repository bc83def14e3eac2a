"""Are the referee's speedups those of a race by hand? The honest candidates of its exam, timed without the tuner:

    scripts/run python scripts/measuring/by_hand.py --out results/evidence/by-hand.json

Each candidate of ``exam.json`` and the task's default are called on 40 pairs of arrays in turn, which no L2 holds, or
on one pair, in CUDA graphs of torch of 40 and of 160 calls, each between two events; what 120 more calls take is their
time, without the start of a graph. Graphs take turns in random order. A candidate is faster or slower from 1 % on.
Needs a GPU, CuPy, torch, Triton, and ``exam.json`` of the same card. Exit status 1 if a verdict is not the referee's.
"""

from __future__ import annotations

import importlib
import inspect
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from scripts import harness
from scripts.harness import ROOT
from scripts.measuring.graphs import Call, by_rounds, graph_of
from scripts.page_figures import evidence
from scripts.torch_here import torch
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.default import default_configuration
from tuner.kernel.functions import load_function
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

cupy: Any = importlib.import_module("cupy")
JUDGED = ROOT / "tests" / "gpu" / "judged"
TASK = read_kernel(JUDGED / "task.toml")
COPIES, MORE, TIED = 40, 3, 0.01


def compiled(kernel: KernelSpec) -> Call:
    """Return what launches a kernel's default configuration, compiled by CuPy from the text as it is."""
    problem, gpu = kernel.problem(), ARCHITECTURES[90]
    configuration = default_configuration(kernel, problem, gpu)
    assert configuration is not None
    kernels = [
        cupy.RawModule(code=one.template.read_text(), options=("--std=c++17",)).get_function(one.entry)
        for one in kernel.variants[configuration.variant].launches
    ]
    launches = make_plan(kernel, problem, gpu, configuration).launches

    def call(x: Any, y: Any) -> None:
        for function, launch in zip(kernels, launches, strict=True):
            function(launch.grid, launch.block, (cupy.asarray(x), cupy.asarray(y), np.int64(x.numel())))

    return call


def call_of(file: Path) -> Call:
    """Return a candidate as something that can be called."""
    if file.suffix != ".py":
        return compiled(candidate_kernel(TASK, str(file)))
    candidate = load_function("candidate", file)
    takes = len(inspect.signature(candidate).parameters)
    return candidate if takes == 2 else lambda x, _: candidate(x)


def on_cupys_stream(call: Call) -> Call:
    """Return what calls it with torch's current stream as CuPy's."""

    def calling(*arrays: Any) -> object:
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            return call(*arrays)

    return calling


def verdict(speedup: float) -> str:
    """Return what a speedup says."""
    return "tied" if abs(speedup - 1.0) <= TIED else "faster" if speedup > 1.0 else "slower"


def main() -> int:
    """Time all that the exam judged; return 1 if the referee says otherwise of one."""
    options = harness.parser(__doc__)
    options.add_argument("--exam", type=Path, default=evidence.FOLDER / "exam.json")
    options.add_argument("--out", type=Path)
    given = options.parse_args()
    judged = json.loads(given.exam.read_text())["honest"]["candidates"]
    said = {one["name"]: one["beside_default"] for one in judged if one.get("beside_default")}
    size = TASK.problem().sizes["n"]
    pairs = [tuple(torch.randn(size, device="cuda") for _ in range(2)) for _ in range(COPIES)]
    calls = {"the default": compiled(TASK), **{name: call_of(JUDGED / name) for name in said}}
    graphed = [on_cupys_stream(call) for call in calls.values()]
    rows = []
    for mode, used in (("rotating", pairs), ("warm", pairs[:1] * COPIES)):
        lengths = (used, (1 + MORE) * used)
        graphs = [graph_of(call, pairs) for pairs in lengths for call in graphed]
        took = [statistics.median(each) for each in by_rounds(graphs)]
        base, *times = (long - short for short, long in zip(took, took[len(calls) :], strict=False))
        for name, time in zip(said, times, strict=True):
            by_hand, judged = base / time, said[name][mode]
            row = {"name": name, "mode": mode, "by_hand": by_hand, "judged": judged}
            rows.append(row | {"apart": abs(by_hand / judged - 1.0)})
            verdicts = f"{verdict(by_hand)} by hand, {verdict(judged)} judged"
            print(f"{name:22} {mode:9} {by_hand:.3f} {judged:.3f} {verdicts}")
    differ = [row for row in rows if verdict(row["by_hand"]) != verdict(row["judged"])]
    found = {
        "gpu": torch.cuda.get_device_name(),
        "date": harness.today(),
        "tied": TIED,
        "differ": len(differ),
        "rows": rows,
    }
    median = statistics.median(row["apart"] for row in rows)
    print(f"{len(rows)} speedups: {len(differ)} verdicts differ; {100 * median:.1f} % apart in the median")
    if given.out:
        harness.write_json(given.out, found)
    return int(bool(differ))


if __name__ == "__main__":
    harness.run(main, gpu=True)
