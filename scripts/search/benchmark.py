"""Replays recorded spaces with many random seeds: how soon does each sampler come within 5 % of the best?

scripts/run python scripts/search/benchmark.py FOLDER... --samplers gp-ei,tpe,random --seeds 20

A folder may hold recordings of this tool, Kernel Tuner's cache files and T4 files, and T1 files beside them. The
recorded configurations are the valid set. One evaluation is one configuration that was not tried before, whether it
then fails or not. The fraction is the best recorded time over the best time found. A run begins with a random
configuration (``--first default``: with the default), and ends with the best one.

``--stop 0.002,0.005 --patience 10,20`` says instead what ``tune run --stop auto`` would save and lose at these noise
floors: every run goes through all trials, and the loss is how much longer the best time is that was found by the stop.

``--compilers 16 --seconds 0.3,0.1`` lets the search nominate and choose as in a run whose candidates take so long to
compile and to time.
"""

# ruff: noqa: E402 - threads are settled before NumPy is loaded
from __future__ import annotations

import argparse
import copy
import itertools
import multiprocessing
import os
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from scripts import harness
from scripts.harness import listed
from scripts.search.cases import NEAR, Case, read_cases
from tuner import __version__
from tuner.children.compilation import Compilation
from tuner.core.model import Configuration, Status
from tuner.search.samplers import make_search
from tuner.search.stopping import PATIENCE, StoppingCriterion
from tuner.search.study import Search
from tuner.tuning.shortlist import Shortlist


@dataclass(frozen=True)
class Job:
    """One run: the number of its recording, and how it is searched."""

    case: int
    sampler: str
    seed: int
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
CASES: list[Case] = []
"""Read before the processes are forked."""


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
        self.search = make_search(job.sampler, space, job.seed)
        if job.given.warm:
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
        trajectory, best = self.trajectory, self.case.best
        ends = {rule: self.stops.get(rule, len(trajectory)) for rule in self.job.given.rules}
        return {
            "space": self.case.name,
            "sampler": self.job.sampler,
            "seed": self.job.seed,
            "near": next((i + 1 for i, t in enumerate(trajectory) if t <= NEAR * best), None),
            "fractions": [best / trajectory[min(b, len(trajectory)) - 1] for b in BUDGETS],
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


def teach(search: Search, job: Job) -> None:
    """Teach a search the results of another one, of the same kernel elsewhere."""
    others = [case for i, case in enumerate(CASES) if i != job.case and case.kernel == CASES[job.case].kernel]
    if not others:
        return
    other = others[job.seed % len(others)]
    earlier = make_search(job.sampler, other.space, job.seed + 1000)
    results: list[tuple[Configuration, float | None]] = []
    while len(results) < job.given.warm and (configuration := earlier.ask()) is not None:
        results.append((configuration, other.time_ns(configuration)))
        earlier.tell(*results[-1])
    search.learn(results, distance=1.0)


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
    add("--warm", type=int, default=0, help="trials of an earlier run on another space of the kernel")
    add("--stop", type=listed(), default="", help="noise floors at which to try an early stop, such as 0.002")
    add("--patience", type=listed(), default=str(PATIENCE), help="proposals in a row that must promise less")
    add("--compilers", type=int, default=0, help="choose from a shortlist, as with so many")
    add("--seconds", type=listed(), default="0.3,0.1", help="to compile and to time, with --compilers")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    add("--json", type=Path, help="every run, and the table")
    return options.parse_args()


def run_all(jobs: list[Job], processes: int) -> list[dict[str, Any]]:
    runs = []
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for run in pool.imap_unordered(replay, jobs):
            runs.append(run)
            print(f"\r{len(runs)}/{len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return runs


def print_heading(given: argparse.Namespace) -> None:
    compile_s, measure_s = given.seconds
    first = "a random one first" if given.first == "random" else "the default first"
    how = f"batches of {given.batch}"
    if given.compilers:
        how = f"{given.compilers} compilers, {compile_s:g} s to compile and {measure_s:g} s to time"
    print(
        f"kernel-tune {__version__}: {given.seeds} seeds from {given.first_seed}, {how}, {first}"
        + (f", taught by {given.warm} trials of another size or GPU" if given.warm else "")
    )
    for case in CASES:
        sure = np.concatenate(case.times)
        near = int(np.sum(sure <= NEAR * case.best))
        print(
            f"  {case.name}: {len(sure)} configurations, {int(np.isnan(sure).sum())} fail, {near} within 5 %"
        )


def summarise(runs: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    near = [run["near"] or np.inf for run in runs]
    fractions = np.array([run["fractions"] for run in runs])
    return {
        "runs": len(runs),
        "to_5_percent": float(np.median(near)),
        "to_5_percent_p90": float(np.quantile(near, 0.9, method="lower")),
        "hit_rate": float(np.mean([n <= trials for n in near])),
        "fraction_median": np.median(fractions, axis=0).tolist(),
        "fraction_p10": np.quantile(fractions, 0.1, axis=0).tolist(),
        "ms": float(np.mean([run["ms"] for run in runs])),
    }


def number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def table(runs: list[dict[str, Any]], samplers: list[str], names: list[str], trials: int) -> dict[str, Any]:
    shown = [b for b in BUDGETS if b <= trials]
    wide = max(map(len, names), default=5)
    result: dict[str, Any] = {}
    for sampler in samplers:
        print(f"\n{sampler}")
        heads = "".join(f"{f'at {b}':>15}" for b in shown)
        print(f"{'space':{wide}}{'to 5 %':>8}{'p90':>7}{'hit':>6}{heads}{'ms':>7}")
        spaces = {
            n: summarise([r for r in runs if (r["sampler"], r["space"]) == (sampler, n)], trials)
            for n in names
        }
        whole = summarise([r for r in runs if r["sampler"] == sampler], trials)
        headline = float(np.median([s["to_5_percent"] for s in spaces.values()]))
        for name, s in [*spaces.items(), ("all runs", whole)]:
            pairs = zip(s["fraction_median"], s["fraction_p10"], strict=True)
            cells = "".join(f"{m:>8.3f} /{p:.3f}" for (m, p), _ in zip(pairs, shown, strict=False))
            p90, hit = number(s["to_5_percent_p90"]), f"{100 * s['hit_rate']:.0f}%"
            print(f"{name:{wide}}{number(s['to_5_percent']):>8}{p90:>7}{hit:>6}{cells}{s['ms']:>7.1f}")
        print(f"median over spaces of each space's median to 5 %: {number(headline)}")
        result[sampler] = {"headline": headline, "all": whole, "spaces": spaces}
    return result


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
    samplers = given.samplers
    given.rules = [(float(floor), int(patience)) for floor in given.stop for patience in given.patience]
    given.seconds = tuple(map(float, given.seconds))
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    every = itertools.product(range(len(CASES)), samplers, seeds)
    runs = run_all([Job(case, sampler, seed, given) for case, sampler, seed in every], given.jobs)
    runs.sort(key=lambda run: (samplers.index(run["sampler"]), run["space"], run["seed"]))
    print_heading(given)
    names = [case.name for case in CASES]
    result: dict[str, Any] = {}
    if given.rules:
        for sampler in samplers:
            print(f"\n{sampler}")
            stopping_table([run for run in runs if run["sampler"] == sampler], names)
    else:
        result = table(runs, samplers, names, given.trials)
    if given.json:
        kept = ("seeds", "first_seed", "trials", "batch", "first", "warm")
        settings = {name: getattr(given, name) for name in kept}
        harness.write_json(given.json, {"settings": settings, "samplers": result, "runs": runs})


if __name__ == "__main__":
    main()
