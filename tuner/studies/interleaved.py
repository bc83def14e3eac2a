"""An interleaved comparison: contestants of one problem timed in turn, and compared by the ratio within each round.

What all studies share: their contestants, the comparison, and what rows of the database and JSON say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tuner.children.measuring import RaceFailed
from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.model import Gpu, Problem
from tuner.core.stats import Ratio, Verdict, paired_ratio, ratio_record, reference_verdict
from tuner.core.version import __version__
from tuner.database.records import Benchmark, Metrics
from tuner.devices.base import DEFAULT_NOISE_FLOOR, Contestant, Device, RaceRequest, Timed
from tuner.kernel.functions import NOT_INSTALLED
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import Roof, roof_of, roof_under
from tuner.kernel.spec import KernelSpec
from tuner.tuning.state import metrics

SAMPLES = 8
"""With medians of 8 that scatter by 0.2 % the median of 20 ratios is good to 0.16 %, well below most noise floors."""


@dataclass(frozen=True)
class Failure:
    """A contestant that could not be timed."""

    contestant: Contestant
    error: str

    @property
    def name(self) -> str:
        """Of the contestant."""
        return self.contestant.name

    @property
    def configuration(self) -> bool:
        """Whether it is a configuration of the kernel, which should not fail, rather than a baseline."""
        return self.contestant.configuration is not None

    @property
    def not_installed(self) -> bool:
        """Whether it failed for want of its library: no fault of what is compared with it."""
        return not self.configuration and NOT_INSTALLED in self.error

    def to_json(self) -> dict[str, str]:
        """Return it for programs."""
        return {"contestant": self.name, "what": self.contestant.text, "error": self.error}


@dataclass(frozen=True)
class Compared:
    """A comparison of two contestants."""

    ratio: Ratio
    """How many times as fast the one is: above 1 it is the faster."""
    verdict: Verdict
    """Of the one against the other."""


@dataclass(frozen=True)
class Comparison:
    """Contestants timed in turn, round by round, on the data of one problem."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    conditions: Conditions
    roof: Roof
    """With the ceilings that hold under these conditions."""
    calibration: Calibration | None
    timings: tuple[Timed, ...] = ()
    failures: tuple[Failure, ...] = ()
    tags: tuple[str, ...] = ()

    def metrics(self, timing: Timed) -> Metrics:
        """Return the throughput, and the share of the speed of light."""
        return metrics(self.roof, timing.time_ns)

    @property
    def reference_noise(self) -> float:
        """The noise floor of the first contestant; 0 where nothing could be timed."""
        return self.noise_floor(self.timings[0]) if self.timings else 0.0

    def noise_floor(self, timing: Timed) -> float:
        """Return how far from 1 the ratio of two equal kernels of this time may be."""
        if self.calibration is None:
            return DEFAULT_NOISE_FLOOR
        return self.calibration.noise_floor(self.conditions, timing.time_ns)

    def against(self, timing: Timed, other: Timed, confidence: float = 0.95) -> Compared:
        """Compare two contestants, by the ratio within each round, with an interval of this confidence."""
        ratio = paired_ratio(other.medians_ns, timing.medians_ns, confidence)
        return Compared(ratio, reference_verdict(ratio, self.noise_floor(timing)))


def compare(
    device: Device,
    contestants: Sequence[Contestant],
    rounds: int,
    seed: int,
    *,
    mode: Mode | None = None,
    needed: int | None = None,
    failing: Callable[[int, RaceFailed], None] = lambda _, __: None,
) -> Comparison:
    """Time contestants in turn on a device that is prepared for the problem; one that fails is left out.

    Args:
        device: where.
        contestants: what is timed, in this order.
        rounds: groups of each.
        seed: of the order within the rounds.
        mode: another than that for which the device is prepared.
        needed: once so many of the first have all failed, the others are not timed.
        failing: told at once of each that fails; what it raises ends the comparison.
    """
    race = device.race(RaceRequest(contestants, rounds, SAMPLES, seed, mode, needed), failing)
    failures = [Failure(contestants[index], error) for index, error in race.failures.items()]
    return comparison_on(device, list(race.timed.values()), failures, race.tags, mode)


def comparison_on(
    device: Device,
    timings: Sequence[Timed],
    failures: Sequence[Failure] = (),
    tags: Sequence[str] = (),
    mode: Mode | None = None,
) -> Comparison:
    """Return what was timed on a device that is prepared for the problem, perhaps in another mode."""
    kernel, problem = device.kernel, device.problem
    conditions = replace(device.conditions, mode=mode) if mode else device.conditions
    roof = roof_under(roof_of(kernel, problem, device.gpu), conditions.mode)
    where = (kernel, problem, device.gpu, conditions, roof, device.calibration)
    return Comparison(*where, tuple(timings), tuple(failures), tuple(tags))


def unpaired(one: Timed, other: Timed) -> Ratio:
    """Return the ratio of two times that were not taken in turn, bounded by the ends of their intervals."""
    (low, high), (other_low, other_high) = one.interval_ns, other.interval_ns
    return Ratio(one.time_ns / other.time_ns, low / other_high, high / other_low)


MakeRow = Callable[..., Benchmark]
"""Makes a row of the database of what :func:`rows_of` leaves open: name, times, comparison, tags, further columns."""


def rows_of(identity: KernelIdentity, device: Device, bench: str) -> MakeRow:
    """Return what makes rows of the database, with what all contestants of a comparison share.

    Args:
        identity: of what computes; made once for many comparisons, as its text takes a tenth of a second.
        device: which is prepared for the problem.
        bench: the id that all comparisons of one study share.
    """
    return partial(
        _row,
        bench=bench,
        problem=device.problem,
        gpu=device.gpu,
        conditions=device.conditions,
        kernel_digest=identity.text,
        computation=identity.computation,
        versions={"kernel-tune": __version__, **device.versions},
    )


def _row(
    name: str, timed: Timed, compared: Compared | None = None, tags: Sequence[str] = (), **columns: Any
) -> Benchmark:
    """Return a row with a contestant's times, and how what it was compared with is to it."""
    tags = (*tags, *(() if timed.verified else ("unverified",)))
    low, high = timed.interval_ns
    ratio = {**ratio_record(compared.ratio), "verdict": str(compared.verdict)} if compared else {}
    times = {"time_ns": timed.time_ns, "ci_low_ns": low, "ci_high_ns": high, "samples_ns": timed.samples_ns}
    columns = {**times, "sm_clock_hz": timed.sm_clock_hz, **ratio, **columns}
    return Benchmark(contestant=name, configuration=timed.configuration, tags=tags, **columns)
