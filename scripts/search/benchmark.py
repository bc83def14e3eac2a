"""Replays recorded spaces with many random seeds: how soon does each sampler come within 5 % of the best?

scripts/run python scripts/search/benchmark.py FOLDER... --samplers gp-ei,tpe,random --seeds 20

A folder may hold recordings of this tool, Kernel Tuner's cache files and T4 files, and T1 files beside them. The
recorded configurations are the valid set. One evaluation is one configuration that was not tried before, whether it
then fails or not. The fraction is the best recorded time over the best time found. A run begins with a random
configuration (``--first default``: with the default), and ends with the best one.

Then the same runs are taught: by a search of ``--warm`` trials on each of one and of three others of the recordings of
the same kernel, the nearest, as ``tune run`` would be. At the end stand the score of Willemsen et al. by evaluations,
and the time of a suggestion after 2,000 results.

A setting of the default sampler is changed by ``--samplers gp-ei,gp-ei+knee=1,gp-ei+prior.main=1e-9``. Where there are
several samplers, each is compared with the first: the geometric mean over the spaces of the ratio of evaluations.

``--stop 0.002,0.005 --patience 10,20`` says instead what ``tune run --stop auto`` would save and lose at these noise
floors: every run goes through all trials, and the loss is how much longer the best time is that was found by the stop.

``--compilers 16 --seconds 0.3,0.1`` lets the search nominate and choose as in a run whose candidates take so long to
compile and to time.
"""

# ruff: noqa: E402 - threads are settled before NumPy is loaded
from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from scripts import harness
from scripts.harness import listed
from scripts.search import tables
from scripts.search.cases import Case, read_cases
from scripts.search.compiling import Compiling
from tuner.core.model import Configuration
from tuner.kernel.space import SearchSpace
from tuner.search.base import Nominating, Transferring
from tuner.search.expected_improvement import GPEISampler, GPEISettings
from tuner.search.samplers import make_search
from tuner.search.stopping import PATIENCE, StoppingCriterion
from tuner.search.study import Search
from tuner.search.translation import translated
from tuner.tuning.history import teach_other_tasks
from tuner.tuning.shortlist import Shortlist


@dataclass(frozen=True)
class Job:
    """One run: the number of its recording, how it is searched, and by how many others it is taught."""

    case: int
    sampler: str
    seed: int
    taught: int
    given: argparse.Namespace
    """Of the command line."""


LESSON_SEEDS = 5
"""Different searches on each recording that can teach others."""
Lesson = list[tuple[Configuration, float | None]]
CASES: list[Case] = []
LESSONS: dict[tuple[str, str, int], Lesson] = {}
"""By recording, sampler and seed. Both are read before the processes are forked."""


def search_of(sampler: str, space: SearchSpace, seed: int) -> Search:
    """Return a search by a sampler's name, or by that of the default one and settings of it."""
    name, *changes = sampler.split("+")
    if not changes:
        return make_search(name, space, seed)
    settings = GPEISettings()
    for change in changes:
        field, _, value = change.partition("=")
        whole, _, part = field.partition(".")
        of = getattr(settings, whole)
        new = replace(of, **{part: float(value)}) if part else type(of)(float(value))
        settings = replace(settings, **{whole: new})
    return Search(space, GPEISampler(space, seed, settings))


