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
import json
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
from scripts.search.cases import NEAR, Case, read_cases
from scripts.search.score import score
from tuner import __version__
from tuner.children.compilation import Compilation
from tuner.core.model import Configuration, Status
from tuner.kernel.space import SearchSpace
from tuner.search.base import Transferring
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


class Ready:
    """Compiles at once: counts alone decide what may be chosen when."""

    measuring = 1

    def __init__(self, compilers: int) -> None:
        self.compilers, self.lookahead = compilers, compilers + 8

    def compile(self, configuration: Configuration) -> None:
        pass

    def compiled(self, configuration: Configuration) -> Compilation:  # noqa: ARG002
        return Compilation(Status.OK)

    def forget(self, configuration: Configuration) -> None:
        pass


BUDGETS = (25, 50, 100, 200)
"""Evaluations after which the best time is shown."""
AFTER = 2000
"""Results after which the time of a suggestion is measured."""
SHARES = {"near": NEAR, "nearest": 1.01}
"""What is counted: evaluations until a time is within so much of the best."""
MISSED = 1e9
"""Evaluations of a run that never came near, to be compared."""
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
        given, search, device = self.job.given, self.search, Ready(self.job.given.compilers)
        shortlist = Shortlist(search, device, lambda: device.lookahead)  # type: ignore[arg-type]
        under_way: deque[tuple[Configuration, float | None]] = deque()
        began = time.process_time()
        for number in range(given.trials):
            if search.sampler.opening:
                configuration = search.ask()
            else:
                shortlist.fill(given.trials - number)
                configuration = None if shortlist.empty else search.ask(shortlist.choose())
            if configuration is None or self.done:
                break
            under_way.append((configuration, self.measure(configuration)))
            while len(under_way) >= shortlist.depth:
                search.tell(*under_way.popleft())
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
            **figures_of(trajectory, self.case.best),
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


def figures_of(trajectory: list[float], best: float) -> dict[str, Any]:
    """Return the best time after each evaluation, and when it was how near the best of all."""
    return {
        "trajectory": trajectory,
        **{
            name: next((i + 1 for i, t in enumerate(trajectory) if t <= share * best), None)
            for name, share in SHARES.items()
        },
        "fractions": [best / trajectory[min(b, len(trajectory)) - 1] for b in BUDGETS],
    }


def runs_of_others(file: Path) -> list[dict[str, Any]]:
    """Return the runs that another program has made on these recordings."""
    cases = {case.name: case for case in CASES}
    return [
        {**run, "taught": 0, **figures_of(run["trajectory"], cases[run["space"]].best)}
        for run in json.loads(file.read_text())
        if run["space"] in cases
    ]


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
    rows = rng.permutation(len(space.variants[0]))[:AFTER]
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


def print_heading(given: argparse.Namespace) -> None:
    compile_s, measure_s = given.seconds
    first = "a random one first" if given.first == "random" else "the default first"
    how = f"batches of {given.batch}"
    if given.compilers:
        how = f"{given.compilers} compilers, {compile_s:g} s to compile and {measure_s:g} s to time"
    print(
        f"kernel-tune {__version__}: {given.seeds} seeds from {given.first_seed}, {how}, {first}"
        + (f", taught by {given.warm} trials each of others" if given.taught else "")
    )
    for case in CASES:
        sure = np.concatenate(case.times)
        near = int(np.sum(sure <= NEAR * case.best))
        print(
            f"  {case.name}: {len(sure)} configurations, {int(np.isnan(sure).sum())} fail, {near} within 5 %"
        )


