"""What one candidate is worth, on a scripted session: effort follows rank, and doubtful times are not ranked."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Measurement, Status, Verification
from tuner.gpu import measure as measure_module
from tuner.gpu.candidate import Region, Timed
from tuner.gpu.measure import (
    ALSO_RAN_NS,
    CONTENDER_FACTOR,
    CONTENDER_NS,
    CONTENDER_SAMPLES,
    HOPELESS_FACTOR,
    MIN_SAMPLES,
    NARROW,
    SLOW_FACTOR,
    CandidateMeasurement,
)
from tuner.gpu.timing import ClockMismatchError, Samples, group_size, median_half_width
from tuner.kernel.batching import Batch, Limits
from tuner.runtime.launches import Buffer

US = 1e3
RIGHT = Verification(True)
WRONG = Verification(False, message="y[0] is 2, expected 1")
UNKNOWN = Verification(False, checked=False, message="no reference")
GROUP = 16
"""Samples of a group of a short kernel."""


class Graph:
    def __init__(self, samples: int, calls: int, fresh: Sequence[bool] = ()) -> None:
        self.samples, self.calls, self.fresh = samples, calls, fresh
        self.before_ns = 0.0
        self.closed = False

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class Kernel(Timed):
    """A candidate, and what it says of memory that it must leave as it is."""

    def __init__(self, keeps: str = "") -> None:
        self.regions = [Region("scratch sums", 64, 8), Region("scratch keep", 128, 8)]
        self._keeps = keeps
        self.launches = 1

    def keeps(self) -> str:
        return self._keeps

    def add_to(self, graph: object, copy: int) -> None: ...

    def close(self) -> None: ...


class Overwritten:
    """What is appended before a sample: the addresses that are overwritten, and ``shared``."""

    def __init__(self) -> None:
        self.what: set[object] = set()

    def memset(self, address: int, byte: int, size_bytes: int) -> None:
        self.what.add(address)

    def kernel(self, kernel: object) -> None:
        self.what.add(kernel)


class Bench:
    """A session whose candidate takes the times that a function gives for each sample, and what passes meanwhile.

    Where ``leans_on`` is overwritten before a sample, it takes ten times as long, and where it ``scatters`` then
    sometimes a hundred times. One that is ``patient`` takes as long everywhere in such a group.
    """

    def __init__(
        self,
        time_of: Callable[[int], float],
        first_ns: float = 0.0,
        calls: int = 1,
        floor_ns: float = 0.0,
        first: Verification = RIGHT,
        after: Verification = RIGHT,
        leans_on: object = None,
        *,
        scatters: bool = False,
        patient: bool = False,
    ) -> None:
        self.time_of, self.first_ns = time_of, first_ns or time_of(0)
        self.conditions = Conditions(Mode.COLD if calls == 1 else Mode.ROTATING)
        self.batch = Batch(calls, calls, length_ns=1e12)
        self.limits = Limits(floor_ns, 0.0, 0.0)
        self.first, self.after = first, after
        self.leans_on, self.scatters, self.patient = leans_on, scatters, patient
        self.data = SimpleNamespace(
            copies=1,
            flush_bytes=1 << 20,
            tensors=[Buffer("y", (4,), "float32", "output")],
            address=lambda name, copy: 32,
            memory=SimpleNamespace(addresses={"flush": 16}),
            helpers=SimpleNamespace(fill_shared=lambda words: "shared" if words else "no words"),
        )
        self.now = 0.0
        self.graphs: list[Graph] = []
        self.groups: list[Samples] = []
        self.checks: list[str] = []
        self.broken = False
        self._number = itertools.count()

    def size(self, estimate_ns: float) -> int:
        return group_size(estimate_ns, self.conditions, self.batch, heavy=False)

    def graph(self, timed: Any, samples: int, estimate_ns: float) -> Graph:
        self.graphs.append(Graph(samples, self.batch.calls_for(estimate_ns)))
        return self.graphs[-1]

    def cold_graph(self, timed: Any, samples: int, before: Callable[[Any, int], int]) -> Graph:
        fresh = []
        for number in range(samples):
            overwritten = Overwritten()
            assert before(overwritten, number) == 0
            fresh.append(self.leans_on in overwritten.what)
        self.graphs.append(Graph(samples, 1, fresh))
        return self.graphs[-1]

    def take(self, graph: Graph, estimate_ns: float) -> Samples:
        assert not graph.closed
        if graph.fresh:
            scatter = itertools.cycle([100.0, 10.0] if self.scatters else [10.0])
            fresh = [one or self.patient for one in graph.fresh]
            return Samples([estimate_ns * (next(scatter) if one else 1.0) for one in fresh])
        if self.broken:
            raise ClockMismatchError("events add up to more")
        times = [self.time_of(next(self._number)) for _ in range(graph.samples)]
        self.now += 1e-9 * graph.calls * sum(times)
        capped = len(times) if len(self.groups) == 0 else 0
        tags = {"power_cap"} if capped else set()
        self.groups.append(Samples(times, tags, capped, [1.8e9 if capped else 1.9e9]))
        return self.groups[-1]

    def first_run(self, timed: Any, known_ns: float) -> tuple[float, Verification]:
        self.checks.append("before")
        return self.first_ns, self.first

    def check(self, copy: int) -> Verification:
        return RIGHT

    def check_after(self, timed: Any, calls: int) -> Verification:
        assert all(graph.closed for graph in self.graphs)
        self.checks.append("after")
        return self.after

    def monotonic(self) -> float:
        return self.now


def steady(time_ns: float) -> Callable[[int], float]:
    """Samples whose median is known well enough at once."""
    return lambda number: time_ns * (1.0001 if number % 2 else 0.9999)


def noisy(time_ns: float, share: float = 0.02) -> Callable[[int], float]:
    return lambda number: time_ns * (1.0 + share if number % 2 else 1.0 - share)


KERNEL = Kernel()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measurement]:
    def run(
        bench: Any,
        incumbent_ns: float = 0.0,
        *,
        thorough: bool = False,
        verify_only: bool = False,
        idle: Sequence[bool] = (),
        kernel: Kernel = KERNEL,
    ) -> Measurement:
        monkeypatch.setattr(measure_module, "time", bench)
        answers = iter(idle)
        bench.measurement = CandidateMeasurement(bench, lambda: next(answers, False))
        found = bench.measurement.measure(kernel, incumbent_ns, thorough=thorough, verify_only=verify_only)
        assert all(graph.closed for graph in bench.graphs)
        return found  # type: ignore[no-any-return]

    return run


Measured = Callable[..., Measurement]


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


def test_times_that_scatter_where_nothing_is_left_excuse_nothing(measured: Measured) -> None:
    found = measured(Bench(steady(100 * US), leans_on="shared", scatters=True))
    assert found.status is Status.REPEATS


@pytest.mark.parametrize("calls", [1, 100])
def test_what_leans_on_earlier_launches_only_after_many_is_compared_with_its_own_time(
    measured: Measured, calls: int
) -> None:
    found = measured(Bench(steady(100 * US), calls=calls, patient=True))
    assert found.status is Status.REPEATS
    assert "left in memory: it takes 100 us there, and 1e+03 us" in found.error


def test_what_cannot_win_is_not_compared(measured: Measured) -> None:
    assert measured(Bench(steady(100 * US), leans_on=32), 99 * US).status is Status.OK
    assert measured(Bench(steady(100 * US), leans_on=32), 99 * US, thorough=True).status is Status.REPEATS


@pytest.mark.parametrize("verify_only", [False, True])
def test_what_keeps_state_is_not_timed(measured: Measured, verify_only: bool) -> None:
    bench = Bench(steady(100 * US))
    found = measured(bench, verify_only=verify_only, kernel=Kernel("it changes count"))
    assert (found.status, found.error, bench.groups) == (Status.REPEATS, "it changes count", [])


# -- effort follows rank


def test_hopeless_gets_one_sample(measured: Measured) -> None:
    bench = Bench(steady(11 * 100 * US))
    found = measured(bench, 100 * US)
    assert (found.status, len(found.samples_ns)) == (Status.SLOW, 1)
    assert bench.checks == ["before", "after"]


def test_slow_gets_two_samples(measured: Measured) -> None:
    bench = Bench(steady(4 * 100 * US))
    found = measured(bench, 100 * US)
    assert (found.status, len(found.samples_ns)) == (Status.SLOW, 2)


@pytest.mark.parametrize("factor", [SLOW_FACTOR, HOPELESS_FACTOR])
def test_a_slow_first_run_is_not_a_slow_kernel(measured: Measured, factor: float) -> None:
    """The first run of a kernel of microseconds is cold in every way."""
    found = measured(Bench(steady(100 * US), first_ns=1.01 * factor * 100 * US), 100 * US)
    assert (found.status, len(found.samples_ns)) == (Status.OK, GROUP)


def test_one_quick_sample_of_two_is_a_chance(measured: Measured) -> None:
    bench = Bench(lambda number: 100 * US * (3.5 if number == 0 else 2.5), first_ns=350 * US)
    found = measured(bench, 100 * US)
    assert found.status is Status.OK
    assert len(found.samples_ns) >= MIN_SAMPLES


def test_hopeless_first_run_and_a_slow_sample_within_limits(measured: Measured) -> None:
    """A first run that is hopeless, then samples on both sides of slow: the verdict rests on the samples alone."""
    times = [2.9, 3.5, 3.2]
    bench = Bench(lambda number: 100 * US * times[min(number, 2)], first_ns=1100 * US)
    found = measured(bench, 100 * US)
    assert (found.status, len(found.samples_ns)) == (Status.SLOW, 2)


def test_also_ran_gets_a_few_however_noisy(measured: Measured) -> None:
    found = measured(Bench(noisy(200 * US)), 100 * US)
    assert (found.status, len(found.samples_ns)) == (Status.OK, GROUP)
    # Four samples of 2 ms a group: three groups.
    assert len(measured(Bench(noisy(2000 * US)), 1000 * US).samples_ns) == MIN_SAMPLES
    # 20 ms are reached before twelve samples are.
    found = measured(Bench(noisy(7000 * US)), 3000 * US)
    assert len(found.samples_ns) == 3
    assert sum(found.samples_ns) >= ALSO_RAN_NS
    assert len(measured(Bench(noisy(30_000 * US)), 20_000 * US).samples_ns) == 1


@pytest.mark.parametrize(
    ("time_of", "fewest", "most"),
    [
        (steady(100 * US), GROUP, GROUP),
        # Half-width is 0.79 of half a percent with 16, and 0.45 with 48.
        (noisy(100 * US, 0.005), 3 * GROUP, 3 * GROUP),
        (noisy(100 * US), CONTENDER_SAMPLES, CONTENDER_SAMPLES + GROUP - 1),
    ],
)
@pytest.mark.parametrize("incumbent_ns", [0.0, 100 * US, 100 * US * 1.001 / CONTENDER_FACTOR])
def test_contender_gets_as_many_as_its_noise_needs(
    measured: Measured, time_of: Callable[[int], float], fewest: int, most: int, incumbent_ns: float
) -> None:
    found = measured(Bench(time_of), incumbent_ns)
    assert found.status is Status.OK
    assert fewest <= len(found.samples_ns) <= most
    assert median_half_width(found.samples_ns) <= NARROW or len(found.samples_ns) >= CONTENDER_SAMPLES


def test_contender_ends_where_also_ran_begins(measured: Measured) -> None:
    within = 100 * US * 1.001 / CONTENDER_FACTOR
    beyond = 100 * US * 0.97 / CONTENDER_FACTOR
    assert len(measured(Bench(noisy(100 * US)), within).samples_ns) >= CONTENDER_SAMPLES
    assert len(measured(Bench(noisy(100 * US)), beyond).samples_ns) == GROUP


def test_long_contender_is_bounded_by_time(measured: Measured) -> None:
    found = measured(Bench(noisy(30_000 * US)))
    assert sum(found.samples_ns) >= CONTENDER_NS
    assert len(found.samples_ns) == 3


def test_every_call_of_a_batch_counts(measured: Measured) -> None:
    """A sample of 100 calls of 50 us is 5 ms of the GPU's time."""
    assert len(measured(Bench(noisy(50 * US), calls=100), 25 * US).samples_ns) == 4
    assert len(measured(Bench(noisy(50 * US), calls=100)).samples_ns) == 16


