"""kill -9 at random moments: no finished trial lost or doubled, no process left behind.

A few times here; ``python scripts/chaos.py`` does it a thousand times, and breaks more than processes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import killing
from tests.faults.killing import kill_tuner, kill_worker

KILLS = 2


@pytest.fixture(autouse=True)
def busy_machine(any_code: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killing, "GONE_WITHIN_S", 100.0)


def test_killed_tuner_is_resumed(tmp_path: Path) -> None:
    report = kill_tuner(KILLS, tmp_path, seed=1)
    assert report.clean, f"{report}\n{report.problems}"
    assert report.kills >= KILLS
    assert report.acknowledged > 0


def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    report = kill_worker(KILLS, tmp_path, seed=1)
    assert report.clean, f"{report}\n{report.problems}"
    assert report.kills == KILLS
    assert set(report.statuses) <= {"ok", "worker_died", "unstable"}
