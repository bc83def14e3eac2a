"""The same study on GPUs: 40 problems tuned twice, on a card and with a seed each, and the winners raced on either."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
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
    (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
    (128, 8192, 8192), (256, 4096, 14336), (4096, 14336, 4096), (16, 8192, 8192), (4104, 4104, 4104),
    (2048, 512, 16384), (6144, 4096, 1024),
)  # fmt: skip
OTHERS = {
    "vector_add": [f"n=2**{power}" for power in (20, 24, 26, 28)],
    "saxpy": [f"n=2**{power}" for power in (20, 24, 26, 28)],
    "reduce": [f"n=2**{power}" for power in (20, 24, 26, 28)],
    "transform": [f"n=2**{power}" for power in (20, 24, 26, 28)],
}
LONG = (4, 7, 13, 16)
"""Problems that long searches are made of: large and small, few rows and many."""
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
    """Return so many problems, products first."""
    texts = [
        ("gemm", f"m={m},n={n},k={k},layout={layout},dtype=bfloat16")
        for m, n, k in PRODUCTS
        for layout in ("nn", "nt")
    ]
    texts += [(kernel, text) for kernel, those in OTHERS.items() for text in those]
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
    different = list(dict.fromkeys(devices))
    with ThreadPoolExecutor(len(different)) as pool:
        raced = pool.map(lambda device: _race_all(given.work, listed, device, deadline), different)
        rows_of = dict(zip(different, raced, strict=True))
    rows = [row for device in devices for row in rows_of[device]]
    tuned = sum(one.problem.key in _runs(given.work, turn) for one in listed for turn in (0, 1))
    text = report(rows, len(listed), tuned)
    sys.stdout.write(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "same-table-gpu.txt").write_text(text)
        (given.out / "same-table-gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if len(rows) == len(listed) * len(devices) else 1


# -- tuning


def _tune_all(
    given: argparse.Namespace, listed: Sequence[Listed], deadline: float, turn: int, device: str
) -> None:
    """Tune every problem that this turn has no winner of; then make the long searches."""
    long = [listed[number] for number in LONG if number < len(listed) and given.long]
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
    """Tune the problems of a list that are left, without what other runs have found, until the time is over."""
    done = _runs(given.work, turn, suffix)
    left = [word for one in listed if one.problem.key not in done for word in ("--problem", one.text)]
    if not left or time.monotonic() + ENDS_S > deadline:
        return
    name = f"{turn}{suffix}"
    command = [
        sys.executable, "-m", "tuner", "run", "--kernel", kernel, *left, "--device", device, "--seed",
        str(SEEDS[turn]), "--trials", str(trials), "--db", str(given.work / f"{name}.db"), "--from-scratch", "--json",
        *(("--jobs", str(given.jobs)) if given.jobs else ()),
    ]  # fmt: skip
    with (given.work / f"{name}-{kernel}.log").open("a") as log:
        tuner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            output, _ = tuner.communicate(timeout=deadline - ENDS_S - time.monotonic())
        except subprocess.TimeoutExpired:
            tuner.send_signal(signal.SIGTERM)  # it prints what it has
            output, _ = tuner.communicate()
    for record in json.loads(output or "[]"):
        done[Problem.from_json(record["problem"]).key] = record
    with whole_file(given.work / f"{name}.json", replace=True) as partial:
        partial.write_text(json.dumps(done))


def _runs(work: Path, turn: int, suffix: str = "") -> dict[str, dict[str, Any]]:
    """Return what the tuner printed of each problem that a turn has tuned, by the problem's key."""
    file = work / f"{turn}{suffix}.json"
    return json.loads(file.read_text()) if file.is_file() else {}


# -- racing


def _race_all(work: Path, listed: Sequence[Listed], device: str, deadline: float) -> list[dict[str, Any]]:
    """Return the races of all problems on a device, those of before and as many as time allows."""
    kept = work / f"races-{device.replace(':', '-').replace('/', '-')[-40:]}.json"
    rows: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else {}
    for kernel, group in groupby(listed, key=lambda one: one.problem.kernel):
        pairs = [(one, _contestants(work, one.problem)) for one in group]
        raced = {key: row["same"].keys() for key, row in rows.items()}
        left = [
            (one, chosen)
            for one, chosen in pairs
            if "tuned" in chosen and chosen.keys() != raced.get(one.problem.key)
        ]
        if not left or time.monotonic() + RACE_S > deadline:
            continue
        with closing(open_device(device, kernel, None, paths.cubins())) as opened:
            for one, chosen in left:
                if time.monotonic() + RACE_S > deadline:
                    break
                try:
                    row = _race(opened, one.problem, chosen)
                except TunerError as error:
                    sys.stderr.write(f"{kernel} {one.text} on {device}: {error}\n")
                    continue
                rows[one.problem.key] = {"problem": str(one.problem), "device": device, **row}
                with whole_file(kept, replace=True) as partial:
                    partial.write_text(json.dumps(rows))
    return [rows[one.problem.key] for one in listed if one.problem.key in rows]


def _contestants(work: Path, problem: Problem) -> dict[str, tuple[Trial, Trial]]:
    """Return what both turns found, by the way in which they chose it; nothing that only one has."""
    found: dict[str, list[Trial]] = {way: [] for way in WAYS}
    for turn, suffix in ((0, ""), (1, ""), (0, "-long"), (1, "-long")):
        if (record := _runs(work, turn, suffix).get(problem.key)) is None:
            continue
        with Database.open(work / f"{turn}{suffix}.db", write=False) as database:
            winners = database.winners(Filters(run=record["run"])).rows
            found["long" if suffix else "tuned"] += [winner.trial for winner in winners]
            if not suffix:
                numbers = {number for numbers in record["stats"]["seeds"].values() for number in numbers}
                first = [trial for trial in database.trials(record["run"]) if trial.number in numbers | {0}]
                timed = [trial for trial in first if trial.status is Status.OK]
                found["initial"] += [min(timed, key=lambda trial: trial.time_ns or 0.0)] if timed else []
    return {way: (trials[0], trials[1]) for way, trials in found.items() if len(trials) == 2}


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


def report(rows: Sequence[dict[str, Any]], count: int, tuned: int) -> str:
    """Return the figures as text."""
    lines = [f"{tuned} of {2 * count} runs, {len(rows)} of {2 * count} races"]
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
