"""The sections of ``scripts/chaos.py``: what each breaks, how often, and what it counts."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.containers import inside
from tests.faults.killing import TRIALS as FEW
from tests.faults.killing import (
    Report,
    Tuner,
    audit,
    go_on,
    kill_tuner,
    kill_worker,
    make_kernel,
    start_anew,
    start_fork,
    time_of_a_run,
    unfinished,
    watch_end,
)
from tuner.children.cubin_cache import CubinCache
from tuner.children.nvrtc import Cubin
from tuner.core.errors import DatabaseError
from tuner.core.model import Resources
from tuner.database.database import Database

EXIT_S = 5.0
TUNE = "tests.faults.tune_fake"


def send_signals(times: int, folder: Path, seed: int) -> Report:
    """Send INT, TERM or HUP at random moments, from the start to the confirmed winner, and resume each run."""
    report = Report("INT, TERM and HUP")
    draw = random.Random(seed)
    kernel = make_kernel(folder)
    whole_s = time_of_a_run(report, kernel, folder, start_fork)
    while report.kills < times and not report.problems:
        start = (
            start_anew if report.kills % 5 == 0 else start_fork
        )  # of an interpreter, too, and of its imports
        arguments = ("--trials", str(FEW), "--seed", str(draw.randrange(10**6)), "--db", "tuning.db")
        tuner = Tuner(kernel, folder, *arguments, start=start, module=TUNE, sleep_s=0.02)
        time.sleep(draw.uniform(0.0, whole_s))
        if tuner.process.poll() is not None:
            whole_s *= 0.9
            continue
        whole_s *= 1.02
        number = draw.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        began = time.monotonic()
        tuner.process.send_signal(number)
        try:
            code = tuner.process.wait(60.0)
        except subprocess.TimeoutExpired:
            report.problems.append(f"a tuner did not end after {number}")
            tuner.kill()
            break
        took_s = time.monotonic() - began
        report.kills += 1
        report.longest_s = max(report.longest_s, took_s)
        if took_s > EXIT_S:
            report.problems.append(f"it took {took_s:.1f} s to end after {number}")
        # -number: before the first line of ours. -SIGINT: in the import of a module, whose exec() tells Python.
        early = code in (-number, -signal.SIGINT)
        said = tuner.log.read_text()
        if not early and (code not in (0, 130) or "Traceback" in said):
            report.problems.append(f"exit status {code} after {number}: {said[-300:]}")
        tuner.log.write_text("")
        watch_end(report, tuner)
        if unfinished(folder):
            _no_attempts(report, folder)
            go_on(report, kernel, folder, start_fork)
    audit(report, folder)
    return report


def _no_attempts(report: Report, folder: Path) -> None:
    """Count attempts that a clean end has left: they would count against configurations that have done nothing."""
    with contextlib.closing(sqlite3.connect(folder / "tuning.db")) as connection:
        if left := connection.execute("SELECT count(*) FROM attempts").fetchone()[0]:
            report.problems.append(f"{left} attempts are left")


def preempt(times: int, folder: Path, seed: int) -> Report:
    """Preempt one run as often as asked, soon after each start, and let it end."""
    report = Report("preemptions in a row")
    draw = random.Random(seed)
    kernel = make_kernel(folder)
    trials = ("--trials", "60", "--db", "tuning.db")
    while report.kills < times:
        resume = ("--resume",) if unfinished(folder) else ()
        tuner = Tuner(kernel, folder, *trials, *resume, start=start_fork, module=TUNE, sleep_s=0.3)
        time.sleep(draw.uniform(0.0, 1.5))
        tuner.process.send_signal(draw.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
        began = time.monotonic()
        tuner.process.wait(60.0)
        report.longest_s = max(report.longest_s, time.monotonic() - began)
        report.kills += 1
        watch_end(report, tuner)
    if unfinished(folder):
        go_on(report, kernel, folder, start_fork)
    audit(report, folder)
    return report


def two_containers(times: int, folder: Path, seed: int) -> Report:
    """Resume a living run from another container, and after kill -9 from two at once: only one goes on."""
    report = Report("runs that two containers wanted")
    draw = random.Random(seed)
    kernel = make_kernel(folder)
    trials = ("--trials", str(FEW))

    def start(host: str, *arguments: str, sleep_s: float = 0.05) -> Tuner:
        def contained(module: str, *rest: object) -> subprocess.Popen[bytes]:
            words, run_in, environment, log = rest
            with Path(log).open("ab") as errors:  # type: ignore[arg-type]
                return subprocess.Popen(
                    [*inside(host), sys.executable, "-m", module, *words],  # type: ignore[misc]
                    cwd=run_in,  # type: ignore[call-overload]
                    env={**os.environ, **environment},  # type: ignore[dict-item]
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                )

        return Tuner(kernel, folder, *arguments, sleep_s=sleep_s, start=contained)  # type: ignore[arg-type]

    while report.kills < times and not report.problems:
        first = start("first", *trials, "--seed", str(report.kills))
        deadline = time.monotonic() + 60.0
        while not unfinished(folder) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 0.5))
        living = start("second", *trials, "--resume")
        code, alive = living.wait(), first.process.poll() is None
        if alive and (code != 1 or "still going" not in living.log.read_text()):
            report.problems.append(f"a living run was resumed elsewhere, with {code}")
        first.kill()
        watch_end(report, first)
        if unfinished(folder):
            both = [start(host, *trials, "--resume", sleep_s=0.0) for host in ("third", "fourth")]
            codes = sorted(tuner.wait() for tuner in both)
            if codes != [0, 1]:
                report.problems.append(f"two resumed at once, and ended with {codes}")
        report.kills += 1
        living.log.write_text("")
    with Database.open(folder / "tuning.db", write=False) as database:
        report.problems += database.check().problems
    audit(report, folder)
    return report


def fill_disks(times: int, folder: Path, seed: int) -> Report:
    """Tune on disks of growing size that run full, then make room and resume. Needs a mount namespace of its own."""
    report = Report("full disks")
    kernel = make_kernel(folder)
    time_of_a_run(report, kernel, folder, start_fork)  # fills the cubin cache
    disk = folder / "disk"
    disk.mkdir()
    for number in range(times):
        size_kib = 24 + 10 * number
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", disk], check=True)
        try:
            (folder / "notes").unlink(missing_ok=True)
            arguments = ("--trials", "60", "--database", str(disk / "tuning.db"))
            tuner = Tuner(kernel, folder, *arguments, start=start_fork)
            code = tuner.wait()
            said = tuner.log.read_text()
            tuner.log.write_text("")
            if code not in (0, 1) or "Traceback" in said or (code == 1 and len(said.splitlines()) != 1):
                report.problems.append(f"{size_kib} KiB: ended with {code}: {said[-300:]}")
            report.kills += code == 1
            _kept(report, disk / "tuning.db", folder / "notes")
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            if code == 1 and unfinished(disk):
                again = Tuner(kernel, folder, *arguments, "--resume", start=start_fork)
                if (code := again.wait()) != 0:
                    report.problems.append(
                        f"{size_kib} KiB: resumed, it ended with {code}: {again.log.read_text()}"
                    )
                audit_of = folder / "audit"
                audit_of.mkdir(exist_ok=True)
                shutil.copy(disk / "tuning.db", audit_of / "tuning.db")
                shutil.copy(folder / "notes", audit_of / "notes")
                one = Report("")
                audit(one, audit_of)
                report.add(one)
        finally:
            subprocess.run(["umount", disk], check=True)
    return report


def _kept(report: Report, database: Path, notes: Path) -> None:
    """Count the acknowledged trials that a database lacks."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    stored: set[tuple[str, int]] = set()
    if lines:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            stored = set(connection.execute("SELECT run_id, number FROM trials").fetchall())
    report.missing += sum((run, int(number)) not in stored for run, number, *_ in lines)


