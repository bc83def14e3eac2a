"""How fast a candidate is beside something else: in the same rounds, or through what both were raced with."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.core.conditions import Mode, Regime
from tuner.core.stats import Ratio
from tuner.devices.base import Device, Timed
from tuner.studies import interleaved
from tuner.studies.interleaved import Comparison
from tuner.studies.judging.task import Task
from tuner.studies.judging.verdict import ModeTimes, Speed, Verdict, Versus
from tuner.tuning.confirmation import ALONE_FASTER, BATCH_RESOLUTION_NS, EVENT_RESOLUTION_NS, MOVED

CONFIDENCE = 0.999
"""Of the intervals: there are several baselines, modes and problems, and of a thousand judgements of equal kernels none
may have a winner. 11 rounds give one."""


def versus(compared: Comparison, own: Timed, other: Timed) -> Versus:
    """Return a candidate beside another contestant of its race."""
    ratio = compared.against(own, other, CONFIDENCE).ratio
    # Where its code lies counts, too.
    floor = max(compared.noise_floor(own), BATCH_RESOLUTION_NS / own.time_ns)
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


ALONE_ROUNDS = 5
"""Of baselines in a process without the candidate: enough to tell 15 %."""


def slowed_baseline(device: Device, task: Task, verdict: Verdict) -> str:
    """Return which baseline that is slower than a candidate was so in its process only; empty if none was.

    Where a process gets its memory moves short kernels, and alone they are faster: by up to 13 % on an H200.

    Args:
        device: which runs nothing of the candidate.
        task: the task.
        verdict: about the candidate.

    Raises:
        TunerError: they cannot be timed there.
    """
    for problem, at in zip(task.problems, verdict.problems, strict=False):
        prepared = False
        for times in at.modes:
            inside_ns = {one.baseline: one.time_ns for one in times.versus if one.verdict is Speed.FASTER}
            beaten = [one for one in task.contestants(problem, device.gpu) if one.name in inside_ns]
            if beaten and not prepared:
                conditions, _ = device.choose_conditions(task.kernel, problem, task.mode, Regime.RESTED)
                device.prepare(task.kernel, problem, verdict.seed, conditions)
                prepared = True
            if not beaten:
                continue
            mode = Mode(times.mode)
            compared = interleaved.compare(
                device, beaten, ALONE_ROUNDS, verdict.seed,
                mode=mode if mode is not device.conditions.mode else None,
            )  # fmt: skip
            for timing in compared.timings:
                beside_ns = inside_ns[timing.name] or 0.0
                if beside_ns > (1.0 + ALONE_FASTER) * timing.time_ns + EVENT_RESOLUTION_NS:
                    took, takes = beside_ns / 1e3, timing.time_ns / 1e3
                    return f"{timing.name} takes {took:.4g} us beside it, and {takes:.4g} us outside of its process"
    return ""
