"""Kills tuners and measuring processes at random moments, and counts what became of their trials."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests import fork_server
from tests.faults.kernels import write_kernel
from tests.fork_server import MARK

ROOT = Path(__file__).resolve().parents[2]
GONE_WITHIN_S = 5.0
TRIALS = 16


@dataclass
class Report:
    """What a series of kills did."""

    what: str
    kills: int = 0
    trials: int = 0
    acknowledged: int = 0
    missing: int = 0
    doubled: int = 0
    left_behind: int = 0
    slowest_end_s: float = 0.0
    longest_s: float = 0.0
    """From a signal to the end of the tuner."""
    statuses: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    """Of what was done to the tuner, where they differ."""
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [
            f"{self.kills} {self.what}",
            *(f"{n} {outcome}" for outcome, n in sorted(self.outcomes.items())),
        ]
        if self.trials:
            statuses = ", ".join(f"{count} {status}" for status, count in sorted(self.statuses.items()))
            parts.append(f"{self.trials} trials ({statuses})")
        if self.acknowledged:
            parts.append(f"{self.acknowledged} acknowledged")
        parts += [f"{self.missing} lost", f"{self.doubled} doubled"]
        if self.longest_s:
            parts.append(f"the longest end took {self.longest_s:.1f} s")
        alive = f"{self.left_behind} left behind"
        if self.slowest_end_s:
            alive += f" {GONE_WITHIN_S:g} s later (the last was gone after {self.slowest_end_s:.2f} s)"
        return ", ".join([*parts, alive])

    def add(self, other: Report) -> Report:
        """Return this with another one of the same kind."""
        for name in ("kills", "trials", "acknowledged", "missing", "doubled", "left_behind"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest_end_s = max(self.slowest_end_s, other.slowest_end_s)
        self.longest_s = max(self.longest_s, other.longest_s)
        for mine, theirs in ((self.statuses, other.statuses), (self.outcomes, other.outcomes)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        self.problems += other.problems
        return self

    @property
    def clean(self) -> bool:
        crashed = self.statuses.get("crashed", 0)
        return not (self.missing or self.doubled or self.left_behind or self.problems or crashed)


class Process(Protocol):
    """As much of ``subprocess.Popen`` as is needed."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


Start = Callable[[str, Sequence[str], Path, Mapping[str, str], Path], Process]
"""Starts a module: its arguments, the folder it runs in, what its environment has besides, and where its errors go."""


