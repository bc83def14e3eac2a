"""``tune`` on the fake device, in a process of its own."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.commands import Said
from tests.faults.killing import marked
from tests.faults.processes import alive
from tests.fork_server import MARK, ForkedPopen

ROOT = Path(__file__).resolve().parents[2]
MODULE = "tests.faults.tune_fake"
ALWAYS = ("-j", "1", "--sampler", "random")


class Fake:
    """A tuner, whose descendants can be told by a mark in their environment.

    Args:
        folder: where it runs.
        arguments: its command line.
        sleep_s: how long a measurement takes.
        first: a Python statement that it begins with.
        settings: of the fake device: see ``tests.faults.fake_worker``.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        sleep_s: float = 0.05,
        first: str = "",
        **settings: str,
    ) -> None:
        self.mark = uuid.uuid4().hex
        environment = {
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(folder.parent / "cache"),
            "FAKE_SLEEP_S": str(sleep_s),
            **settings,
        }
        program = (
            ["-c", f"{first}\nfrom tests.faults.tune_fake import run; run()"] if first else ["-m", MODULE]
        )
        self.process = ForkedPopen(
            [sys.executable, *program, *arguments, *ALWAYS],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ends(self, timeout_s: float = 120.0) -> Said:
        out, err = self.process.communicate(timeout=timeout_s)
        return Said(self.process.returncode, out, err)

    def wait_for_trials(self, database: Path, count: int) -> None:
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                pytest.fail(f"it ended: {self.ends()}")
            if database.is_file() and trials_in(database) >= count:
                return
            time.sleep(0.02)
        pytest.fail("no trials")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


def runs_in(database: Path) -> int:
    return _rows_in(database, "runs")


def trials_in(database: Path) -> int:
    return _rows_in(database, "trials")


def attempts_in(database: Path) -> int:
    return _rows_in(database, "attempts")


def _rows_in(database: Path, table: str) -> int:
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)
        try:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.OperationalError:  # it is not made yet
        return 0


def assert_no_process_left(mark: str) -> None:
    deadline = time.monotonic() + 60.0
    while (left := [pid for pid in marked(mark) if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left
