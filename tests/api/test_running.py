"""Threads, Ctrl-C, two calls at once, notebooks: how ``tuner.tune`` runs, and what it shows meanwhile."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.api.conftest import STENCIL, STENCIL_CALL, Tune
from tuner.api import tune as module
from tuner.core.errors import CallError
from tuner.core.observer import Observer
from tuner.tuning.state import State

MANY = {"params": {"BLOCK": list(range(32, 513, 32)), "TILE": list(range(1, 17))}, "where": (), "trials": 100}


def test_two_calls_at_once(tune: Tune) -> None:
    """In threads, with closures as references: each is asked for its own."""
    source = STENCIL.replace("stencil", "other")
    calls = [
        {**STENCIL_CALL, "reference": lambda x, n, factor=factor: factor * x, "trials": 2}
        for factor in (1.0, 2.0)
    ]
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(
            lambda pair: tune(pair[0], **pair[1]), zip((STENCIL, source), calls, strict=True)
        )
    assert one.confirmed and other.confirmed
    assert one.kernel.name == "stencil" and other.kernel.name == "other"
    assert [len(result.trials) for result in (one, other)] == [2, 2]


class Interrupting(Observer[State]):
    """Presses Ctrl-C behind the fourth trial, or another."""

    pressed = False

    def __init__(self, behind: int = 4) -> None:
        self.behind = behind

    def step(self, now: State, done: float | None = None) -> None:
        super().step(now)
        if not self.pressed and len(now.trials) >= self.behind:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_gives_the_best_so_far(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_SLEEP_S", "0.02")
    monkeypatch.setattr(module, "progress", lambda quiet: Interrupting())
    result = tune(**MANY)
    assert result.stopped and not result.confirmed
    assert 4 <= len(result.trials) < 100
    fastest = min((trial for trial in result.trials if trial["time_us"]), key=lambda trial: trial["time_us"])
    assert result.best == {name: fastest[name] for name in ("BLOCK", "TILE")}
    assert result.time_us == fastest["time_us"]
    assert "neither raced nor confirmed" in result.verdict
    assert "best yet" in str(result)
    with sqlite3.connect(tmp_path / "results" / "tuning.db") as connection:
        assert connection.execute("SELECT state FROM runs").fetchall() == [("interrupted",)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert "stopping" in capfd.readouterr().err


def test_stopped_before_the_first_result(
    tune: Tune, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Quiet, which says nothing of it."""
    monkeypatch.setenv("FAKE_SLEEP_S", "0.02")
    monkeypatch.setattr(module, "progress", lambda quiet: Interrupting(behind=0))
    result = tune(**MANY, quiet=True)
    assert result.stopped and not result.trials and "stopping" not in capfd.readouterr().err
    with pytest.raises(CallError, match=r"before the first result(?!.*\btrials\b)"):
        result.best  # noqa: B018 - it raises


def test_a_notebook_shows_one_area(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool = True) -> Any:
        shown.append(data["text/plain"])
        return SimpleNamespace(update=display)

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[arg-type]
    tune(trials=2)
    assert any("trial 2 of 2" in text for text in shown)
    assert shown[-1] == ""
    shown.clear()
    tune(trials=1, quiet=True)
    assert not shown
