"""The same study on GPUs: 40 problems tuned twice, and their winners raced on either card."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

from tuner import paths
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
LONG = 4
"""Products that a long search is made of, the first of these."""
SEED_OF = (101, 202)
WITHIN = 0.01
ROW = "first", "second", "initial", "long"
TRIAL_S, ENDS_S, RACE_S = 0.06, 15.0, 10.0
"""A trial, what a run takes besides, and a race: nothing is begun that there is no time for."""


def problems(count: int) -> list[tuple[str, str]]:
    """Return kernels and the options that name a problem, products first."""
    named = [
        ("gemm", f"m={m},n={n},k={k},layout={layout},dtype=bfloat16")
        for m, n, k in PRODUCTS
        for layout in ("nn", "nt")
    ]
    named += [(kernel, text) for kernel, texts in OTHERS.items() for text in texts]
    return named[:count]


def measure(given: argparse.Namespace) -> int:
    """Do what is left, as far as time allows; return 0 once all is done."""
    deadline = time.monotonic() + given.seconds
    devices = given.device or ["cuda:0", "cuda:1"]
    given.work.mkdir(parents=True, exist_ok=True)
    listed = problems(given.problems)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(partial(_tune_all, given, listed, deadline), (0, 1), devices))
    different = list(dict.fromkeys(devices))
    with ThreadPoolExecutor(len(different)) as pool:
        raced = pool.map(lambda device: _race_all(given, listed, device, deadline), different)
        rows_of = dict(zip(different, raced, strict=True))
    rows = [row for device in devices for row in rows_of[device]]
    text = report(rows, len(listed), given.work)
    sys.stdout.write(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "same-table-gpu.txt").write_text(text)
        (given.out / "same-table-gpu.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if len(rows) == len(listed) * len(devices) else 1


def _tune_all(
    given: argparse.Namespace, listed: Sequence[tuple[str, str]], deadline: float, turn: int, device: str
) -> None:
    """Tune every problem that this turn has no winner of; long searches are the first turn's."""
    for index, (kernel, text) in enumerate(listed):
        _tune(given.work, deadline, kernel, text, device, ROW[turn], index, SEED_OF[turn], given.trials)
    for index, (kernel, text) in enumerate(listed[:LONG]):
        if index % 2 == turn:
            _tune(given.work, deadline, kernel, text, device, "long", index, SEED_OF[turn] + 1, given.long)


def _tune(
    work: Path,
    deadline: float,
    kernel: str,
    text: str,
    device: str,
    name: str,
    index: int,
    seed: int,
    trials: int,
) -> None:
    """Tune one problem into a database of its own, unless that was done or the time is over."""
    done = work / f"{name}-{index}.json"
    if done.exists() or time.monotonic() + TRIAL_S * trials + ENDS_S > deadline:
        return
    database = work / f"{name}-{index}.db"
    for left in work.glob(f"{name}-{index}.db*"):  # of a run that was killed
        left.unlink()
    command = [
        sys.executable, "-c", "from tuner.cli import main; main()", "--kernel", kernel, "--problem", text,
        "--device", device, "--seed", str(seed), "--trials", str(trials), "--db", str(database),
        "--from-scratch", "--json", "--quiet",
    ]  # fmt: skip
    with (work / f"{name}-{index}.log").open("w") as log:
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    if ended.returncode == 0:
        with whole_file(done, replace=True) as partial_file:
            partial_file.write_text(ended.stdout)


def _race_all(
    given: argparse.Namespace, listed: Sequence[tuple[str, str]], device: str, deadline: float
) -> list[dict[str, Any]]:
    """Return the races of all problems on a device, those of before and as many as time allows."""
    rows: list[dict[str, Any]] = []
    with ExitStack() as opened:
        open_for = lru_cache(1)(partial(_opened, opened, device))
        for index, (kernel, text) in enumerate(listed):
            kept = given.work / f"race-{index}-{device.replace(':', '-').replace('/', '-')[-40:]}.json"
            if not kept.exists() and time.monotonic() + RACE_S < deadline:
                contestants = _contestants(given.work, index)
                if contestants is None:
                    continue
                try:
                    row = _race(kernel, contestants, open_for(kernel))
                except TunerError as error:
                    sys.stderr.write(f"{kernel} {text} on {device}: {error}\n")
                    continue
                with whole_file(kept, replace=True) as partial_file:
                    partial_file.write_text(
                        json.dumps({"problem": f"{kernel} {text}", "device": device, **row})
                    )
            if kept.exists():
                rows.append(json.loads(kept.read_text()))
    return rows