class Replay:
    """A search on a recording, with the best time after each evaluation."""

    def __init__(self, job: Job) -> None:
        self.job, self.case = job, CASES[job.case]
        space = copy.copy(self.case.space)
        if job.given.first == "random":
            rng = np.random.default_rng(job.seed)
            number = int(rng.integers(len(space.variants)))
            space.default = space.variants[number].configuration(
                int(rng.integers(len(space.variants[number])))
            )
        self.search = search_of(job.sampler, space, job.seed)
        if job.taught:
            teach(self.search, job)
        self.best_ns = np.inf
        self.trajectory: list[float] = []
        self.spent_s = 0.0
        """Processor time of the search."""
        self.stops: dict[tuple[float, int], int] = {}
        """For each stopping rule the evaluation after which it ends the search."""

    @property
    def done(self) -> bool:
        """Whether the best recorded time is there, or no evaluation is left."""
        return self.best_ns <= self.case.best or len(self.trajectory) >= self.job.given.trials

    def measure(self, configuration: Configuration) -> float | None:
        time_ns = self.case.time_ns(configuration)
        self.best_ns = min(self.best_ns, np.inf if time_ns is None else time_ns)
        self.trajectory.append(self.best_ns)
        return time_ns

    def in_batches(self) -> None:
        """Ask for a batch, then tell its results."""
        criteria = {rule: criterion_of(*rule) for rule in self.job.given.rules}
        while len(self.trajectory) < self.job.given.trials if criteria else not self.done:
            batch = self._ask(list(criteria.values()))
            for configuration in batch:
                time_ns = self.measure(configuration)
                self.search.tell(configuration, time_ns)
                for criterion in criteria.values():
                    criterion.told(time_ns)
            for rule, criterion in criteria.items():
                if criterion.reached:
                    self.stops.setdefault(rule, len(self.trajectory))
            if not batch:
                break

    def _ask(self, criteria: list[StoppingCriterion]) -> list[Configuration]:
        batch = []
        for _ in range(min(self.job.given.batch, self.job.given.trials - len(self.trajectory))):
            began = time.process_time()
            configuration = self.search.ask()
            self.spent_s += time.process_time() - began
            if configuration is None:
                break
            batch.append(configuration)
            for criterion in criteria:
                criterion.proposed(self.search.expected_improvement)
        return batch

    def from_shortlist(self) -> None:
        """Choose from a shortlist that compilers fill, and tell results late."""
        given, search = self.job.given, self.search
        device = Compiling(given.compilers, given.seconds[0])
        assert isinstance(search.sampler, Nominating)
        shortlist = Shortlist(search.sampler, device, lambda: device.lookahead)  # type: ignore[arg-type]
        under_way: deque[tuple[Configuration, float | None]] = deque()
        began = time.process_time()
        for number in range(given.trials):
            if search.sampler.opening:
                configuration = search.ask()
            else:
                shortlist.fill(given.trials - number)
                while not (shortlist.empty or shortlist.ready()):
                    device.wait()
                configuration = None if shortlist.empty else search.ask(shortlist.choose())
            if configuration is None or self.done:
                break
            under_way.append((configuration, self.measure(configuration)))
            while len(under_way) >= shortlist.depth:
                search.tell(*under_way.popleft())
                device.now_s += given.seconds[1]
                shortlist.told(*given.seconds)
        self.spent_s = time.process_time() - began

    def result(self) -> dict[str, Any]:
        trajectory = self.trajectory
        ends = {rule: self.stops.get(rule, len(trajectory)) for rule in self.job.given.rules}
        return {
            "space": self.case.name,
            "sampler": self.job.sampler,
            "seed": self.job.seed,
            "taught": self.job.taught,
            **tables.figures_of(trajectory, self.case.best),
            "ms": 1000 * self.spent_s / max(len(trajectory), 1),
            "stops": [
                {
                    "noise_floor": noise_floor,
                    "patience": patience,
                    "trials": end,
                    "of": len(trajectory),
                    "loss": trajectory[end - 1] / trajectory[-1] - 1,
                }
                for (noise_floor, patience), end in ends.items()
            ],
        }


def replay(job: Job) -> dict[str, Any]:
    """Return one run: when it was near the best time, the fractions, and the processor time of a suggestion."""
    one = Replay(job)
    if job.given.compilers:
        one.from_shortlist()
    else:
        one.in_batches()
    return one.result()


def criterion_of(noise_floor: float, patience: int) -> StoppingCriterion:
    return StoppingCriterion(lambda time_ns: noise_floor, patience)  # noqa: ARG005 - recordings know one for all times


def lesson_of(job: Job) -> Lesson:
    """Return what a search of ``--warm`` trials finds on a recording."""
    case, results = CASES[job.case], Lesson()
    search = search_of(job.sampler, case.space, 1000 + job.seed)
    while len(results) < job.given.warm and (configuration := search.ask()) is not None:
        results.append((configuration, case.time_ns(configuration)))
        search.tell(*results[-1])
    return results


def teach(search: Search, job: Job) -> None:
    """Teach a search what others found on the nearest recordings of the same kernel."""
    case, seed = CASES[job.case], job.seed % LESSON_SEEDS
    teachers = case.teachers(CASES, job.seed)[: job.taught]
    lessons = [(other.run, LESSONS[other.name, job.sampler, seed]) for other in teachers]
    teach_other_tasks(search, case.run, [(run, translated(lesson, search.space)) for run, lesson in lessons])


def suggestion_ms(sampler: str) -> float:
    """Return the processor time of a suggestion after :data:`AFTER` results, in milliseconds."""
    space = max((case.space for case in CASES), key=len)
    search, rng = search_of(sampler, space, 0), np.random.default_rng(0)
    case = next(case for case in CASES if case.space is space)
    rows = rng.permutation(len(space.variants[0]))[: tables.AFTER]
    for configuration in map(space.variants[0].configuration, rows.tolist()):
        search.add(configuration, case.time_ns(configuration))
    began, count = time.process_time(), 0
    while count < 10 and (asked := search.ask()) is not None:
        search.tell(asked, case.time_ns(asked))
        count += 1
    return 1000 * (time.process_time() - began) / max(count, 1)


