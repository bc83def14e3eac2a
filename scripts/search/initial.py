"""Measures what initial configurations are worth: searches of the same problems with and without them.

scripts/run python scripts/search/initial.py --kernel gemm --dtype bfloat16 \\
    --problem m=4096,n=4096,k=4096 --problem m=16,n=8192,k=8192 --arms none,kernel --search-seeds 2

Every search starts from scratch, on a GPU or a recording, has a database of its own, and ends before the race. Compared
are the best times after so many trials, as shares of the best of all searches. Times of two searches are not taken in
turn, so that a per cent between them may be noise; the noise floor is printed.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner import __version__
from tuner.cli.problems import ProblemTexts, make_problems
from tuner.core import paths
from tuner.core.model import Problem, RunOptions
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.choose import kernel_for, open_device
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.search.initial import CHOICES
from tuner.tuning.request import Request
from tuner.tuning.session import tune

SHOWN = (5, 10, 20, 50, 100, 200)


@dataclass(frozen=True)
class SearchOutcome:
    """One search: the best time in nanoseconds after each trial, infinite before the first that worked."""

    problem: str
    arm: str
    seed: int
    best_ns: tuple[float, ...]
    winner: str
    initial: dict[str, list[int]]
    seconds: float
    noise_floor: float
    trials: tuple[tuple[str, str, float | None], ...]
    """Each trial's configuration, status and time in nanoseconds."""

    def after(self, trials: int) -> float:
        return self.best_ns[min(trials, len(self.best_ns)) - 1]


def search(
    kernel: KernelSpec, problem: Problem, device: Device, arm: str, given: argparse.Namespace, seed: int
) -> SearchOutcome:
    request = Request(
        kernel,
        problem,
        given.trials,
        given.sampler,
        seed,
        RunOptions(from_scratch=True, initial=arm),
        given.time,
    )
    with tempfile.TemporaryDirectory() as folder, Database.open(Path(folder) / "tuning.db") as database:
        began = time.monotonic()
        result = tune(request, device, database, Observer(), finish=False)
        seconds = time.monotonic() - began
    best, trajectory = math.inf, []
    trials = sorted(result.state.trials, key=lambda trial: trial.number)
    for trial in trials:
        if trial.status.ranked and trial.time_ns:
            best = min(best, trial.time_ns)
        trajectory.append(best)
    incumbent = result.state.incumbent
    return SearchOutcome(
        str(problem),
        arm,
        seed,
        tuple(trajectory),
        str(incumbent.configuration) if incumbent else "",
        dict(result.stats["seeds"]),
        seconds,
        device.noise_floor(best) if math.isfinite(best) else 0.0,
        tuple((str(trial.configuration), str(trial.status), trial.time_ns) for trial in trials),
    )


def table(outcomes: list[SearchOutcome], trials: int) -> None:
    """Print the searches of one problem."""
    best = min(outcomes, key=lambda one: one.best_ns[-1])
    problem, best_ns = best.problem, best.best_ns[-1]
    if not math.isfinite(best_ns):
        print(f"\n{problem}: no configuration worked", flush=True)
        return
    shown = [n for n in SHOWN if n <= trials]
    floor = f"noise floor {100 * best.noise_floor:.2g} %"
    print(f"\n{problem}: best {best_ns / 1e3:.2f} us ({best.arm}), {floor}\n  {best.winner}")
    heads = "".join(f"{f'at {n}':>8}" for n in shown)
    print(f"  {'initial':<12}{'seed':>5}{'first':>7}{'trials':>8}{'s':>7}{heads}")
    for one in outcomes:
        cells = "".join(f"{best_ns / one.after(n):>8.3f}" for n in shown)
        first = sum(map(len, one.initial.values()))
        print(
            f"  {one.arm:<12}{one.seed:>5}{first:>7}{len(one.best_ns):>8}{one.seconds:>7.1f}{cells}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", default="gemm")
    parser.add_argument("--problem", action="append", default=[], help="sizes, as for tune run; repeat")
    parser.add_argument("--dtype", default="", help="of all problems")
    parser.add_argument("--option", action="append", default=[], help="of all problems, such as layout=nt")
    parser.add_argument("--arms", default="none,kernel", help=f"of {', '.join(CHOICES)}")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--time", type=float, help="seconds for each search")
    parser.add_argument("--sampler", default="gp-ei")
    parser.add_argument(
        "--search-seeds", type=int, default=1, help="searches of each kind, with seeds from 0"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--json", type=Path, help="every search, written anew after each")
    given = parser.parse_args()
    kernel = load_kernel(kernel_for(given.device, given.kernel))
    dtypes = [given.dtype] if given.dtype else []
    problems = make_problems(kernel, ProblemTexts((), dtypes, given.option, problems=given.problem))
    outcomes: list[SearchOutcome] = []
    with closing(open_device(given.device, kernel.name, given.jobs, paths.cache() / "cubins")) as device:
        print(
            f"kernel-tune {__version__}, {device.gpu.name}, {device.name}, {given.sampler}, {given.trials} trials"
        )
        for problem in problems:
            for seed in range(given.search_seeds):
                for arm in given.arms.split(","):
                    outcomes.append(search(kernel, problem, device, arm, given, seed))
                    if given.json:
                        data: list[dict[str, Any]] = [one.__dict__ for one in outcomes]
                        given.json.write_text(json.dumps(data, indent=1) + "\n")
            table([one for one in outcomes if one.problem == str(problem)], given.trials)


if __name__ == "__main__":
    main()
