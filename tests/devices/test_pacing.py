"""What a locked-in process says of its times, beside a clock outside of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.faults.fake_worker import GPU
from tuner.devices import pacing
from tuner.devices.pacing import Pacing
from tuner.runtime.launches import Buffer

TENSORS = (Buffer("x", (1 << 20,), "float32", "input"), Buffer("y", (1 << 20,), "float32", "output"))
ASKING_S = 3e-4


def paced(said_ns: float, true_ns: float, monkeypatch: pytest.MonkeyPatch, hiccups: int = 0) -> Pacing:
    """Return what was seen of a process whose calls take ``true_ns``; it makes some batches longer."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=lambda _: None)
    monkeypatch.setattr(pacing, "time", clock)
    found, turn = Pacing(said_ns), 0
    while (asked := found.next()).launches:
        clock.now += (
            ASKING_S + asked.calls * asked.launches * true_ns / 1e9 + (0.05 if turn < hiccups else 0.0)
        )
        turn += 1
    return found


@pytest.mark.parametrize("time_ns", [800.0, 1e4, 3e5, 1e7, 5e7, 1e9])
def test_right_times_pass_and_half_of_them_do_not(time_ns: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for share, hiccups, passes in (
        (1.0, 0, True),
        (1.0, 4, True),
        (0.8, 0, True),
        (0.5, 0, False),
        (0.5, 3, False),
    ):
        found = paced(share * time_ns, time_ns, monkeypatch, hiccups if time_ns < 2e7 else 0)
        error = found.objection(share * time_ns, TENSORS, GPU)
        short = time_ns < 2e4  # what lies between two calls
        assert (error == "") is (passes or short), (share, hiccups, error)
        if error:
            assert "us pass outside of its process" in error


def test_how_often_is_not_known_before_and_all_must_be_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {tuple(n for n, _ in paced(1e4, 1e4, monkeypatch)._spans) for _ in range(4)}
    assert len(asked) > 1
    found = Pacing(1e5)
    for _ in range(3):
        found.next()
    assert "not launch all" in found.objection(1e5, TENSORS, GPU)
