"""What precompiled headers save: configurations of a kernel that includes CUB, compiled with and without them, in turn.

    scripts/run python scripts/measuring/precompiled.py --jobs 2 --out results/evidence/precompiled.json

Each time all is compiled anew, in new compile children: as before, from CUB's headers themselves; precompiled, which
includes making the file; and once more with that file, as the next run finds it. No GPU is needed.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import median

from scripts.harness import ROOT, parser, say, today, versions, write_json
from tuner.children.compilation import RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.cubin import machine_code
from tuner.core.model import Status
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

KERNEL = ROOT / "docs" / "examples" / "cub_reduce" / "cub_reduce.toml"
WAYS = ("headers", "precompiled", "precompiled before")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=100, help="Configurations.")
    options.add_argument("--rounds", type=int, default=2, help="How often each way is timed.")
    options.add_argument("--jobs", type=int, default=2, help="Compile children.")
    options.add_argument("--out", type=Path, help="File for the figures.")
    given = options.parse_args()
    kernel, gpu = read_kernel(KERNEL), ARCHITECTURES[90]
    problem = kernel.problem()
    every = list(SearchSpace.from_kernel(kernel, problem, gpu).configurations())
    chosen = every[:: max(1, len(every) // given.count)][: given.count]
    requests = [RenderRequest(KERNEL, problem, gpu, one) for one in chosen]
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    of_cores: dict[str, list[float]] = {way: [] for way in WAYS}
    code: dict[str, list[str]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for way in WAYS:
                took, used, code[way] = _compile(requests, given.jobs, Path(folder), way)
                seconds[way].append(took)
                of_cores[way].append(used)
                say(f"{way}: {took:.1f} s, {used:.1f} s of cores")
    same = code[WAYS[0]] == code[WAYS[1]] == code[WAYS[2]]
    times = {way: median(taken) for way, taken in seconds.items()}
    print(f"{len(requests)} configurations of {kernel.name}, {given.jobs} compile children")
    print("machine code is equal" if same else "machine code DIFFERS")
    for way in WAYS:
        cores = median(of_cores[way])
        print(
            f"{way:20} {times[way]:6.1f} s, {times[WAYS[0]] / times[way]:.2f}x as fast; {cores:6.1f} s of cores"
        )
    if given.out is not None:
        write_json(
            given.out,
            {
                "day": today(),
                **versions("kernel-tune", "nvrtc"),
                "cores": len(os.sched_getaffinity(0)),
                "jobs": given.jobs,
                "configurations": len(requests),
                "seconds": seconds,
                "seconds_of_cores": of_cores,
                "same_machine_code": same,
            },
        )


def _compile(
    requests: list[RenderRequest], jobs: int, folder: Path, way: str
) -> tuple[float, float, list[str]]:
    """Return the seconds of compiling all, those of cores, and the machine code of each."""
    cache = folder / way / "cubins"
    cache.parent.mkdir()
    kept = folder / "kept"
    if way == "headers":
        (cache.parent / "precompiled").touch()  # in the way of the folder
    elif kept.is_dir():
        kept.rename(cache.parent / "precompiled")
    began, before = time.monotonic(), _of_children()
    pool = CompilePool(jobs, cache)
    try:
        compiled = [wait() for wait in [pool.begin(request) for request in requests]]
    finally:
        pool.close()
    took = time.monotonic() - began
    assert all(one.status is Status.OK for one in compiled), [one.error for one in compiled if one.error][:1]
    if way == "precompiled":
        (cache.parent / "precompiled").rename(kept)
    return took, _of_children() - before, [machine_code(one.cubins[0], one.entries[0]) for one in compiled]


def _of_children() -> float:
    """Return the seconds of cores that child processes which have ended took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
