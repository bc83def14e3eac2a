"""The same study on GPUs: 40 problems tuned twice, on a card and with a seed each, and the winners raced on either."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from scripts import harness
from scripts.harness import ROOT, TUNE, tune
from scripts.reproducing.simulated import MARGIN
from tuner.cli.problems import ProblemTexts, make_problems
from tuner.core import paths
from tuner.core.conditions import Regime
from tuner.core.errors import DeviceError, TunerError
from tuner.core.model import Configuration, Problem, Trial
from tuner.database.database import Database
from tuner.database.records import StoredWinner
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.kernel.batching import warm_differs
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import tensors_of
from tuner.tuning.race import compete
from tuner.tuning.state import fastest

PRODUCTS = (
    (2816, 2816, 2816), (160, 6144, 12288), (1408, 1408, 1408), (32, 6144, 6144), (768, 768, 768),
    (2432, 2432, 2432), (6656, 6656, 6656), (112, 6144, 6144), (4096, 12288, 4096), (3400, 3400, 3400),
    (2048, 640, 12288), (4608, 4608, 1536),
)  # fmt: skip
LENGTHS = ("n=3*10**6", "n=12*10**6", "n=5*10**7,dtype=float16", "n=2*10**8")
OTHERS = dict.fromkeys(("vector_add", "saxpy", "reduce", "transform"), LENGTHS)
"""Sizes that the initial configurations were not made from."""
SEEDS, AGAIN_SEEDS = (101, 202), (303, 404)
WITHIN = 0.01
WAYS = {
    "tuned": "winners",
    "again": "winners, the different ones tuned again",
    "initial": "the fastest initial configurations alone",
}
ENDS_S, RACE_S = 10.0, 10.0
"""For the tuner to end when it is stopped, and for a race: nothing is begun that there is no time for."""


@dataclass(frozen=True)
class Listed:
    """A problem, and the text that names it for the command line."""

    text: str
    problem: Problem


def problems(count: int) -> list[Listed]:
    """Return so many problems."""
    texts = [(kernel, text) for kernel, those in OTHERS.items() for text in those]
    texts += [
        ("gemm", f"m={m},n={n},k={k},layout={layout},dtype=bfloat16")
        for m, n, k in PRODUCTS
        for layout in ("nn", "nt")
    ]
    return [
        Listed(text, make_problems(load_kernel(kernel), ProblemTexts(problem_texts=(text,)))[0])
        for kernel, text in texts[:count]
    ]


def measure(given: argparse.Namespace) -> int:
    """Do what is left, as far as time allows; return 0 once all is done."""
    return Study(given).measure()


class Study:
    """The searches on two devices, one for each turn, and the races of what they chose.

    Args:
        given: of the command line.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._work = given, given.work
        self._deadline: float = time.monotonic() + given.seconds
        self._devices: list[str] = given.device or ["cuda:0", "cuda:1"]
        self._listed = problems(given.problems)
        given.work.mkdir(parents=True, exist_ok=True)

    def measure(self) -> int:
        """Do what is left, and write what there is; return 0 once all is done."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._tune_all, (0, 1)))
            if self._given.again:
                list(pool.map(self._tune_again, (0, 1)))
        chosen = [_chosen(self._work, turn) for turn in (0, 1)]
        different = list(dict.fromkeys(self._devices))
        with ThreadPoolExecutor(len(different)) as pool:
            rows = [row for rows in pool.map(partial(self._race_all, chosen), different) for row in rows]
        about = _about(sorted(self._work.glob("?*.db"), key=lambda file: (len(file.name), file.name)))
        count = len(self._listed) * len(different)
        text = "\n".join(about) + "\n" + report(rows, count)
        sys.stdout.write(text)
        harness.write(self._given.out, "same-table-gpu", {"about": about, "races": rows}, text)
        return 0 if len(rows) == count else 1

    def _has_time(self, wanted_s: float) -> bool:
        return time.monotonic() + wanted_s <= self._deadline

    def _tune_all(self, turn: int) -> None:
        """Tune every problem that this turn has no winner of."""
        self._tune(self._listed, turn, self._work / f"{turn}.db", SEEDS[turn], self._given.trials)

    def _tune_again(self, turn: int) -> None:
        """Tune the problems of which the turns have other winners once more, with what both know."""
        both = [self._work / f"{turn}.db", self._work / f"{1 - turn}.db"]
        first, second = (
            {key: winner.trial.configuration for key, winner in _winners(file).items()} for file in both
        )
        differ = {key for key in first.keys() & second.keys() if first[key] != second[key]}
        those = [one for one in self._listed if one.problem.key in differ]
        if those and self._has_time(ENDS_S):
            merged = self._work / f"{turn}-again.db"
            tune("db", "merge", *map(str, both), "--into", str(merged))
            self._tune(those, turn, merged, AGAIN_SEEDS[turn], self._given.again)

    def _tune(self, listed: Sequence[Listed], turn: int, database: Path, seed: int, trials: int) -> None:
        """Tune the problems of a list that have no winner of this seed, kernel by kernel, until the time is over."""
        done = _winners(database, seed)
        for kernel, group in groupby(listed, key=lambda one: one.problem.kernel):
            left = [word for one in group if one.problem.key not in done for word in ("--problem", one.text)]
            if not left or not self._has_time(ENDS_S):
                continue
            command = [
                *TUNE, "run", "--kernel", kernel, *left, "--device", self._devices[turn], "--seed",
                str(seed), "--trials", str(trials), "--margin", f"{100 * MARGIN:g}", "--db", str(database),
                "--quiet",
                *(("--jobs", str(self._given.jobs)) if self._given.jobs else ()),
            ]  # fmt: skip
            with database.with_name(f"{database.stem}-{kernel}.log").open("a") as log:
                tuner = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
                try:
                    tuner.wait(self._deadline - ENDS_S - time.monotonic())
                except subprocess.TimeoutExpired:
                    tuner.terminate()
                    tuner.wait(3 * ENDS_S)
                finally:
                    tuner.kill()

    def _race_all(
        self, chosen: Sequence[Mapping[str, Mapping[str, Trial]]], device: str
    ) -> list[dict[str, Any]]:
        """Return the races of all problems on a device, those of before and as many as time allows."""
        kept = harness.Kept(self._work / f"races-{device.replace(':', '-').replace('/', '-')[-40:]}.json")
        rows, wanted = kept.data, [one.problem for one in self._listed]
        for kernel, group in groupby(wanted, key=lambda problem: problem.kernel):
            left = []
            for problem in group:
                pair = _contestants(chosen, problem.key)
                if "tuned" in pair and pair.keys() != rows.get(problem.key, {}).get("same", {}).keys():
                    left.append((problem, pair))
            if not left or not self._has_time(RACE_S):
                continue
            with closing(open_device(device, kernel, self._given.jobs, paths.cubins())) as opened:
                for problem, pair in left:
                    if not self._has_time(RACE_S):
                        break
                    try:
                        row = _race(opened, problem, pair)
                    except TunerError as error:
                        harness.say(f"{problem} on {device}: {error}")
                        continue
                    kept.keep(**{problem.key: {"problem": str(problem), "device": device, **row}})
        return [rows[problem.key] for problem in wanted if problem.key in rows]


def _about(files: Sequence[Path]) -> list[str]:
    """Return on what the finished runs of some databases were measured, and how many trials each has.

    Runs that were merged into a later file are named once.
    """
    lines, named = [], set[str]()
    for file in files:
        with Database.open(file, write=False) as database:
            states = [(database.run(run_id), database.run_state(run_id)) for run_id in database.run_ids()]
        finished = [(run, state["started_at"]) for run, state in states if state["state"] == "finished"]
        for seed in sorted({run.options.seed for run, _ in finished}):
            runs = [run for run, _ in finished if run.options.seed == seed and run.id not in named]
            if not runs:
                continue
            named |= {run.id for run in runs}
            started = max(started for run, started in finished if run.options.seed == seed)
            on = sorted({f"{run.gpu.name} {run.gpu.uuid[:8]} ({run.device})" for run in runs})
            versions = ", ".join(f"{name} {version}" for name, version in sorted(runs[0].versions.items()))
            trials = " and ".join(map(str, sorted({run.options.trials for run in runs})))
            lines.append(
                f"{file.name}: {', '.join(on)}; {versions}; {started[:10]}; {len(runs)} runs of {trials} trials, "
                f"seed {seed}"
            )
    return lines


def _winners(file: Path, seed: int | None = None) -> dict[str, StoredWinner]:
    """Return the winners in a database by the problems' keys: of all runs, or of those with this seed."""
    if not file.is_file():
        return {}
    with Database.open(file, write=False) as database:
        rows = database.winners().rows
    return {row.run.problem.key: row for row in rows if seed in (None, row.run.options.seed)}


