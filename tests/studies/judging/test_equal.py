"""Equal kernels have no winner, however often they are judged; kernels that differ beyond the noise have one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faults.bench_device import GPU
from tuner.core.conditions import Calibration, Conditions
from tuner.devices.base import Contestant, Timed
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import roof_of
from tuner.studies.interleaved import Comparison
from tuner.studies.judging.judge import INCUMBENT, ROUNDS
from tuner.studies.judging.speed import through, versus
from tuner.studies.judging.verdict import Judged, ModeTimes, Speed, Versus, judged_for, overall

KERNEL = load_kernel("vector_add")
CALIBRATION = Calibration({"cold, rested": 0.002})


def speed(
    draw: np.random.Generator, time_ns: float, noise: float, offset: float, slower: float
) -> Speed | None:
    """Return the speed of two kernels of which the other is slower, in rounds that drift by up to a fifth.

    Args:
        draw: draws times.
        time_ns: of both.
        noise: of a group's median, as a share.
        offset: what a module's place adds to all rounds or takes away, at most, in nanoseconds.
        slower: by which share the other is.
    """
    drift = 1.0 + 0.2 * draw.random(ROUNDS)
    own, other = (
        (time_ns * factor + draw.uniform(-offset, offset)) * drift * (1 + draw.normal(0.0, noise, ROUNDS))
        for factor in (1.0, 1.0 + slower)
    )
    timings = [
        Timed(Contestant(None, name=name), [[time] for time in times])
        for name, times in (("candidate", own), ("other", other))
    ]
    problem = KERNEL.problem()
    where = KERNEL, problem, GPU, Conditions(), roof_of(KERNEL, problem, GPU), CALIBRATION
    return versus(Comparison(*where, tuple(timings)), *timings).verdict


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Contestant, "text", property(lambda self: self.name))


@pytest.mark.parametrize("time_ns", [4e3, 4e5])
def test_no_equal_pair_has_a_winner(time_ns: float) -> None:
    draw = np.random.default_rng(0)
    found = [speed(draw, time_ns, 0.004, 40.0, 0.0) for _ in range(500)]
    assert {Speed.FASTER, Speed.SLOWER} & set(found) == set()


def test_a_gain_beyond_the_noise_is_seen_and_a_smaller_one_is_not() -> None:
    draw = np.random.default_rng(0)
    assert {speed(draw, 4e4, 0.004, 0.0, 0.02) for _ in range(100)} == {Speed.FASTER}
    assert Speed.FASTER not in {speed(draw, 4e4, 0.004, 0.0, 0.001) for _ in range(100)}
    assert Speed.FASTER not in {speed(draw, 2e3, 0.001, 0.0, 0.03) for _ in range(100)}, "60 ns of 2 us"


def test_several_baselines() -> None:
    faster, tied, slower, unknown = Speed.FASTER, Speed.TIED, Speed.SLOWER, Speed.AMBIGUOUS
    assert overall([faster, faster]) is faster
    assert overall([faster, tied]) is tied and overall([faster, unknown, tied]) is unknown
    assert overall([faster, unknown, slower]) is slower and overall([]) is None


def test_reasons_are_wrong_or_refused_or_say_nothing() -> None:
    assert judged_for("") is Judged.RIGHT
    assert judged_for("wrong_at_other_size") is judged_for("wrong_result") is Judged.WRONG
    assert judged_for("repeats") is judged_for("too_slow") is judged_for("unreadable") is Judged.REFUSED
    assert judged_for("unverified") is judged_for("failed") is Judged.FAILED


def raced(time_ns: float, baseline_ns: float | None) -> ModeTimes:
    """Return times within a per cent, beside a baseline's."""
    speedup = 1.0 if baseline_ns is None else baseline_ns / time_ns
    beside = [Versus("torch", "torch.add", baseline_ns, speedup, 0.99 * speedup, 1.01 * speedup)]
    beside.append(Versus(INCUMBENT, "an earlier one", 1.0, 100.0, 99.0, 101.0))
    floor = 0.005
    return ModeTimes(
        "cold", "rested", time_ns, 0.995 * time_ns, 1.005 * time_ns, floor, None,
        tuple(one for one in beside if one.baseline == INCUMBENT or baseline_ns is not None),
    )  # fmt: skip


@pytest.mark.parametrize("drift", [1.0, 1.3])
@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (0.8, Speed.SLOWER),
        (1.0, Speed.TIED),
        (1.05, Speed.AMBIGUOUS),
        (1.07, Speed.AMBIGUOUS),
        (1.2, Speed.FASTER),
    ],
)
def test_in_two_processes_what_both_were_raced_with_tells(drift: float, gain: float, expected: Speed) -> None:
    """A card that is slower now is so for both; less than processes differ by is no gain."""
    found = through(raced(1e5 * drift / gain, 3e5 * drift), raced(1e5, 3e5), INCUMBENT, "a.py")
    assert (found.verdict, found.baseline) == (expected, INCUMBENT)
    assert found.speedup == pytest.approx(gain) and "process of its own" in found.what


def test_in_two_processes_without_a_baseline_times_tell() -> None:
    found = through(raced(1e5 / 1.2, None), raced(1e5, None), INCUMBENT, "a.py")
    assert found.verdict is Speed.FASTER and found.speedup == pytest.approx(1.2)
