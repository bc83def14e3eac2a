"""How fast a candidate is beside something else: in the same rounds, or through what both were raced with."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.core.stats import Ratio
from tuner.studies.interleaved import Comparison, Timing
from tuner.studies.judging.verdict import ModeTimes, Speed, Versus
from tuner.tuning.confirmation import BATCH_RESOLUTION_NS, MOVED

CONFIDENCE = 0.999
"""Of the intervals: there are several baselines, modes and problems, and of a thousand judgements of equal kernels none
may have a winner. 11 rounds give one."""


def versus(compared: Comparison, own: Timing, other: Timing) -> Versus:
    """Return a candidate beside another contestant of its race."""
    ratio = compared.against(own, other, CONFIDENCE).ratio
    floor = max(
        compared.noise_floor(own), BATCH_RESOLUTION_NS / own.time_ns
    )  # where its code lies counts, too
    return Versus(
        other.name, other.contestant.text, other.time_ns, ratio.median, ratio.low, ratio.high,
        speed_of(ratio, floor), other.verified,
    )  # fmt: skip


def through(own: ModeTimes, others: ModeTimes, name: str, what: str) -> Versus:
    """Return a candidate beside what was raced in another process, by a baseline that both were raced with.

    Where a process gets its memory moves kernels, so that the ratio must be beyond that, too. Without a common baseline
    the times themselves are compared.

    Args:
        own: the candidate's times.
        others: those of the other, in the same mode.
        name: of the other.
        what: it is.
    """
    alone = Ratio(others.time_ns / own.time_ns, others.low_ns / own.high_ns, others.high_ns / own.low_ns)
    ratio = min(_ratios(own, others, name), key=lambda one: one.high / one.low, default=alone)
    floor = MOVED + max(own.noise_floor, others.noise_floor, BATCH_RESOLUTION_NS / own.time_ns)
    return Versus(
        name, f"{what}, in a process of its own", others.time_ns, ratio.median, ratio.low, ratio.high,
        speed_of(ratio, floor),
    )  # fmt: skip


def _ratios(own: ModeTimes, others: ModeTimes, name: str) -> Iterator[Ratio]:
    known = {(one.baseline, one.what): _bounds(one) for one in others.versus if one.baseline != name}
    for one in own.versus:
        mine, theirs = _bounds(one), known.get((one.baseline, one.what))
        if mine is not None and theirs is not None:
            yield Ratio(mine.median / theirs.median, mine.low / theirs.high, mine.high / theirs.low)


def _bounds(one: Versus) -> Ratio | None:
    if one.speedup is None or one.speedup_low is None or one.speedup_high is None:
        return None
    return Ratio(one.speedup, one.speedup_low, one.speedup_high)


def speed_of(speedup: Ratio, floor: float) -> Speed:
    """Return the speed that a speedup shows: it is decided only where the whole interval is beyond the noise floor.

    What lies within it, such as the place of the code, is the same in all rounds, and does not average out.
    """
    if speedup.low > 1.0 + floor:
        return Speed.FASTER
    if speedup.high < 1.0 - floor:
        return Speed.SLOWER
    within = speedup.low >= 1.0 - floor and speedup.high <= 1.0 + floor
    return Speed.TIED if within else Speed.AMBIGUOUS
