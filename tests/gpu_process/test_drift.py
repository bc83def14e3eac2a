"""The watch over the GPU, with a reference kernel and a clock that follow a script."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tuner.children.measuring import DRIFT, PROBED
from tuner.gpu import drift
from tuner.gpu.drift import AGAIN_S, EVERY_S, DriftWatch

NS = 150_000.0
GONE = 1.0 + DRIFT + 0.005
"""Enough to be noticed."""


class Scripted:
    """A reference kernel that takes one scripted time after the other, as multiples of :data:`NS`."""

    def __init__(self, times: Sequence[float]) -> None:
        self.left = [1.0, *times]
        self.now = 0.0
        self.slept: list[float] = []

    def time_ns(self) -> float:
        return NS * self.left.pop(0)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    def clock(times: Sequence[float]) -> Scripted:
        scripted = Scripted(times)
        monkeypatch.setattr(drift, "time", scripted)
        return scripted

    return clock  # type: ignore[return-value]


def probes(watch: DriftWatch, candidates: int) -> list[bool]:
    return [watch.probe() for _ in range(candidates)]


QUIET = [False] * (PROBED - 1)


def test_it_probes_every_sixteen_candidates(watched: type[Scripted]) -> None:
    reference = watched([1.0, 1.0])
    watch = DriftWatch(reference)  # type: ignore[arg-type]
    assert watch.reference_ns == NS
    for left in (2, 1):
        assert probes(watch, PROBED - 1) == QUIET
        assert len(reference.left) == left  # not yet
        assert watch.probe() is False
        assert len(reference.left) == left - 1
    assert reference.slept == []


def test_it_probes_after_thirty_seconds(watched: type[Scripted]) -> None:
    reference = watched([1.0, 1.0])
    watch = DriftWatch(reference)  # type: ignore[arg-type]
    for seconds, left in ((EVERY_S - 1, 2), (1, 1), (EVERY_S - 1, 1), (1, 0)):
        reference.now += seconds
        watch.probe()
        assert len(reference.left) == left


def test_one_odd_probe_alone_counts_for_nothing(watched: type[Scripted]) -> None:
    reference = watched([GONE, 1.0, 1.0])
    watch = DriftWatch(reference)  # type: ignore[arg-type]
    assert probes(watch, PROBED) == [*QUIET, False]
    assert reference.slept == [AGAIN_S]
    assert watch.reference_ns == NS
    assert probes(watch, PROBED) == [*QUIET, False]


@pytest.mark.parametrize("level", [GONE, 2.0 - GONE, 3.0])
def test_what_is_seen_twice_is_drift_and_the_new_level(watched: type[Scripted], level: float) -> None:
    reference = watched([1.5, level, level, level])
    watch = DriftWatch(reference)  # type: ignore[arg-type]
    assert probes(watch, PROBED) == [*QUIET, True]
    assert reference.slept == [AGAIN_S]
    assert watch.reference_ns == pytest.approx(level * NS)
    assert probes(watch, 2 * PROBED) == [*QUIET, False] * 2  # reported once


def test_creeping_adds_up(watched: type[Scripted]) -> None:
    """What is within the tolerance moves nothing: many small steps must not go unseen."""
    steps = [1.0 + 0.4 * DRIFT * i for i in range(1, 4)]
    reference = watched([*steps, steps[-1]])
    watch = DriftWatch(reference)  # type: ignore[arg-type]
    assert probes(watch, 3 * PROBED) == [*QUIET, False, *QUIET, False, *QUIET, True]


@pytest.mark.parametrize(("level", "drifted"), [(GONE, True), (1.0, False)])
def test_what_drifts_while_a_process_is_replaced_shows_with_the_first_candidate(
    watched: type[Scripted], level: float, drifted: bool
) -> None:
    reference = watched([level, level])
    watch = DriftWatch(reference, reference.time_ns())  # type: ignore[arg-type]
    assert watch.probe() is drifted
    assert probes(watch, PROBED - 1) == QUIET


def test_each_probe_starts_both_counts_again(watched: type[Scripted]) -> None:
    reference = watched([1.0])
    watch = DriftWatch(reference)  # type: ignore[arg-type]
    probes(watch, PROBED - 2)
    reference.now += EVERY_S
    watch.probe()
    assert reference.left == []
    probes(watch, PROBED - 1)  # a reference that has no time left would raise


def test_coming_back_is_drift_too(watched: type[Scripted]) -> None:
    watch = DriftWatch(watched([GONE, GONE, 1.0, 1.0]))  # type: ignore[arg-type]
    assert probes(watch, 2 * PROBED) == [*QUIET, True] * 2
    assert watch.reference_ns == NS