def start_anew(
    module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Process:
    """Start an interpreter, as a user does."""
    return _start(subprocess.Popen, module, arguments, folder, environment, log)


def start_fork(
    module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Process:
    """Fork a process that has imported everything."""
    return _start(fork_server.ForkedPopen, module, arguments, folder, environment, log)


def _start(
    kind: type[subprocess.Popen[Any]],
    module: str,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
) -> Process:
    with log.open("ab") as errors:
        return kind(
            [sys.executable, "-m", module, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


class Tuner:
    """One tuner in a process of its own, whose descendants can be told by a mark in their environment."""

    def __init__(
        self,
        kernel: Path,
        folder: Path,
        *arguments: str,
        sleep_s: float = 0.004,
        start: Start = start_fork,
        module: str = "tests.faults.drive",
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.log = folder / "stderr"
        environment = {MARK: self.mark, "FAKE_SLEEP_S": str(sleep_s), "PYTHONPATH": str(ROOT)}
        first = [str(kernel), str(folder)]
        if module == "tests.faults.tune_fake":
            environment["XDG_CACHE_HOME"] = str(folder)
            first = ["--kernel", str(kernel), "-j", "1", "--sampler", "random", "--from-scratch"]
        self.process = start(module, [*first, *arguments], folder, environment, self.log)

    def wait(self, timeout_s: float = 120.0) -> int:
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def descendants(self) -> list[int]:
        """Return the processes that bear the mark, the tuner itself left out."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def workers(self) -> list[int]:
        return [pid for pid in self.descendants() if b"fake_worker" in _read(pid, "cmdline")]

    def gone_after_s(self) -> float | None:
        """Wait until every descendant has ended, and give how long that took; None when some never did."""
        began = time.monotonic()
        while self.descendants():
            if time.monotonic() - began > GONE_WITHIN_S:
                return None
            time.sleep(0.02)
        return time.monotonic() - began


def marked(mark: str) -> list[int]:
    """Return the living processes with this mark in their environment."""
    needle = f"{MARK}={mark}".encode()
    return [
        int(p.name)
        for p in Path("/proc").iterdir()
        if p.name.isdigit() and needle in _read(int(p.name), "environ")
    ]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()  # empty for a zombie
    except OSError:
        return b""


def kill_tuner(times: int, folder: Path, seed: int = 0, start: Start = start_fork) -> Report:
    """Kill tuners at random moments, twice each run, and resume them until they end."""
    report = Report("kill -9 of the tuner")
    draw = random.Random(seed)
    kernel = make_kernel(folder)
    whole_s = time_of_a_run(report, kernel, folder, start)
    runs = 0
    while report.kills < times and not report.problems:
        runs += 1
        resume: tuple[str, ...] = ()
        for _ in range(2):  # a configuration that was begun a third time would be held responsible
            tuner = Tuner(kernel, folder, "--trials", str(TRIALS), "--seed", str(runs), *resume, start=start)
            time.sleep(draw.uniform(0.0, whole_s))
            finished = tuner.process.poll() is not None
            tuner.kill()
            # The machine may be busier now, or less: nearly all moments are to lie within a run.
            whole_s *= 0.9 if finished else 1.02
            if finished:
                break  # too late for this moment; it was no kill
            report.kills += 1
            watch_end(report, tuner)
            if not unfinished(folder):
                break
            resume = ("--resume",)
        if unfinished(folder):
            go_on(report, kernel, folder, start)
    audit(report, folder)
    return report


def kill_worker(times: int, folder: Path, seed: int = 0, start: Start = start_fork) -> Report:
    """Kill the measuring process of running tuners at random moments."""
    report = Report("kill -9 of the measuring process")
    draw = random.Random(seed)
    kernel = make_kernel(folder)
    time_of_a_run(report, kernel, folder, start)
    runs = 0
    while report.kills < times and not report.problems:
        runs += 1
        tuner = Tuner(kernel, folder, "--trials", str(TRIALS), "--seed", str(runs), sleep_s=0.06, start=start)
        deadline = time.monotonic() + 120.0
        while tuner.process.poll() is None and time.monotonic() < deadline:
            time.sleep(draw.uniform(0.2, 1.0))
            if report.kills < times and (workers := tuner.workers()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    report.kills += 1
        if (code := tuner.wait()) not in (0, 1):
            report.problems.append(f"a tuner ended with {code}: {tuner.log.read_text()[-300:]}")
        watch_end(report, tuner)
        if unfinished(folder):  # three processes killed while they started: the device was given up
            go_on(report, kernel, folder, start)
    audit(report, folder)
    return report


def go_on(report: Report, kernel: Path, folder: Path, start: Start = start_fork) -> None:
    """Resume the run that is left, and let it end."""
    tuner = Tuner(kernel, folder, "--trials", str(TRIALS), "--resume", start=start)
    if (code := tuner.wait()) != 0:
        report.problems.append(f"the resumed run ended with {code}: {tuner.log.read_text()[-300:]}")
    watch_end(report, tuner)


def make_kernel(folder: Path) -> Path:
    return write_kernel(
        folder, faults=("ok",), blocks=(32, 64, 96, 128, 160, 192, 224, 256), items=range(1, 9)
    )


def time_of_a_run(report: Report, kernel: Path, folder: Path, start: Start) -> float:
    """Return how many seconds an unbroken run takes; another one before it fills the cache."""
    began = 0.0
    for seed in (10**6, 10**6 + 1):
        began = time.monotonic()
        tuner = Tuner(kernel, folder, "--trials", str(TRIALS), "--seed", str(seed), start=start)
        if (code := tuner.wait()) != 0:
            report.problems.append(f"the unbroken run ended with {code}: {tuner.log.read_text()[-300:]}")
    return time.monotonic() - began


def watch_end(report: Report, tuner: Tuner) -> None:
    took_s = tuner.gone_after_s()
    if took_s is None:
        left = tuner.descendants()
        report.left_behind += len(left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    else:
        report.slowest_end_s = max(report.slowest_end_s, took_s)


def unfinished(folder: Path) -> bool:
    """Return whether a run is left that did not finish."""
    if not (folder / "tuning.db").is_file() or not (folder / "tuning.db").stat().st_size:
        return False
    with contextlib.closing(sqlite3.connect(folder / "tuning.db")) as connection:
        return bool(connection.execute("SELECT count(*) FROM runs WHERE state != 'finished'").fetchone()[0])


def audit(report: Report, folder: Path) -> None:
    """Compare what was acknowledged with what the database holds."""
    with contextlib.closing(sqlite3.connect(folder / "tuning.db")) as connection:
        rows = connection.execute(
            "SELECT run_id, number, status, time_ns, variant, configuration FROM trials"
        ).fetchall()
        runs = connection.execute("SELECT id, state, trials_requested FROM runs").fetchall()
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
    stored = {(run, number): (status, str(time_ns)) for run, number, status, time_ns, _, _ in rows}
    report.trials = len(rows)
    for _, _, status, *_ in rows:
        report.statuses[status] = report.statuses.get(status, 0) + 1
    report.doubled += len(rows) - len({(run, number) for run, number, *_ in rows})
    report.doubled += len(rows) - len({(run, variant, text) for run, _, _, _, variant, text in rows})
    lines = [line.split() for line in (folder / "notes").read_text().splitlines()]
    report.acknowledged = len(lines)
    for run, number, status, time_ns in lines:
        # A finalist that could not be confirmed is marked so afterwards; it keeps its time.
        kept = stored.get((run, int(number)))
        report.missing += kept not in ((status, time_ns), ("unstable", time_ns))
    if sound != "ok":
        report.problems.append(f"integrity_check: {sound}")
    for run, state, wanted in runs:
        count = sum(r == run for r, *_ in rows)
        if state != "finished" or count != wanted:
            report.problems.append(f"run {run} is {state} with {count} of {wanted} trials")