def test_thorough_ranks_nothing(measured: Measured) -> None:
    found = measured(Bench(noisy(2000 * US)), 100 * US, thorough=True)
    assert found.status is Status.OK
    assert sum(found.samples_ns) >= CONTENDER_NS
    found = measured(Bench(steady(100 * US)), 100 * US, thorough=True, idle=[True] * 100)
    assert len(found.samples_ns) == GROUP  # what is known well enough is, with or without company


# -- time that is idle otherwise


def test_idle_time_is_spent_on_more_samples_and_counted(measured: Measured) -> None:
    bench: Any = Bench(noisy(200 * US))
    found = measured(bench, 100 * US, idle=[True] * 100)
    assert CONTENDER_SAMPLES <= len(found.samples_ns) < CONTENDER_SAMPLES + GROUP
    extra = sum(sum(group.times_ns) for group in bench.groups[1:])
    assert bench.measurement.refined_s == pytest.approx(1e-9 * extra)


def test_idle_time_ends_when_a_request_comes(measured: Measured) -> None:
    bench: Any = Bench(noisy(200 * US))
    assert len(measured(bench, 100 * US, idle=[True, True, False]).samples_ns) == 3 * GROUP


def test_what_a_rank_deserves_is_not_refinement(measured: Measured) -> None:
    bench: Any = Bench(noisy(100 * US))
    measured(bench, 100 * US, idle=[True] * 100)
    assert bench.measurement.refined_s == 0.0


