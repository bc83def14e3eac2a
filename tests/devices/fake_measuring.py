"""What a measuring process without a GPU (:mod:`tests.faults.fake_worker`) has done, read from its log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.core.processes import Child
from tuner.devices import guard


def log_into(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fake measuring processes write into a folder, and let the guard wait only shortly for one that is ended."""
    monkeypatch.setattr(guard, "GRACE_S", 0.2)
    monkeypatch.setenv("FAKE_LOG", str(folder / "log"))
    (folder / "once").mkdir()
    monkeypatch.setenv("FAKE_ONCE", str(folder / "once"))


def log(folder: Path) -> list[str]:
    """Return what was done, in order."""
    return [line.partition(" ")[2] for line in _lines(folder)]


def starts(folder: Path) -> list[int]:
    """Return the process ids of those that started."""
    return [int(line.split()[0]) for line in _lines(folder) if line.endswith(" start")]


def _lines(folder: Path) -> list[str]:
    file = folder / "log"
    return file.read_text().splitlines() if file.exists() else []  # none may have come so far


def limit_the_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the guard wait only shortly until a process begins, and for the next one as long as it takes."""

    def start(*arguments: Any) -> Child[Any, Any]:
        monkeypatch.setattr(guard, "START_S", 100.0)
        return Child(*arguments)

    monkeypatch.setattr(guard, "START_S", 0.7)
    monkeypatch.setattr(guard, "Child", start)


def wait_until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done()