def spoil_files(times: int, folder: Path, seed: int) -> Report:
    """Cut off, overwrite, exchange and delete the database while a tuner works; success must mean that it is kept."""
    report = Report("files spoiled while open")
    draw = random.Random(seed)
    kernel = make_kernel(folder)
    time_of_a_run(report, kernel, folder, start_fork)
    noticed = 0
    for number in range(times):
        database, notes = folder / f"{number}.db", folder / "notes"
        notes.unlink(missing_ok=True)
        arguments = ("--trials", str(FEW), "--seed", str(number), "--database", str(database))
        tuner = Tuner(kernel, folder, *arguments, start=start_fork, sleep_s=0.03)
        wanted = draw.randrange(1, FEW - 4)
        while tuner.process.poll() is None and (
            not notes.exists() or len(notes.read_text().splitlines()) < wanted
        ):
            time.sleep(0.005)
        _spoil(draw, database, folder)
        code = tuner.wait()
        said = tuner.log.read_text()
        tuner.log.write_text("")
        report.kills += 1
        noticed += code == 1
        if code not in (0, 1) or "Traceback" in said:
            report.problems.append(f"ended with {code}: {said[-300:]}")
        if code == 0:
            try:
                with Database.open(database, write=False, create=False) as opened:
                    intact = {
                        (t.run.id, t.trial.number) for r in opened.run_ids() for t in _stored(opened, r)
                    }
            except DatabaseError as error:
                intact = set()
                report.problems.append(f"it says that all is well, and: {error}")
            lines = [line.split() for line in notes.read_text().splitlines()]
            report.missing += sum((run, int(n)) not in intact for run, n, *_ in lines)
        watch_end(report, tuner)
    report.outcomes = {"noticed": noticed, "without consequence": times - noticed}
    return report