def arguments() -> argparse.Namespace:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("paths", nargs="+", type=Path, help="folders of recordings, or files")
    add("--samplers", type=listed(), default="gp-ei,tpe,random")
    add("--spaces", type=listed(), default="", help="only files with one of these words in their names")
    add("--seeds", type=int, default=20)
    add("--first-seed", type=int, default=0)
    add("--trials", type=int, default=200)
    add("--batch", type=int, default=1, help="ask for so many before telling")
    add("--first", choices=["random", "default"], default="random")
    add(
        "--taught",
        type=listed(),
        default="1,3",
        help="by how many other recordings of the kernel; 0 for none",
    )
    add("--warm", type=int, default=200, help="trials of the search on each of them")
    add("--stop", type=listed(), default="", help="noise floors at which to try an early stop, such as 0.002")
    add("--patience", type=listed(), default=str(PATIENCE), help="proposals in a row that must promise less")
    add("--compilers", type=int, default=0, help="choose from a shortlist, as with so many")
    add("--seconds", type=listed(), default="0.3,0.1", help="to compile and to time, with --compilers")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    add("--others", type=Path, help="runs of Kernel Tuner's strategies, by compare_kernel_tuner/simulate.py")
    add("--json", type=Path, help="every run, and the table")
    return options.parse_args()


def run_all(work: Callable[[Job], Any], jobs: list[Job], processes: int) -> list[Any]:
    """Return what each job gives, in their order."""
    results = []
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for result in pool.imap(work, jobs):
            results.append(result)
            print(f"\r{len(results)}/{len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


def learns(sampler: str) -> bool:
    """Return whether a sampler learns from other tasks."""
    return isinstance(search_of(sampler, CASES[0].space, 0).sampler, Transferring)


def jobs_of(given: argparse.Namespace, taught: Sequence[int]) -> list[Job]:
    """Return the runs, after having made the lessons of those that are taught."""
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    jobs = [
        Job(number, sampler, seed, count, given)
        for count in (0, *taught)
        for number, case in enumerate(CASES)
        if len(case.teachers(CASES, 0)) >= count
        for sampler in given.samplers
        if not count or learns(sampler)
        for seed in seeds
    ]
    numbers = {case.name: number for number, case in enumerate(CASES)}
    needed = {
        (other.name, job.sampler, job.seed % LESSON_SEEDS)
        for job in jobs
        for other in CASES[job.case].teachers(CASES, job.seed)[: job.taught]
    }
    lessons = [Job(numbers[name], sampler, seed, 0, given) for name, sampler, seed in sorted(needed)]
    if lessons:
        LESSONS.update(zip(sorted(needed), run_all(lesson_of, lessons, given.jobs), strict=True))
    return jobs


def print_tables(
    runs: list[dict[str, Any]], given: argparse.Namespace, taught: Sequence[int]
) -> dict[str, Any]:
    """Print the tables of each sampler, cold and taught, and the figures of each; return these."""
    shown = [b for b in tables.BUDGETS if b <= given.trials]
    results: dict[str, Any] = {}
    lines: list[str] = []
    for sampler in dict.fromkeys(run["sampler"] for run in runs):
        cold: dict[str, Any] = {}
        own = sampler in given.samplers
        for count in (0, *(taught if own and learns(sampler) else ())):
            chosen = [run for run in runs if (run["sampler"], run["taught"]) == (sampler, count)]
            if not chosen:
                print(f"\n{sampler}: no recording has {count} others of its kernel to be taught by")
                continue
            result = tables.result_of(chosen, CASES, given.trials)
            print(f"\n{sampler}" + (f", taught by {count}" if count else ""))
            tables.print_result(result, cold, shown)
            if count:
                cold.setdefault("taught", {})[str(count)] = result
            else:
                cold = results[sampler] = result
        lines.append(tables.in_a_line(sampler, cold, suggestion_ms(sampler) if own else None))
    print("\n" + "\n".join(lines))
    first, *others = given.samplers
    for sampler in others:
        tables.compare(sampler, first, [run for run in runs if not run["taught"]], given.trials)
    return results


def main() -> None:
    given = arguments()
    CASES.extend(read_cases(given.paths, given.spaces))
    given.rules = [(float(floor), int(patience)) for floor in given.stop for patience in given.patience]
    given.seconds = tuple(map(float, given.seconds))
    given.taught = [] if given.rules else [count for count in map(int, given.taught) if count]
    runs = run_all(replay, jobs_of(given, given.taught), given.jobs)
    if given.others:
        runs += tables.runs_of_others(given.others, CASES)
    tables.print_heading(given, CASES)
    result: dict[str, Any] = {}
    if given.rules:
        for sampler in given.samplers:
            print(f"\n{sampler}")
            tables.stopping_table(
                [run for run in runs if run["sampler"] == sampler], [case.name for case in CASES]
            )
    else:
        result = print_tables(runs, given, given.taught)
    if given.json:
        kept = ("seeds", "first_seed", "trials", "batch", "first", "taught", "warm")
        settings = {name: getattr(given, name) for name in kept}
        for run in runs:
            del run["trajectory"]
        harness.write_json(given.json, {"settings": settings, "samplers": result, "runs": runs})


if __name__ == "__main__":
    main()