def _opened(opened: ExitStack, device: str, kernel: str) -> Device:
    """Return a device for a kernel's problems, which come one after the other; the one before is closed."""
    opened.close()
    return opened.enter_context(closing(open_device(device, kernel, None, paths.cubins())))


def _contestants(work: Path, index: int) -> tuple[Problem, dict[str, Trial]] | None:
    """Return what is to be raced of a problem; None where it was not tuned twice."""
    chosen: dict[str, Trial] = {}
    problem: Problem | None = None
    for name in ("first", "second", "long"):
        if not (work / f"{name}-{index}.json").exists():
            continue
        (record,) = json.loads((work / f"{name}-{index}.json").read_text())
        with Database.open(work / f"{name}-{index}.db", write=False) as database:
            stored = database.winners(Filters()).rows[-1]
            problem, chosen[name] = stored.run.problem, stored.trial
            numbers = [number for tried in record["stats"]["seeds"].values() for number in tried]
            trials = {trial.number: trial for trial in database.trials(stored.run.id)}
            started = [trials[number] for number in (0, *numbers) if trials[number].status is Status.OK]
            if name == "first" and started:
                chosen["initial"] = min(started, key=lambda trial: trial.time_ns or 0.0)
    return (problem, chosen) if problem and {"first", "second"} <= chosen.keys() else None


def _race(kernel_name: str, contestants: tuple[Problem, dict[str, Trial]], device: Device) -> dict[str, Any]:
    """Return the medians of a race of different configurations on a device, by what they are."""
    problem, chosen = contestants
    kernel = load_kernel(kernel_name)
    different: dict[Configuration, Trial] = {trial.configuration: trial for trial in chosen.values()}
    conditions, _ = device.choose_conditions(kernel, problem, None, Regime.RESTED)
    device.prepare(kernel, problem, 0, conditions)
    raced = sorted(different.values(), key=lambda trial: trial.time_ns or 0.0)
    failures: list[str] = []
    standing, failed = compete(device, raced, 0, lambda _, why: failures.append(why))
    index = {trial.configuration: i for i, trial in enumerate(raced)}
    times = {
        name: standing.time_ns(index[trial.configuration])
        for name, trial in chosen.items()
        if index[trial.configuration] in standing.groups
    }
    return {
        "same": chosen["first"].configuration == chosen["second"].configuration,
        "times_ns": times,
        "noise_floor": standing.noise_floor,
        "configurations": {name: str(trial.configuration) for name, trial in chosen.items()},
        "failed": [*failures, *(f"{len(failed)} failed" for _ in failed[:1])],
    }


def report(rows: Sequence[dict[str, Any]], count: int, work: Path) -> str:
    """Return the figures as text."""
    tuned = sum((work / f"{name}-{i}.json").exists() for name in ROW[:2] for i in range(count))
    lines = [f"{tuned} of {2 * count} runs, {len(rows)} of {2 * count} races"]
    if not rows:
        return lines[0] + "\n"
    pairs = [
        row["times_ns"]["first"] / row["times_ns"]["second"] - 1
        for row in rows
        if _has(row, "first", "second")
    ]
    by_problem = {row["problem"]: row["same"] for row in rows}
    lines += [
        f"the same configuration: {sum(by_problem.values())} of {len(by_problem)} problems "
        f"({mean(by_problem.values()):.0%}; asked for: 80 %)",
        f"winners within {WITHIN:.0%} of each other: {sum(abs(p) <= WITHIN for p in pairs)} of {len(pairs)} races "
        f"({mean(abs(p) <= WITHIN for p in pairs):.0%}; asked for: 95 %), at most {100 * max(map(abs, pairs)):.2f} %",
    ]
    for name in ("initial", "long"):
        beside = [
            row["times_ns"][name] / min(row["times_ns"][w] for w in ROW[:2]) - 1
            for row in rows
            if _has(row, name, *ROW[:2])
        ]
        if beside:
            what = "the best initial configuration" if name == "initial" else "the best of a long search"
            lines.append(
                f"{what}: {100 * mean(beside):+.2f} % against the better winner in the mean of {len(beside)} races "
                f"({100 * min(beside):+.2f} to {100 * max(beside):+.2f} %)"
            )
    lines += [
        "",
        "| problem | device | same | first, us | second, us | initial, us | long search, us |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{row['times_ns'][name] / 1e3:.2f}" if name in row["times_ns"] else "" for name in ROW]
        lines.append(
            f"| {row['problem']} | {row['device']} | {'yes' if row['same'] else 'no'} | {' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


def _has(row: dict[str, Any], *names: str) -> bool:
    return all(name in row["times_ns"] for name in names)