def _chosen(work: Path, turn: int) -> dict[str, dict[str, Trial]]:
    """Return what a turn chose in each way, by the problems' keys; again only of problems that were tuned again."""
    tuned = _winners(work / f"{turn}.db")
    runs = {"tuned": tuned, "again": _winners(work / f"{turn}-again.db", AGAIN_SEEDS[turn])}
    chosen = {way: {key: winner.trial for key, winner in winners.items()} for way, winners in runs.items()}
    return chosen | {"initial": _initial(work / f"{turn}.db", tuned)}


def _initial(file: Path, winners: Mapping[str, StoredWinner]) -> dict[str, Trial]:
    """Return the fastest of the default and the initial configurations in each winner's run."""
    found: dict[str, Trial] = {}
    if not winners:
        return found
    with Database.open(file, write=False) as database:
        for key, winner in winners.items():
            numbers = {0}.union(*database.run_state(winner.run.id)["stats"]["seeds"].values())
            trials = [trial for trial in database.trials(winner.run.id) if trial.number in numbers]
            if best := fastest(trials):
                found[key] = best
    return found


def _contestants(
    chosen: Sequence[Mapping[str, Mapping[str, Trial]]], key: str
) -> dict[str, tuple[Trial, Trial]]:
    """Return what both turns chose for a problem, by the way; nothing that only one has."""
    first, second = chosen
    pairs = {
        way: (first[way][key], second[way][key]) for way in WAYS if key in first[way] and key in second[way]
    }
    tuned = pairs.get("tuned")
    if first["again"] and tuned and tuned[0].configuration == tuned[1].configuration:
        pairs["again"] = tuned
    return pairs


