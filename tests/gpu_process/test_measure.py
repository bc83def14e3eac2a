"""What one candidate is worth, on a scripted session: effort follows rank, and doubtful times are not ranked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu_process.scripted_session import GROUP, KERNEL, US, WRONG, Bench, Measured, noisy, steady
from tuner.core.model import Status
from tuner.gpu import measure as measure_module
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
from tuner.gpu.timing import median_half_width

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


def test_every_call_of_a_batch_counts(measured: Measured) -> None:
    """A sample of 100 calls of 50 us is 5 ms of the GPU's time."""
    assert len(measured(Bench(noisy(50 * US), calls=100), 25 * US).samples_ns) == 4
    assert len(measured(Bench(noisy(50 * US), calls=100)).samples_ns) == 16


def test_what_a_rank_deserves_is_not_refinement(measured: Measured) -> None:
    bench: Any = Bench(noisy(100 * US))
    measured(bench, 100 * US, idle=[True] * 100)
    assert bench.measurement.refined_s == 0.0


def test_hopeless_first_run_and_a_slow_sample_within_limits(measured: Measured) -> None:
    """A first run that is hopeless, then samples on both sides of slow: the verdict rests on the samples alone."""
    times = [2.9, 3.5, 3.2]
    bench = Bench(lambda number: 100 * US * times[min(number, 2)], first_ns=1100 * US)
    found = measured(bench, 100 * US)
    assert (found.status, len(found.samples_ns)) == (Status.SLOW, 2)
