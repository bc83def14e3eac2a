"""A signal ends a run within seconds, whatever it waits for, and leaves a run that goes on where it stopped."""

from __future__ import annotations

import os
import pty
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.command_line import ROOT, Fake, assert_no_process_left, attempts_in, trials_in
from tests.faults.kernels import write_kernel
from tests.fork_server import ForkedPopen
from tuner.database.database import Database
from tuner.tuning.loop import MAX_ATTEMPTS

pytestmark = pytest.mark.usefixtures("any_code")
WITHIN_S = 50.0
"""For a machine that stands still for half a minute; ``scripts/chaos.py signals`` holds it to the 5 s promised."""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "own", items=range(1, 30))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results" / "tuning.db"


def command(kernel: Path) -> list[str]:
    return ["--kernel", str(kernel), "--trials", "8"]


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Lock a database as another writer does."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=60)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.parametrize(("step", "settings"), [("start", "FAKE_START"), ("setup", "FAKE_SETUP")])
def test_while_the_gpu_is_made_ready(tmp_path: Path, kernel: Path, step: str, settings: str) -> None:
    log = tmp_path / "log"
    log.touch()
    hanging = {settings: "hang", "FAKE_LOG": str(log), "FAKE_PATIENCE_S": "0.3"}
    fake = Fake(tmp_path, *command(kernel), **hanging)
    deadline = time.monotonic() + 100.0
    while step not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    fake.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    said = fake.ends()
    assert time.monotonic() - began < WITHIN_S
    assert said.code == 130
    assert "Traceback" not in said.err
    assert_no_process_left(fake.mark)


def test_while_a_slow_reference_holds_up_the_confirmation(
    tmp_path: Path, kernel: Path, database: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    slow = {"FAKE_SETUP": "hang 1", "FAKE_LOG": str(log), "FAKE_PATIENCE_S": "0.3"}
    fake = Fake(tmp_path, *command(kernel), sleep_s=0.0, **slow)
    deadline = time.monotonic() + 100.0
    while "setup 1" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    fake.process.send_signal(signal.SIGTERM)
    said = fake.ends(WITHIN_S)
    assert said.code == 130 and "best" in said.out and "all of them are kept" in said.err, said
    assert_no_process_left(fake.mark)
    again = Fake(tmp_path, *command(kernel), "--resume", sleep_s=0.0).ends()
    assert again.code == 0 and trials_in(database) == 8, again.err


def test_while_another_program_locks_the_database(tmp_path: Path, kernel: Path, database: Path) -> None:
    fake = Fake(tmp_path, *command(kernel), sleep_s=0.5)
    fake.wait_for_trials(database, 1)
    with locked(database):
        time.sleep(0.3)
        fake.interrupt()
        time.sleep(0.2)
        fake.interrupt()
        began = time.monotonic()
        said = fake.ends()
        assert time.monotonic() - began < WITHIN_S
    assert "Traceback" not in said.err
    assert said.code in (1, 130)
    again = Fake(tmp_path, *command(kernel), "--resume", sleep_s=0.0).ends()
    assert again.code == 0, again.err
    assert trials_in(database) == 8


def test_a_closed_terminal(tmp_path: Path, kernel: Path, database: Path) -> None:
    """Its last program gets SIGHUP, and cannot print any more."""
    ours, theirs = pty.openpty()
    program = "import os; os.close(os.open(os.ttyname(0), os.O_RDWR))  # it becomes its terminal\n"
    program += "from tests.faults.tune_fake import run; run()"
    process = ForkedPopen(
        [sys.executable, "-c", program, *command(kernel), "-j", "2", "--sampler", "random"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "FAKE_SLEEP_S": "0.5",
        },
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    deadline = time.monotonic() + 100.0
    while not trials_in(database) and time.monotonic() < deadline:
        time.sleep(0.01)
        with suppress(BlockingIOError):
            os.read(ours, 1 << 16)
    os.close(ours)
    assert process.wait(WITHIN_S) == 130
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT state FROM runs").fetchall() == [("interrupted",)]
    assert attempts_in(database) == 0


def test_nohup_goes_on(tmp_path: Path, kernel: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"  # what nohup does
    fake = Fake(tmp_path, *command(kernel), first=ignoring, sleep_s=0.01)
    fake.wait_for_trials(tmp_path / "results" / "tuning.db", 3)
    fake.process.send_signal(signal.SIGHUP)
    said = fake.ends()
    assert said.code == 0, said.err


def test_preempted_more_often_than_a_configuration_may_kill(
    tmp_path: Path, kernel: Path, database: Path
) -> None:
    for number in range(MAX_ATTEMPTS):
        resume = ("--resume",) if number else ()
        fake = Fake(tmp_path, *command(kernel), *resume, sleep_s=0.5)
        deadline = time.monotonic() + 100.0
        while not attempts_in(database) and time.monotonic() < deadline:
            time.sleep(0.01)
        fake.process.send_signal((signal.SIGHUP, signal.SIGTERM, signal.SIGINT)[number % 3])
        assert fake.ends(WITHIN_S).code == 130
        assert attempts_in(database) == 0, "they would count against configurations that have done nothing"
    said = Fake(tmp_path, *command(kernel), "--resume", sleep_s=0.0).ends()
    assert said.code == 0, said.err
    with Database.open(database, write=False) as opened:
        (run,) = opened.run_ids()
        trials = opened.trials(run)
    assert len(trials) == 8
    assert "crashed" not in {str(trial.status) for trial in trials}