def summarise(runs: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    near, nearest = ([run[name] or np.inf for run in runs] for name in SHARES)
    fractions = np.array([run["fractions"] for run in runs])
    return {
        "runs": len(runs),
        "to_5_percent": float(np.median(near)),
        "to_5_percent_p90": float(np.quantile(near, 0.9, method="lower")),
        "to_1_percent": float(np.median(nearest)),
        "to_1_percent_p90": float(np.quantile(nearest, 0.9, method="lower")),
        "hit_rate": float(np.mean([n <= trials for n in near])),
        "fraction_median": np.median(fractions, axis=0).tolist(),
        "fraction_p10": np.quantile(fractions, 0.1, axis=0).tolist(),
        "ms": float(np.mean([run["ms"] for run in runs])),
    }


def number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def print_table(spaces: dict[str, dict[str, Any]], whole: dict[str, Any], shown: list[int]) -> None:
    wide = max(map(len, spaces), default=5)
    heads = "".join(f"{f'at {b}':>15}" for b in shown)
    print(f"{'space':{wide}}{'to 5 %':>8}{'p90':>7}{'hit':>6}{heads}{'ms':>7}")
    for name, s in [*spaces.items(), ("all runs", whole)]:
        pairs = zip(s["fraction_median"], s["fraction_p10"], strict=True)
        cells = "".join(f"{m:>8.3f} /{p:.3f}" for (m, p), _ in zip(pairs, shown, strict=False))
        p90, hit = number(s["to_5_percent_p90"]), f"{100 * s['hit_rate']:.0f}%"
        print(f"{name:{wide}}{number(s['to_5_percent']):>8}{p90:>7}{hit:>6}{cells}{s['ms']:>7.1f}")


def result_of(runs: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    """Return what the runs of one sampler say, by space and in all."""
    by_space: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_space.setdefault(run["space"], []).append(run)
    spaces = {name: summarise(of_space, trials) for name, of_space in by_space.items()}
    cases = {case.name: case for case in CASES}
    scores = [
        score(np.concatenate(cases[name].times), [run["trajectory"] for run in of_space], trials)
        for name, of_space in by_space.items()
    ]
    return {
        "headline": float(np.median([s["to_5_percent"] for s in spaces.values()])),
        "score": float(np.mean(scores)),
        "all": summarise(runs, trials),
        "spaces": spaces,
    }


def tables(runs: list[dict[str, Any]], given: argparse.Namespace, taught: Sequence[int]) -> dict[str, Any]:
    """Print the tables of each sampler, cold and taught, and the figures of each; return these."""
    shown = [b for b in BUDGETS if b <= given.trials]
    results: dict[str, Any] = {}
    for sampler in dict.fromkeys(run["sampler"] for run in runs):
        cold: dict[str, Any] = {}
        own = sampler in given.samplers
        for count in (0, *(taught if own and learns(sampler) else ())):
            chosen = [run for run in runs if (run["sampler"], run["taught"]) == (sampler, count)]
            if not chosen:
                print(f"\n{sampler}: no recording has {count} others of its kernel to be taught by")
                continue
            result = result_of(chosen, given.trials)
            print(f"\n{sampler}" + (f", taught by {count}" if count else ""))
            print_table(result["spaces"], result["all"], shown)
            medians = [s["to_1_percent"] for s in result["spaces"].values()]
            print(f"median over spaces of each space's median to 5 %: {number(result['headline'])}")
            print(
                f"the same to 1 %: {number(float(np.median(medians)))}; "
                f"9 of 10 runs: {number(result['all']['to_1_percent_p90'])}"
            )
            if not count:
                cold = results[sampler] = result
                print(f"score: {result['score']:.2f}")
                continue
            ratios = {
                name: min(s["to_5_percent"], MISSED) / min(cold["spaces"][name]["to_5_percent"], MISSED)
                for name, s in result["spaces"].items()
            }
            was = float(np.median([cold["spaces"][name]["to_5_percent"] for name in ratios]))
            worst = max(ratios, key=lambda name: ratios[name])
            print(f"untaught, on the same spaces: {number(was)}; worst: {ratios[worst]:.2f} of it on {worst}")
            cold.setdefault("taught", {})[str(count)] = result
        if own:
            print(f"a suggestion after {AFTER} results: {suggestion_ms(sampler):.1f} ms")
    first, *others = given.samplers
    for sampler in others:
        compare(sampler, first, [run for run in runs if not run["taught"]], given.trials)
    return results


def compare(sampler: str, first: str, runs: list[dict[str, Any]], trials: int) -> None:
    """Print the ratio of a sampler's evaluations to those of the first, on the same spaces with the same seeds."""
    for kind, share in SHARES.items():
        counts = {(r["sampler"], r["space"], r["seed"]): r[kind] or 1.5 * trials for r in runs}
        ratios: dict[str, list[float]] = {}
        for (name, space, seed), count in counts.items():
            if name == sampler:
                ratios.setdefault(space, []).append(np.log(count / counts[first, space, seed]))
        rng = np.random.default_rng(0)
        drawn = [np.mean([rng.choice(r, len(r)).mean() for r in ratios.values()]) for _ in range(1000)]
        low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
        ratio = np.exp(np.mean([np.mean(r) for r in ratios.values()]))
        print(
            f"{sampler}: to {share - 1:.0%} {ratio:.3f} of the evaluations of {first}, "
            f"95 %: {low:.3f} to {high:.3f}"
        )


def stopping_table(runs: list[dict[str, Any]], names: list[str]) -> None:
    """Print what stopping saves and loses, for each noise floor and patience."""
    wide = max(map(len, names), default=5)
    for index, rule in enumerate(runs[0]["stops"]):
        floor = rule["noise_floor"]
        print(f"\nnoise floor {100 * floor:g} %, {rule['patience']} proposals in a row")
        heads = (
            f"{'stopped after':>15}{'earliest':>10}{'latest':>8}{'saved':>7}{'same best':>11}{'> floor':>9}"
        )
        print(f"{'space':{wide}}{heads}{'mean loss':>11}{'p90':>8}{'worst':>8}")
        for name in [*names, "all runs"]:
            stops = [run["stops"][index] for run in runs if name in (run["space"], "all runs")]
            trials, losses = [stop["trials"] for stop in stops], [stop["loss"] for stop in stops]
            saved = 1 - sum(trials) / sum(stop["of"] for stop in stops)
            counts = (
                f"{sum(loss <= 0 for loss in losses)}/{len(losses)}",
                sum(loss > floor for loss in losses),
            )
            late = 100 * np.mean(losses), 100 * np.quantile(losses, 0.9, method="higher"), 100 * max(losses)
            print(
                f"{name:{wide}}{np.median(trials):>15.1f}{min(trials):>10}{max(trials):>8}{saved:>7.0%}"
                f"{counts[0]:>11}{counts[1]:>9}{late[0]:>9.2f} %{late[1]:>6.2f} %{late[2]:>6.2f} %"
            )


def main() -> None:
    given = arguments()
    CASES.extend(read_cases(given.paths, given.spaces))
    given.rules = [(float(floor), int(patience)) for floor in given.stop for patience in given.patience]
    given.seconds = tuple(map(float, given.seconds))
    given.taught = [] if given.rules else [count for count in map(int, given.taught) if count]
    runs = run_all(replay, jobs_of(given, given.taught), given.jobs)
    if given.others:
        runs += runs_of_others(given.others)
    print_heading(given)
    result: dict[str, Any] = {}
    if given.rules:
        for sampler in given.samplers:
            print(f"\n{sampler}")
            stopping_table([run for run in runs if run["sampler"] == sampler], [case.name for case in CASES])
    else:
        result = tables(runs, given, given.taught)
    if given.json:
        kept = ("seeds", "first_seed", "trials", "batch", "first", "taught", "warm")
        settings = {name: getattr(given, name) for name in kept}
        for run in runs:
            del run["trajectory"]
        harness.write_json(given.json, {"settings": settings, "samplers": result, "runs": runs})


if __name__ == "__main__":
    main()
