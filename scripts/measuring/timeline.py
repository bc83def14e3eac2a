"""Where the time of one launch goes: when each block of it comes by the marks in its source.

    scripts/run python scripts/measuring/timeline.py --size m=512,n=512,k=65536 --dtype bfloat16 --config \\
        'wgmma_split_k block_m=128 block_n=128 split_k=8 stages=6 gpc_locality=True k_order=interleaved'

A template marks positions by comments, ``// mark: NAME``, or ``// mark: NAME if (CONDITION)``, which cost nothing. This
script turns them into code that notes the SM's clock, in the first thread of the block and in the first of its last
warp, whichever comes by last. It compiles that, checks the output, and runs it as the tuner times: rested, with nothing
of its data in the L2. Marks that no block comes by are left out.

Times are from the first block's mark ``begin``. Cycles are made into time with the clock that the SM had between the
block's marks ``begin`` and ``end``, by the GPU's own timer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu

from scripts.harness import run
from scripts.lab import Lab, keep, parser
from tuner.children.measuring import Candidate
from tuner.children.nvrtc import compile_source
from tuner.cli.configuration import parse_configuration
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core.conditions import Mode
from tuner.core.errors import UsageError
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import SampleGraph
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.render import render
from tuner.runtime.driver import DriverFailure, check

MARK = re.compile(r"^(\s*)// mark: (.+?)(?: if \((.+)\))?$", re.MULTILINE)
SLOTS = 32
"""Of each block: the timer at its first and last mark, then the marks."""
CODE = """
extern "C" {{ __device__ long long marks[{blocks} * {slots}]; }}
__device__ __forceinline__ void mark(int slot) {{
    if (threadIdx.x != 0 && threadIdx.x + 32 != blockDim.x) return;
    long long* mine = marks + blockIdx.x * {slots};
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (slot == {first}) mine[0] = now;
    if (slot == {last}) mine[1] = now;
    mine[2 + slot] = clock64();
}}
"""
Times = npt.NDArray[np.float64]


def with_marks(source: str, blocks: int) -> tuple[str, list[str]]:
    """Return a source with its marks turned into code, and their names."""
    names = list(dict.fromkeys(name for _, name, _ in MARK.findall(source)))
    if not {"begin", "end"} <= set(names) or len(names) > SLOTS - 2:
        raise SystemExit(f"error: a template with marks `begin`, `end` and up to {SLOTS - 4} more is needed")

    def code(mark: re.Match[str]) -> str:
        indent, name, condition = mark.groups()
        return f"{indent}{f'if ({condition}) ' if condition else ''}mark({names.index(name)});"

    first, last = names.index("begin"), names.index("end")
    return CODE.format(blocks=blocks, slots=SLOTS, first=first, last=last) + MARK.sub(code, source), names


def sample(
    session: ProblemSession, loaded: Loaded, blocks: int, names: Sequence[str]
) -> tuple[float, Times, float]:
    """Run once, and read the marks.

    Returns:
        The launch's time between two events, in microseconds; when each block came by each mark, in microseconds,
        one row a block, NaN at marks that no block came by; the median of the SMs' clocks, in GHz.
    """
    graph = SampleGraph(session.data, session.stamps, loaded, 1, Mode.COLD, 1)
    try:
        [time_ns] = session.take(graph, session.limits.floor_ns).times_ns
    finally:
        graph.close()
    address, _ = check(cu.cuModuleGetGlobal(loaded.modules[0], b"marks"))
    read = np.empty((blocks, SLOTS), np.int64)
    check(cu.cuMemcpyDtoH(read.ctypes.data, int(address), read.nbytes))
    clocks = read[:, 2 : 2 + len(names)].astype(np.float64)
    for name, column in zip(names, clocks.T, strict=True):
        if not column.all() and (column.any() or name in ("begin", "end")):
            raise SystemExit(f"error: some blocks never came by the mark {name!r}")
    clocks[clocks == 0] = np.nan
    begin, end = (clocks[:, [names.index(name)]] for name in ("begin", "end"))
    ghz = (end - begin) / (read[:, 1:2] - read[:, :1])
    began = (read[:, :1] - read[:, 0].min()) / 1e3
    return time_ns / 1e3, began + (clocks - begin) / ghz / 1e3, float(np.median(ghz))


def table(names: Sequence[str], samples: Sequence[tuple[float, Times, float]]) -> tuple[str, dict[str, Any]]:
    """Return the medians over some samples, as a text and as data."""
    time_us = float(np.median([time_us for time_us, _, _ in samples]))
    ghz = float(np.median([ghz for _, _, ghz in samples]))
    marks = np.median(
        [[times.min(axis=0), np.median(times, axis=0), times.max(axis=0)] for _, times, _ in samples], axis=0
    )
    passed = sorted((i for i in range(len(names)) if not np.isnan(marks[1, i])), key=lambda i: marks[1, i])
    names, marks = [names[i] for i in passed], marks[:, passed]
    width = max(map(len, names))
    lines = [
        f"{time_us:.2f} us between the events, SMs at {ghz:.3f} GHz; medians of {len(samples)} launches, us"
    ]
    lines.append(f"{'':{width}}   first block  median    last")
    lines += [
        f"{name:{width}}   {first:11.2f}  {middle:6.2f}  {last:6.2f}"
        for name, (first, middle, last) in zip(names, marks.T, strict=True)
    ]
    rows = {name: [round(float(value), 3) for value in row] for name, row in zip(names, marks.T, strict=True)}
    return "\n".join(lines), {"time_us": time_us, "ghz": ghz, "marks": rows}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--kernel", default="gemm")
    arguments.add_argument("--size", required=True, help="m=512,n=512,k=65536")
    arguments.add_argument("--dtype", required=True)
    arguments.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="layout=nt")
    arguments.add_argument("--config", required=True, help="As tables print it.")
    arguments.add_argument("--samples", type=int, default=30, help="Launches; at least 1.")
    given = arguments.parse_args()
    kernel = load_kernel(given.kernel)
    [problem] = make_problems(kernel, ProblemTexts([given.size], [given.dtype], given.option))
    configuration = parse_configuration(kernel, given.config)
    with Lab() as lab:
        # What breaks a constraint may hang: blocks that wait for each other, and are not all on the GPU.
        if reason := invalid_reason(kernel, problem, lab.gpu, configuration):
            raise UsageError(f"{configuration}: {reason}", "give one that is valid for this problem and GPU")
        launches = render(kernel, problem, lab.gpu, configuration)
        if len(launches) != 1:
            raise UsageError(f"{configuration.variant} has {len(launches)} launches here", "marks are of one")
        plan = make_plan(kernel, problem, lab.gpu, configuration)
        blocks = plan.launches[0].grid[0]
        marked, names = with_marks(launches[0][0], blocks)
        compiled = compile_source(marked, launches[0][1], lab.gpu.arch)
        with lab.session(kernel, problem) as session:
            loaded = load(session.data, Candidate(plan, (compiled.cubin,), (compiled.entry,)))
            _, verified = session.first_run(loaded, 0.0)
            if not verified.passed:
                raise SystemExit(f"error: with marks the output is wrong: {verified.message}")
            samples = [sample(session, loaded, blocks, names) for _ in range(max(given.samples, 1))]
            loaded.close()
    text, data = table(names, samples)
    print(f"{problem}, {configuration}\n{blocks} blocks on {lab.gpu.name}; {text}")
    where: dict[str, Any] = {
        "gpu": lab.gpu.name,
        "problem": str(problem),
        "configuration": str(configuration),
    }
    keep(given.out, None, **where, **data)


if __name__ == "__main__":
    try:
        run(main)
    except DriverFailure as failure:  # the kernel's own
        sys.exit(f"error: {failure}")
