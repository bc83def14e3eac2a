"""The same study on GPUs: 40 problems tuned twice, on a card and with a seed each, and the winners raced on either."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

from tuner import paths
from tuner.cli.problems import ProblemTexts, make_problems
from tuner.conditions import Regime
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.errors import TunerError
from tuner.files import whole_file
from tuner.kernel.load import load_kernel
from tuner.model import Configuration, Problem, Status, Trial
from tuner.tuning.race import compete

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = (
    (2816, 2816, 2816), (160, 6144, 12288), (1408, 1408, 1408), (32, 6144, 6144), (768, 768, 768),
    (2432, 2432, 2432), (6656, 6656, 6656), (112, 6144, 6144), (4096, 12288, 4096), (3400, 3400, 3400),
    (2048, 640, 12288), (4608, 4608, 1536),
)  # fmt: skip
LENGTHS = ("n=3*10**6", "n=12*10**6", "n=5*10**7,dtype=float16", "n=2*10**8")
OTHERS = dict.fromkeys(("vector_add", "saxpy", "reduce", "transform"), LENGTHS)
"""Sizes that the initial configurations were not made from."""
LONG = 4
"""Products that long searches are made of, the first of these."""
SEEDS = (101, 202)
WITHIN = 0.01
WAYS = {
    "tuned": "winners",
    "initial": "the fastest initial configurations alone",
    "long": "winners of long searches",
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
        Listed(text, make_problems(load_kernel(kernel), ProblemTexts(problems=(text,)))[0])
        for kernel, text in texts[:count]
    ]


def measure(given: argparse.Namespace) -> int:
    """Do what is left, as far as time allows; return 0 once all is done."""
    deadline = time.monotonic() + given.seconds
    devices = given.device or ["cuda:0", "cuda:1"]
    given.work.mkdir(parents=True, exist_ok=True)
    listed = problems(given.problems)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda turn: _tune_all(given, listed, deadline, turn, devices[turn]), (0, 1)))
    files = [given.work / f"{turn}{suffix}.db" for turn in (0, 1) for suffix in ("", "-long")]
    tuned = {file: _tuned(file) for file in (*files, *(given.tuned or ()))}
    wanted = {one.problem.key: one.problem for one in listed}
    if given.tuned:
        first, second = (tuned[file] for file in given.tuned)
        wanted = {key: problem for key, problem in first.items() if key in second} | wanted
    different = list(dict.fromkeys(devices))
    with ThreadPoolExecutor(len(different)) as pool:
        raced = pool.map(
            lambda device: _race_all(given, tuned, list(wanted.values()), device, deadline), different
        )
        rows = [row for rows in raced for row in rows]
    about = _about([file for file, problems in tuned.items() if problems])
    text = "\n".join(about) + "\n" + report(rows, len(wanted) * len(different))
    sys.stdout.write(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "same-table-gpu.txt").write_text(text)
        written = {"about": about, "races": rows}
        (given.out / "same-table-gpu.json").write_text(json.dumps(written, indent=1) + "\n")
    return 0 if len(rows) == len(wanted) * len(different) else 1


def _about(files: Sequence[Path]) -> list[str]:
    """Return on what the runs of some databases were measured, and how many trials each has."""
    lines = []
    for file in files:
        with Database.open(file, write=False) as database:
            runs = [database.run(run_id) for run_id in database.run_ids()]
            started = database.run_state(runs[-1].id)["started_at"]
        on = sorted({f"{run.gpu.name} {run.gpu.uuid[:8]} ({run.device})" for run in runs})
        versions = ", ".join(f"{name} {version}" for name, version in sorted(runs[0].versions.items()))
        trials = " and ".join(map(str, sorted({run.trials for run in runs})))
        lines.append(
            f"{file.name}: {', '.join(on)}; {versions}; {started[:10]}; {len(runs)} runs of {trials} trials, "
            f"seed {runs[0].seed}"
        )
    return lines


# -- tuning


def _tune_all(
    given: argparse.Namespace, listed: Sequence[Listed], deadline: float, turn: int, device: str
) -> None:
    """Tune every problem that this turn has no winner of; then make the long searches."""
    products = [one for one in listed if one.problem.kernel == "gemm"]
    long = (products or list(listed))[:LONG] if given.long else []
    for those, trials, suffix in ((listed, given.trials, ""), (long, given.long, "-long")):
        for kernel, group in groupby(those, key=lambda one: one.problem.kernel):
            _tune(given, kernel, list(group), deadline, turn, device, trials, suffix)


def _tune(
    given: argparse.Namespace,
    kernel: str,
    listed: Sequence[Listed],
    deadline: float,
    turn: int,
    device: str,
    trials: int,
    suffix: str,
) -> None:
    """Tune the problems of a list that are left, until the time is over."""
    database = given.work / f"{turn}{suffix}.db"
    done = _tuned(database)
    left = [word for one in listed if one.problem.key not in done for word in ("--problem", one.text)]
    if not left or time.monotonic() + ENDS_S > deadline:
        return
    command = [
        sys.executable, "-m", "tuner", "run", "--kernel", kernel, *left, "--device", device, "--seed",
        str(SEEDS[turn]), "--trials", str(trials), "--db", str(database), "--quiet",
        *(("--jobs", str(given.jobs)) if given.jobs else ()),
    ]  # fmt: skip
    with (given.work / f"{turn}{suffix}-{kernel}.log").open("a") as log:
        tuner = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        try:
            tuner.wait(deadline - ENDS_S - time.monotonic())
        except subprocess.TimeoutExpired:
            tuner.terminate()
            tuner.wait(3 * ENDS_S)
        finally:
            tuner.kill()


def _tuned(file: Path) -> dict[str, Problem]:
    """Return the problems of which a database has a winner, by their keys."""
    if not file.is_file():
        return {}
    with Database.open(file, write=False) as database:
        return {one.run.problem.key: one.run.problem for one in database.winners().rows}


# -- racing


def _race_all(
    given: argparse.Namespace,
    tuned: Mapping[Path, Mapping[str, Problem]],
    wanted: Sequence[Problem],
    device: str,
    deadline: float,
) -> list[dict[str, Any]]:
    """Return the races of all problems on a device, those of before and as many as time allows."""
    kept = given.work / f"races-{device.replace(':', '-').replace('/', '-')[-40:]}.json"
    rows: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for kernel, group in groupby(wanted, key=lambda problem: problem.kernel):
        pairs = [(problem, _contestants(given, tuned, problem)) for problem in group]
        raced = {key: row["same"].keys() for key, row in rows.items()}
        left = [
            (problem, chosen)
            for problem, chosen in pairs
            if "tuned" in chosen and chosen.keys() != raced.get(problem.key)
        ]
        if not left or time.monotonic() + RACE_S > deadline:
            continue
        with closing(open_device(device, kernel, given.jobs, paths.cubins())) as opened:
            for problem, chosen in left:
                if time.monotonic() + RACE_S > deadline:
                    break
                try:
                    row = _race(opened, problem, chosen)
                except TunerError as error:
                    sys.stderr.write(f"{problem} on {device}: {error}\n")
                    continue
                rows[problem.key] = {"problem": str(problem), "device": device, **row}
                with whole_file(kept, replace=True) as partial:
                    partial.write_text(json.dumps(rows))
    return [rows[problem.key] for problem in wanted if problem.key in rows]


def _contestants(
    given: argparse.Namespace, tuned: Mapping[Path, Mapping[str, Problem]], problem: Problem
) -> dict[str, tuple[Trial, Trial]]:
    """Return what both turns found, by the way in which they chose it; nothing that only one has."""
    found: dict[str, list[Trial]] = {way: [] for way in WAYS}
    for turn in (0, 1):
        own, long = (given.work / f"{turn}{suffix}.db" for suffix in ("", "-long"))
        file = given.tuned[turn] if given.tuned and problem.key not in tuned[own] else own
        if problem.key in tuned[file]:
            winner, initial = _ended(file, problem)
            found["tuned"].append(winner)
            found["initial"] += initial
        if problem.key in tuned[long]:
            found["long"].append(_ended(long, problem)[0])
    return {way: (trials[0], trials[1]) for way, trials in found.items() if len(trials) == 2}


def _ended(file: Path, problem: Problem) -> tuple[Trial, list[Trial]]:
    """Return the winner of a problem, and the fastest of the default and the initial configurations if one ran."""
    with Database.open(file, write=False) as database:
        winner = database.winners(Filters(problem_key=problem.key)).rows[0]
        initial = database.run_state(winner.run.id)["stats"]["seeds"]
        numbers = {0}.union(*initial.values())
        first = [trial for trial in database.trials(winner.run.id) if trial.number in numbers]
    timed = sorted((one for one in first if one.status is Status.OK), key=lambda one: one.time_ns or 0.0)
    return winner.trial, timed[:1]


def _race(device: Device, problem: Problem, chosen: dict[str, tuple[Trial, Trial]]) -> dict[str, Any]:
    """Return the medians of a race of what was chosen, two of each way, and whether these are the same."""
    kernel = load_kernel(problem.kernel)
    conditions, _ = device.choose_conditions(kernel, problem, None, Regime.RESTED)
    device.prepare(kernel, problem, 0, conditions)
    different: dict[Configuration, Trial] = {
        trial.configuration: trial for pair in chosen.values() for trial in pair
    }
    raced = sorted(different.values(), key=lambda trial: trial.time_ns or 0.0)
    failures: list[str] = []
    standing, _ = compete(device, raced, 0, lambda _, why: failures.append(why))
    index = {trial.configuration: i for i, trial in enumerate(raced)}

    def time_ns(trial: Trial) -> float | None:
        number = index[trial.configuration]
        return standing.time_ns(number) if number in standing.groups else None

    return {
        "same": {way: a.configuration == b.configuration for way, (a, b) in chosen.items()},
        "times_ns": {way: [time_ns(trial) for trial in pair] for way, pair in chosen.items()},
        "configurations": {way: [str(trial.configuration) for trial in pair] for way, pair in chosen.items()},
        "noise_floor": standing.noise_floor,
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
        "Two searches of each problem, on two cards with two seeds; what they chose, raced on either card:",
        "",
        "| chosen | problems | the same | within 1 % on either card | furthest apart | over the faster winner, mean |",
        "|---|---|---|---|---|---|",
        *(
            _agreement(rows, way, named)
            for way, named in WAYS.items()
            if any(way in row["same"] for row in rows)
        ),
        "",
        "Times in us, those of the second search after the slash:",
        "",
        "| problem | raced on | winner | same | initial | long |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = {way: " / ".join(_us(time_ns) for time_ns in pair) for way, pair in row["times_ns"].items()}
        lines.append(
            f"| {row['problem']} | {row['device']} | {cells['tuned']} | {'yes' if row['same']['tuned'] else 'no'} | "
            f"{cells.get('initial', '')} | {cells.get('long', '')} |"
        )
    return "\n".join(lines) + "\n"


def _agreement(rows: Sequence[dict[str, Any]], way: str, named: str) -> str:
    """Return the row of a table: how far two choices agree that were made in one way."""
    those = [row for row in rows if way in row["same"]]
    same = {row["problem"]: row["same"][way] for row in those}
    apart, over = list[float](), list[float]()
    for row in those:
        pair, winners = row["times_ns"][way], row["times_ns"]["tuned"]
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
