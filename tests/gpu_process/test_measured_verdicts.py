"""What is said of a candidate beside its time: wrong, unverified, too fast, leaning on earlier launches."""

from __future__ import annotations

import pytest

from tests.gpu_process.scripted_session import (
    GROUP,
    RIGHT,
    UNKNOWN,
    US,
    WRONG,
    Bench,
    Kernel,
    Measured,
    noisy,
    steady,
)
from tuner.core.model import Status, Verification
from tuner.gpu.timing import ClockMismatchError

# -- what is fast only where launches repeat


@pytest.mark.parametrize(
    ("leans_on", "named"),
    [(32, "its outputs"), ("shared", "shared memory"), (64, "scratch sums"), (128, "scratch keep")],
)
def test_what_leans_on_earlier_launches_is_not_ranked(
    measured: Measured, leans_on: object, named: str
) -> None:
    found = measured(Bench(steady(100 * US), leans_on=leans_on), 101 * US)
    assert found.status is Status.REPEATS and not found.status.ranked
    assert f"left in {named}: it takes 100 us there, and 1e+03 us" in found.error


@pytest.mark.parametrize("calls", [1, 100])
def test_what_leans_on_earlier_launches_only_after_many_is_compared_with_its_own_time(
    measured: Measured, calls: int
) -> None:
    found = measured(Bench(steady(100 * US), calls=calls, patient=True))
    assert found.status is Status.REPEATS
    assert "left in memory: it takes 100 us there, and 1e+03 us" in found.error


@pytest.mark.parametrize(
    ("verify_only", "status"), [(False, Status.WRONG_AFTER_TIMING), (True, Status.WRONG_RESULT)]
)
def test_what_leans_on_what_memory_held_before_is_wrong(
    measured: Measured, verify_only: bool, status: Status
) -> None:
    bench = Bench(steady(100 * US), poisoned=WRONG)
    found = measured(bench, verify_only=verify_only)
    assert (found.status, found.error) == (status, WRONG.message)


def test_what_cannot_win_is_not_compared(measured: Measured) -> None:
    assert measured(Bench(steady(100 * US), leans_on=32), 99 * US).status is Status.OK
    assert measured(Bench(steady(100 * US), leans_on=32), 99 * US, thorough=True).status is Status.REPEATS


@pytest.mark.parametrize("verify_only", [False, True])
def test_what_keeps_state_is_not_timed(measured: Measured, verify_only: bool) -> None:
    bench = Bench(steady(100 * US))
    found = measured(bench, verify_only=verify_only, kernel=Kernel("it changes count"))
    assert (found.status, found.error, bench.groups) == (Status.REPEATS, "it changes count", [])


# -- verdicts


def test_wrong_result_is_not_timed(measured: Measured) -> None:
    bench = Bench(steady(100 * US), first=WRONG)
    found = measured(bench)
    assert (found.status, found.error, found.verification) == (Status.WRONG_RESULT, WRONG.message, WRONG)
    assert found.samples_ns == (100 * US * 0.9999,)
    assert (bench.groups, bench.checks) == ([], ["before"])


@pytest.mark.parametrize("thorough", [False, True])
def test_verification_alone_is_one_run(measured: Measured, thorough: bool) -> None:
    bench = Bench(steady(100 * US), floor_ns=1e9)
    found = measured(bench, verify_only=True, thorough=thorough)
    assert (found.status, len(found.samples_ns), found.verification) == (Status.OK, 1, RIGHT)
    assert (bench.groups, bench.checks) == ([], ["before"])


@pytest.mark.parametrize(
    ("floor_ns", "status"), [(100.1 * US, Status.TOO_FAST), (99.9 * US, Status.OK), (0.0, Status.OK)]
)
def test_nothing_beats_the_hardware(measured: Measured, floor_ns: float, status: Status) -> None:
    found = measured(Bench(steady(100 * US), floor_ns=floor_ns))
    assert found.status is status
    assert found.error == (
        "100.00 us is less than the hardware needs (100.10 us)" if status is Status.TOO_FAST else ""
    )
    assert len(found.samples_ns) == GROUP


@pytest.mark.parametrize("time_ns", [100 * US, 400 * US, 1100 * US])
def test_wrong_after_timing_is_wrong_whatever_its_rank(measured: Measured, time_ns: float) -> None:
    found = measured(Bench(steady(time_ns), floor_ns=1e9, after=WRONG), 100 * US)
    assert (found.status, found.error) == (Status.WRONG_AFTER_TIMING, WRONG.message)
    assert found.verification == WRONG
    assert found.samples_ns


def test_unverified_is_timed_and_never_ranked(measured: Measured) -> None:
    found = measured(Bench(steady(100 * US), first=UNKNOWN, after=UNKNOWN))
    assert (found.status, found.error) == (Status.UNVERIFIED, "no reference")
    assert len(found.samples_ns) == GROUP
    assert not found.status.ranked
    slow = measured(Bench(steady(400 * US), first=UNKNOWN, after=UNKNOWN), 100 * US)
    assert slow.status is Status.UNVERIFIED


def test_what_the_clocks_did_is_kept(measured: Measured) -> None:
    bench = Bench(noisy(100 * US, 0.005))
    found = measured(bench)
    assert (found.tags, found.capped_samples) == (("power_cap",), GROUP)
    assert found.sm_clock_hz == pytest.approx((1.8e9 + 2 * 1.9e9) / 3)
    assert found.verification == RIGHT


def test_graph_is_freed_when_clocks_contradict_each_other(measured: Measured) -> None:
    bench = Bench(steady(100 * US))
    bench.broken = True
    with pytest.raises(ClockMismatchError):
        measured(bench)
    assert [graph.closed for graph in bench.graphs] == [True]


def test_times_that_scatter_where_nothing_is_left_excuse_nothing(measured: Measured) -> None:
    found = measured(Bench(steady(100 * US), leans_on="shared", scatters=True))
    assert found.status is Status.REPEATS


def test_the_median_decides_not_one_odd_sample(measured: Measured) -> None:
    bench = Bench(lambda number: 100 * US * (0.5 if number == 3 else 1.0), floor_ns=99 * US)
    assert measured(bench).status is Status.OK


def test_damage_after_timing_counts_without_a_reference(measured: Measured) -> None:
    damage = Verification(False, message="the kernel wrote outside of y")
    found = measured(Bench(steady(100 * US), first=UNKNOWN, after=damage))
    assert (found.status, found.error) == (Status.WRONG_AFTER_TIMING, damage.message)


def test_too_fast_says_more_than_unverified(measured: Measured) -> None:
    bench = Bench(steady(100 * US), floor_ns=200 * US, first=UNKNOWN, after=UNKNOWN)
    assert measured(bench).status is Status.TOO_FAST