def test_refinement_is_that_of_the_last_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    bench: Any = Bench(noisy(200 * US))
    monkeypatch.setattr(measure_module, "time", bench)
    idle = True
    measurement = CandidateMeasurement(bench, lambda: idle)
    measurement.measure(KERNEL, 100 * US, thorough=False, verify_only=False)  # type: ignore[arg-type]
    assert measurement.refined_s > 0.0
    bench.first = WRONG
    measurement.measure(KERNEL, 100 * US, thorough=False, verify_only=False)  # type: ignore[arg-type]
    assert measurement.refined_s == 0.0


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


def test_the_median_decides_not_one_odd_sample(measured: Measured) -> None:
    bench = Bench(lambda number: 100 * US * (0.5 if number == 3 else 1.0), floor_ns=99 * US)
    assert measured(bench).status is Status.OK


@pytest.mark.parametrize("time_ns", [100 * US, 400 * US, 1100 * US])
def test_wrong_after_timing_is_wrong_whatever_its_rank(measured: Measured, time_ns: float) -> None:
    found = measured(Bench(steady(time_ns), floor_ns=1e9, after=WRONG), 100 * US)
    assert (found.status, found.error) == (Status.WRONG_AFTER_TIMING, WRONG.message)
    assert found.verification == WRONG
    assert found.samples_ns


def test_damage_after_timing_counts_without_a_reference(measured: Measured) -> None:
    damage = Verification(False, message="the kernel wrote outside of y")
    found = measured(Bench(steady(100 * US), first=UNKNOWN, after=damage))
    assert (found.status, found.error) == (Status.WRONG_AFTER_TIMING, damage.message)


def test_unverified_is_timed_and_never_ranked(measured: Measured) -> None:
    found = measured(Bench(steady(100 * US), first=UNKNOWN, after=UNKNOWN))
    assert (found.status, found.error) == (Status.UNVERIFIED, "no reference")
    assert len(found.samples_ns) == GROUP
    assert not found.status.ranked
    slow = measured(Bench(steady(400 * US), first=UNKNOWN, after=UNKNOWN), 100 * US)
    assert slow.status is Status.UNVERIFIED


def test_too_fast_says_more_than_unverified(measured: Measured) -> None:
    bench = Bench(steady(100 * US), floor_ns=200 * US, first=UNKNOWN, after=UNKNOWN)
    assert measured(bench).status is Status.TOO_FAST


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