def _race(device: Device, problem: Problem, chosen: Mapping[str, tuple[Trial, Trial]]) -> dict[str, Any]:
    """Return the medians of a race of what was chosen, two of each way, and whether these are the same.

    Where a run chooses its winner by two modes, so does the comparison: ``means_ns`` are the geometric means of the
    medians in both modes.
    """
    kernel = load_kernel(problem.kernel)
    conditions, _ = device.choose_conditions(kernel, problem, None, Regime.RESTED)
    device.prepare(kernel, problem, 0, conditions)
    different: dict[Configuration, Trial] = {
        trial.configuration: trial for pair in chosen.values() for trial in pair
    }
    raced = sorted(different.values(), key=lambda trial: trial.time_ns or 0.0)
    failures: list[str] = []

    def medians(warm_ns: Mapping[Configuration, float] | None) -> dict[Configuration, float]:
        standing, _ = compete(device, raced, 0, lambda _, why, __: failures.append(why), warm_ns)
        return {raced[number].configuration: standing.time_ns(number) for number in standing.groups}

    times_ns = medians(None)
    if not times_ns:
        raise DeviceError(f"none of the contestants of {problem} could be timed: {'; '.join(failures)}")
    both = warm_differs(tensors_of(kernel, problem, device.gpu), device.gpu, min(times_ns.values()))
    warm_ns = medians({}) if both else {}
    means_ns = {
        configuration: math.sqrt(time_ns * warm_ns[configuration]) if both else time_ns
        for configuration, time_ns in times_ns.items()
        if not both or configuration in warm_ns
    }

    def of_pairs(times: Mapping[Configuration, float]) -> dict[str, list[float | None]]:
        return {way: [times.get(trial.configuration) for trial in pair] for way, pair in chosen.items()}

    return {
        "same": {way: a.configuration == b.configuration for way, (a, b) in chosen.items()},
        "times_ns": of_pairs(times_ns),
        "warm_ns": of_pairs(warm_ns) if both else None,
        "means_ns": of_pairs(means_ns),
        "configurations": {way: [str(trial.configuration) for trial in pair] for way, pair in chosen.items()},
        "failed": failures,
    }


# -- figures


def report(rows: Sequence[dict[str, Any]], count: int) -> str:
    """Return the figures of so many races as text, as far as these were run."""
    lines = [f"{len(rows)} of {count} races"]
    if not rows:
        return lines[0] + "\n"
    lines += [
        "",
        "Two searches of each problem, on two cards with two seeds; what they chose, raced on either card.",
        "For short problems a time is the geometric mean of that in two modes, by which they were chosen, too.",
        "",
        "| chosen | problems | the same | within 1 % on either card | furthest apart | over the faster winner, mean |",
        "|---|---|---|---|---|---|",
        *(
            _agreement(rows, way, named)
            for way, named in WAYS.items()
            if any(way in row["same"] for row in rows)
        ),
        "",
        "These times in us, those of the second search after the slash:",
        "",
        "| problem | raced on | winner | same | again | same | initial |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        same = {f"{way} same": "yes" if it else "no" for way, it in row["same"].items()}
        times = {way: " / ".join(map(_us, pair)) for way, pair in row["means_ns"].items()}
        columns = ("tuned", "tuned same", "again", "again same", "initial")
        cells = " | ".join((same | times).get(column, "") for column in columns)
        lines.append(f"| {row['problem']} | {row['device']} | {cells} |")
    return "\n".join(lines) + "\n"


def _agreement(rows: Sequence[dict[str, Any]], way: str, named: str) -> str:
    """Return the row of a table: how far two choices agree that were made in one way."""
    those = [row for row in rows if way in row["same"]]
    same = {row["problem"]: row["same"][way] for row in those}
    apart, over = list[float](), list[float]()
    for row in those:
        pair, winners = row["means_ns"][way], row["means_ns"]["tuned"]
        if None not in pair and None not in winners:
            apart.append(abs(pair[0] / pair[1] - 1))
            over.append(min(pair) / min(winners) - 1)
    within = sum(one <= WITHIN for one in apart)
    return (
        f"| {named} | {len(same)} | {sum(same.values())} ({mean(same.values()):.0%}) | "
        f"{within} of {len(apart)} ({within / max(1, len(apart)):.0%}) | {max(apart, default=0.0):.2%} | "
        f"{mean(over) if over else 0.0:+.2%} |"
    )


def _us(time_ns: float | None) -> str:
    return "failed" if time_ns is None else f"{time_ns / 1e3:.2f}"
