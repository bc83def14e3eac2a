"""Which of a run's trials race at its end, and which are timed warm, back to back, before that.

A search times with cold data. Most programs call a kernel back to back, with part of its data in the L2. Where a kernel
is short, another configuration may be best there. So the mean of a finalist's ratios to another in both modes counts.
Times of different modes are never compared.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from tuner.core.conditions import Mode, Regime
from tuner.core.model import Configuration, Run, Trial
from tuner.devices.base import Contestant, Device, RaceRequest
from tuner.kernel.batching import warm_differs
from tuner.kernel.plan import tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.tuning.decision import Preference, penalized
from tuner.tuning.state import verified

FINALISTS = 8
"""One more contestant makes every interval wider, and each loads and verifies in every heat."""
FINALIST_FACTOR = 1.10
"""Only candidates this close to the best are raced: the search's figures are off by a few percent, not by ten."""
TIMED_WARM = 32
"""Fastest trials that are timed warm as well."""
OF_A_VARIANT = 2
"""Fastest trials of each variant among them, whatever their rank: what differs most may be best warm."""
WARM_FACTOR = 1.25
"""Only candidates this close to the best are timed warm: one further behind would have to gain as much there."""

PREFERRED = 4
"""Preferred trials that race although others are faster, where a margin counts. They are what another run most likely
chooses, too."""
NEAR_FACTOR = 1.04
"""Only these, and the initial configurations and known winners, this close to the best: with a margin a winner may be
3 % behind (:mod:`tuner.tuning.decision`), and the search's figures are off by a percent."""

WARM_ROUNDS, WARM_SAMPLES = 3, 3
"""For choosing finalists among some 40 candidates, within about a second: the races decide."""


def mean_ns(trial: Trial, warm_ns: Mapping[Configuration, float]) -> float:
    """Return the geometric mean of a trial's time and its time in the mode warm; the first alone if that is unknown."""
    time_ns = trial.time_ns or 0.0
    return math.sqrt(time_ns * warm_ns.get(trial.configuration, time_ns))


def ranked(trials: Sequence[Trial], factor: float, resolution_ns: float = 0.0) -> list[Trial]:
    """Return the verified trials within a factor of the best, best first; one for each configuration."""
    candidates = sorted(verified(trials), key=lambda t: t.time_ns or 0.0)
    best_ns = (candidates[0].time_ns or 0.0) if candidates else 0.0
    limit = max(factor * best_ns, best_ns + resolution_ns)
    close: dict[Configuration, Trial] = {}
    for trial in candidates:
        if (trial.time_ns or 0.0) <= limit:
            close.setdefault(trial.configuration, trial)
    return list(close.values())


def finalists(trials: Sequence[Trial], resolution_ns: float = 0.0) -> list[Trial]:
    """Return the verified trials that could be the fastest, best first; one for each configuration."""
    return ranked(trials, FINALIST_FACTOR, resolution_ns)[:FINALISTS]


def reproducible(
    trials: Sequence[Trial],
    chosen: Sequence[Trial],
    named: Collection[Configuration],
    prefer: Preference,
    margin: float,
    warm_ns: Mapping[Configuration, float] | None = None,
) -> list[Trial]:
    """Return those to race beside the finalists; best first.

    They are the initial configurations and known winners that are near the best; with a margin also the preferred
    trials, so that another run has the same choice.

    Args:
        trials: of the run, rejected ones left out.
        chosen: the finalists.
        named: initial configurations and known winners.
        prefer: says how many margins each has to gain.
        margin: for each of them, as a share; 0 for none.
        warm_ns: times in the mode warm if that counts as well: then only what has one, and the mean of both counts.
    """
    racing = {trial.configuration for trial in chosen}
    timed = [trial for trial in ranked(trials, WARM_FACTOR) if not warm_ns or trial.configuration in warm_ns]
    means = {trial.configuration: mean_ns(trial, warm_ns or {}) for trial in timed}
    limit = NEAR_FACTOR * min(means.values(), default=0.0)
    near = [trial for trial in timed if means[trial.configuration] <= limit] if chosen else []
    preferred = sorted(
        near, key=lambda trial: penalized(means[trial.configuration], prefer(trial.configuration), margin)
    )[: PREFERRED if margin else 0]
    return [
        trial
        for trial in near
        if trial.configuration not in racing and (trial.configuration in named or trial in preferred)
    ]


def worth_timing_warm(trials: Sequence[Trial], initial: Collection[Configuration]) -> list[Trial]:
    """Return the verified trials that could win in both modes together, best first.

    Args:
        trials: of the run.
        initial: configurations that are timed however many are faster: they were good elsewhere.
    """
    chosen: list[Trial] = []
    of_variant: dict[str, int] = {}
    for rank, trial in enumerate(ranked(trials, WARM_FACTOR)):
        variant = trial.configuration.variant
        of_variant[variant] = of_variant.get(variant, 0) + 1
        if rank < TIMED_WARM or of_variant[variant] <= OF_A_VARIANT or trial.configuration in initial:
            chosen.append(trial)
    return chosen


def finalists_of_both(trials: Sequence[Trial], warm_ns: Mapping[Configuration, float]) -> list[Trial]:
    """Return the trials that could win in both modes together, the fastest in the run's mode first.

    They are those with the smallest mean of both times, and the fastest of each mode, to compare the winner with.

    Args:
        trials: of the run, rejected ones left out.
        warm_ns: times of some of them in the mode warm.
    """
    timed = [trial for trial in ranked(trials, WARM_FACTOR) if trial.configuration in warm_ns]
    if not timed:
        return []

    best = sorted(timed, key=lambda trial: mean_ns(trial, warm_ns))
    limit = FINALIST_FACTOR * mean_ns(best[0], warm_ns)
    close = [trial for trial in best if mean_ns(trial, warm_ns) <= limit]
    warmest = min(timed, key=lambda trial: warm_ns[trial.configuration])
    numbers = {trial.number for trial in (timed[0], warmest, *close[:FINALISTS])}
    return [trial for trial in timed if trial.number in numbers]


def warm_matters(kernel: KernelSpec, run: Run, device: Device, best_ns: float) -> bool:
    """Return whether a run chooses its winner by the mode warm as well.

    Not if the user named the mode, nor if dtypes are to be compared by one time; not for a recording, which has times
    of one mode, nor under sustained load, where samples are long.

    Args:
        kernel: what computes.
        run: what is tuned, and how.
        device: where.
        best_ns: the best time of the search.
    """
    options, conditions = run.options, run.conditions
    if device.recorded or options.one_mode or options.max_error is not None:
        return False
    if conditions.regime is not Regime.RESTED or conditions.mode is Mode.WARM:
        return False
    return warm_differs(tensors_of(kernel, run.problem, device.gpu), device.gpu, best_ns)


def time_warm(device: Device, candidates: Sequence[Trial], seed: int) -> dict[Configuration, float]:
    """Return the candidates' times in the mode warm, in nanoseconds; one that fails is left out.

    They are not precise, and only tell which candidates are worth racing.
    """
    entered = [Contestant(trial.configuration, trial.time_ns or 0.0) for trial in candidates]
    answer = device.race(RaceRequest(entered, WARM_ROUNDS, WARM_SAMPLES, seed, Mode.WARM))
    return {candidates[index].configuration: timed.time_ns for index, timed in answer.timed.items()}
