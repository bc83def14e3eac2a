"""``tune`` on the fake device, in a process of its own."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.commands import Said
from tests.faults.killing import marked
from tests.faults.processes import alive
from tests.fork_server import MARK, ForkedPopen

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = ("-j", "1", "--sampler", "random")


class Fake:
    """A tuner, whose descendants can be told by a mark in their environment.

    Args:
        folder: where it runs.
        arguments: its command line.
        sleep_s: how long a measurement takes.
        before: a command that runs it.
        settings: of the fake device: see ``tests.faults.fake_worker``.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        sleep_s: float = 0.05,
        before: Sequence[str] = (),
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
        self.process = ForkedPopen(
            [*before, sys.executable, "-m", "tests.faults.tune_fake", *arguments, *ALWAYS],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ends(self, timeout_s: float = 60.0) -> Said:
        out, err = self.process.communicate(timeout=timeout_s)
        return Said(self.process.returncode, out, err)

    def wait_for_trials(self, database: Path, count: int) -> None:
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                pytest.fail(f"it ended: {self.ends()}")
            if database.is_file() and trials_in(database) >= count:
                return
            time.sleep(0.05)
        pytest.fail("no trials")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


def trials_in(database: Path) -> int:
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
        try:
            return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return 0


def assert_no_process_left(mark: str) -> None:
    deadline = time.monotonic() + 5.0
    while (left := [pid for pid in marked(mark) if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
