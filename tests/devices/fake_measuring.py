"""What a measuring process without a GPU (:mod:`tests.faults.fake_worker`) has done, read from its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.devices import guard


def log_into(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fake measuring processes write into a folder, and let the guard wait only shortly for one that is ended."""
    monkeypatch.setattr(guard, "GRACE_S", 0.2)
    monkeypatch.setenv("FAKE_LOG", str(folder / "log"))
    (folder / "once").mkdir()
    monkeypatch.setenv("FAKE_ONCE", str(folder / "once"))


def log(folder: Path) -> list[str]:
    """Return what was done, in order."""
    return [line.partition(" ")[2] for line in (folder / "log").read_text().splitlines()]


def starts(folder: Path) -> list[int]:
    """Return the process ids of those that started."""
    lines = (folder / "log").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.endswith(" start")]


def limit_the_first_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the guard wait only shortly until a process begins, and for the next one as long as it takes."""

    def wait() -> None:
        wait_until(lambda: len(starts(folder)) > count)
        monkeypatch.setattr(guard, "START_S", 100.0)

    count = len(starts(folder))
    monkeypatch.setattr(guard, "START_S", 0.7)
    threading.Thread(target=wait, daemon=True).start()


def wait_until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done()