def _stored(database: Database, run: str) -> list:  # type: ignore[type-arg]
    class _Row:
        def __init__(self, trial: object) -> None:
            self.run, self.trial = database.run(run), trial

    return [_Row(trial) for trial in database.trials(run)]


def _spoil(draw: random.Random, database: Path, folder: Path) -> None:
    how = draw.choice(("cut", "empty", "range", "all", "exchange", "copy", "delete"))
    size = database.stat().st_size
    if how in ("exchange", "copy"):
        other = folder / "other.db"
        Database.open(other).close()
        if how == "exchange":
            other.replace(database)
        else:
            database.write_bytes(other.read_bytes())
        return
    if how == "delete":
        database.unlink()
        return
    with database.open("r+b") as file:
        match how:
            case "cut":
                file.truncate(draw.randrange(size))
            case "empty":
                file.truncate(0)
            case "all":
                file.write(draw.randbytes(size))
            case "range":
                file.seek(draw.randrange(size))
                file.write(draw.randbytes(draw.choice((512, 4096, 20_000))))


def kill_cache_writers(times: int, folder: Path, seed: int) -> Report:
    """Kill processes that write cubins; the next start must remove what they left."""
    report = Report("kill -9 of a process that writes the cubin cache")
    draw = random.Random(seed)
    cache = CubinCache(folder / "kernel-tune" / "cubins")
    cubin = Cubin(bytes(2_000_000), "scale", Resources(), "")
    cache.put("0" * 64, cubin)
    left = 0
    for _ in range(times):
        if (pid := os.fork()) == 0:
            while True:
                cache.put("0" * 64, cubin)
        time.sleep(draw.uniform(0.0, 0.05))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        report.kills += 1
        left += len(list(cache.folder.glob(".new-*")))
        CubinCache(cache.folder).sweep()
        remain = [path for path in cache.folder.rglob("*") if path.name.startswith(".new-")]
        report.left_behind += len(remain)
    if cache.get("0" * 64) is None:
        report.problems.append("the entry is damaged")
    report.outcomes = {"files left until the next start": left}
    return report


@dataclass(frozen=True)
class Section:
    """One way of breaking the tuner.

    Attributes:
        run: breaks it so often, in a folder, with a seed; returns the report.
        times: how often.
        parallel: whether several processes can share the work.
        around: a command that the section must be run by.
    """

    run: Callable[[int, Path, int], Report]
    times: int
    parallel: bool = True
    around: tuple[str, ...] = ()


SECTIONS: Mapping[str, Section] = {
    "signals": Section(send_signals, 200),
    "preemptions": Section(preempt, 50, parallel=False),
    "containers": Section(two_containers, 20),
    "disk": Section(fill_disks, 20, False, ("unshare", "--user", "--map-root-user", "--mount")),
    "files": Section(spoil_files, 200),
    "cache": Section(kill_cache_writers, 200),
    "head": Section(partial(kill_tuner, start=start_fork), 1000),
    "worker": Section(partial(kill_worker, start=start_fork), 1000),
}
