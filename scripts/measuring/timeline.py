"""Where the time of one launch goes: when each block of it comes by the marks in its source.

    scripts/run python scripts/measuring/timeline.py --size m=512,n=512,k=65536 --dtype bfloat16 --config \\
        'wgmma_split_k block_m=128 block_n=128 grid_k=8 stages=6 gathered=True k_order=interleaved'

A template marks places by comments, ``// mark: NAME``, or ``// mark: NAME if (CONDITION)``, which cost nothing. This
script turns them into code that notes the SM's clock, in the first thread of the block and in the first of its last
warp, whichever comes by last. It compiles that, checks the output, and runs it as the tuner times: rested, with nothing
of its data in the L2.

Times are from the begin of the first block. Cycles are made into time with the clock that the SM had between the
block's first mark and its last, by the GPU's own timer.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu
from lab import Lab, keep, parser

from tuner.cli.choice import parse_configuration
from tuner.cli.data import parse_sizes
from tuner.compiler import compile_source
from tuner.errors import TunerError
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.driver import DriverFailure, check
from tuner.gpu.sampling import SampleGraph
from tuner.gpu.stand import Stand
from tuner.kernel_file import load_kernel
from tuner.model import Mode
from tuner.plan import Plan, make_plan
from tuner.render import render

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
    if (slot == 0) mine[0] = now;
    if (slot == {last}) mine[1] = now;
    mine[2 + slot] = clock64();
}}
"""
Times = npt.NDArray[np.float64]


def with_marks(source: str, blocks: int) -> tuple[str, list[str]]:
    """Turn the marks of a source into code; gives their names, too."""
    names = list(dict.fromkeys(name for _, name, _ in MARK.findall(source)))
    if len(names) < 2 or len(names) > SLOTS - 2:
        raise SystemExit(
            f"error: a template with 2 to {SLOTS - 2} marks is needed; this one has {len(names)}"
        )

    def code(found: re.Match[str]) -> str:
        indent, name, condition = found.groups()
        return f"{indent}{f'if ({condition}) ' if condition else ''}mark({names.index(name)});"

    text = CODE.format(blocks=blocks, slots=SLOTS, last=len(names) - 1)
    first, rest = source.split('extern "C" __global__', 1)
    return first + text + 'extern "C" __global__' + MARK.sub(code, rest), names


def loaded_with_marks(
    lab: Lab, stand: Stand, plan: Plan, source: str, entry: str
) -> tuple[Loaded, list[str]]:
    """Compile and load a source with marks."""
    [launch] = plan.launches
    marked, names = with_marks(source, launch.grid[0])
    compiled = compile_source(marked, entry, lab.gpu.arch)
    return load(stand.data, [compiled.cubin], [compiled.entry], plan.launches, plan.scratch), names


def sample(stand: Stand, loaded: Loaded, blocks: int, count: int) -> tuple[float, Times, float]:
    """Run once, and read the marks.

    Returns:
        The launch's time between two events, in microseconds; when each block came by each mark, in microseconds,
        one row a block; the median of the SMs' clocks, in GHz.
    """
    graph = SampleGraph(stand.data, stand.stamps, loaded, 1, Mode.COLD, 1)
    try:
        [time_ns] = stand.take(graph, stand.limits.floor_ns).times_ns
    finally:
        graph.close()
    address, _ = check(cu.cuModuleGetGlobal(loaded.modules[0], b"marks"))
    read = np.empty((blocks, SLOTS), np.int64)
    check(cu.cuMemcpyDtoH(read.ctypes.data, int(address), read.nbytes))
    clocks = read[:, 2 : 2 + count]
    ghz = (clocks[:, -1] - clocks[:, 0]) / (read[:, 1] - read[:, 0])
    begin = (read[:, :1] - read[:, 0].min()) / 1e3
    return time_ns / 1e3, begin + (clocks - clocks[:, :1]) / ghz[:, None] / 1e3, float(np.median(ghz))


def table(names: Sequence[str], samples: Sequence[tuple[float, Times, float]]) -> tuple[str, dict[str, Any]]:
    """Give the medians over some samples, as a text and as data."""
    time_us = float(np.median([time_us for time_us, _, _ in samples]))
    ghz = float(np.median([ghz for _, _, ghz in samples]))
    found = np.median(
        [[times.min(axis=0), np.median(times, axis=0), times.max(axis=0)] for _, times, _ in samples], axis=0
    )
    width = max(map(len, names))
    lines = [
        f"{time_us:.2f} us between the events, SMs at {ghz:.3f} GHz; medians of {len(samples)} launches, us"
    ]
    lines.append(f"{'':{width}}   first block  median    last")
    lines += [
        f"{name:{width}}   {first:11.2f}  {middle:6.2f}  {last:6.2f}"
        for name, (first, middle, last) in zip(names, found.T, strict=True)
    ]
    rows = {name: [round(float(value), 3) for value in row] for name, row in zip(names, found.T, strict=True)}
    return "\n".join(lines), {"time_us": time_us, "ghz": ghz, "marks": rows}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--kernel", default="gemm")
    arguments.add_argument("--size", required=True, help="m=512,n=512,k=65536")
    arguments.add_argument("--dtype", required=True)
    arguments.add_argument("--config", required=True, help="As tables print it.")
    arguments.add_argument("--samples", type=int, default=30)
    given = arguments.parse_args()
    kernel = load_kernel(given.kernel)
    problem = kernel.problem(parse_sizes([given.size]), {"": given.dtype}, {})
    configuration = parse_configuration(kernel, given.config)
    lab = Lab()
    try:
        [(source, entry)] = render(kernel, problem, lab.gpu, configuration)
        plan = make_plan(kernel, problem, lab.gpu, configuration)
        with lab.stand(kernel, problem) as stand:
            loaded, names = loaded_with_marks(lab, stand, plan, source, entry)
            _, verified = stand.first_run(loaded, 0.0)
            if not verified.passed:
                raise SystemExit(f"error: with marks the output is wrong: {verified.message}")
            blocks = plan.launches[0].grid[0]
            samples = [sample(stand, loaded, blocks, len(names)) for _ in range(given.samples)]
            loaded.close()
    finally:
        lab.close()
    text, data = table(names, samples)
    print(f"{problem}, {configuration}\n{blocks} blocks on {lab.gpu.name}; {text}")
    keep(
        given.out, {"gpu": lab.gpu.name, "problem": str(problem), "configuration": str(configuration), **data}
    )


if __name__ == "__main__":
    try:
        main()
    except (TunerError, DriverFailure) as failure:
        sys.exit(f"error: {failure}")
