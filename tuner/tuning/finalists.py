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
from tuner.kernel.batching import WARM_DIFFERS_NS
from tuner.tuning.decision import Preference, alike, penalized
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


def close_to_best(trials: Sequence[Trial], resolution_ns: float = 0.0) -> list[Trial]:
    """Return the verified trials within :data:`WARM_FACTOR` of the best, best first; one for each configuration."""
    candidates = sorted(verified(trials), key=lambda t: t.time_ns or 0.0)
    best_ns = (candidates[0].time_ns or 0.0) if candidates else 0.0
    limit = max(WARM_FACTOR * best_ns, best_ns + resolution_ns)
    close: dict[Configuration, Trial] = {}
    for trial in candidates:
        if (trial.time_ns or 0.0) <= limit:
            close.setdefault(trial.configuration, trial)
    return list(close.values())


def finalists(
    trials: Sequence[Trial],
    resolution_ns: float = 0.0,
    warm_ns: Mapping[Configuration, float] | None = None,
    named: Collection[Configuration] = (),
    prefer: Preference = alike,
    margin: float = 0.0,
) -> list[Trial]:
    """Return the verified trials to race, the fastest in the run's mode first; one for each configuration.

    They are those that could be the fastest, by the mean of both times where two modes count, and then also the fastest
    of each mode, to compare the winner with; initial configurations and known winners that are near the best; with a
    margin also the preferred ones, so that another run has the same choice.

    Args:
        trials: of the run, rejected ones left out.
        resolution_ns: by how much times may be apart for reasons of measuring alone.
        warm_ns: times in the mode warm of those that could win, where that mode counts as well.
        named: initial configurations and known winners.
        prefer: says how many margins each has to gain.
        margin: for each of them, as a share; 0 for none.
    """
    timed, known = close_to_best(trials, resolution_ns), warm_ns or {}
    warm = {one.configuration: known[one.configuration] for one in timed if one.configuration in known}
    if warm:
        timed, resolution_ns = [trial for trial in timed if trial.configuration in warm], 0.0
    if not timed:
        return []
    means = {trial.configuration: mean_ns(trial, warm) for trial in timed}
    best = sorted(timed, key=lambda trial: means[trial.configuration])
    best_ns = means[best[0].configuration]

    def within(limit_ns: float) -> list[Trial]:
        return [trial for trial in best if means[trial.configuration] <= limit_ns]

    chosen = within(max(FINALIST_FACTOR * best_ns, best_ns + resolution_ns))[:FINALISTS]
    if warm:
        chosen += timed[0], min(timed, key=lambda trial: warm[trial.configuration])
    near = within(NEAR_FACTOR * best_ns)
    chosen += [trial for trial in near if trial.configuration in named]
    if margin:
        near.sort(key=lambda one: penalized(means[one.configuration], prefer(one.configuration), margin))
        chosen += near[:PREFERRED]
    numbers = {trial.number for trial in chosen}
    return [trial for trial in timed if trial.number in numbers]


def worth_timing_warm(trials: Sequence[Trial], initial: Collection[Configuration]) -> list[Trial]:
    """Return the verified trials that could win in both modes together, best first.

    Args:
        trials: of the run.
        initial: configurations that are timed however many are faster: they were good elsewhere.
    """
    chosen: list[Trial] = []
    of_variant: dict[str, int] = {}
    for rank, trial in enumerate(close_to_best(trials)):
        variant = trial.configuration.variant
        of_variant[variant] = of_variant.get(variant, 0) + 1
        if rank < TIMED_WARM or of_variant[variant] <= OF_A_VARIANT or trial.configuration in initial:
            chosen.append(trial)
    return chosen


def warm_matters(run: Run, device: Device, best_ns: float) -> bool:
    """Return whether a run chooses its winner by the mode warm as well.

    Not if the user named the mode, nor if dtypes are to be compared by one time; not for a recording, which has times
    of one mode, nor under sustained load, where samples are long.

    Args:
        run: what is tuned, and how.
        device: where.
        best_ns: the best time of the search.
    """
    options, conditions = run.options, run.conditions
    if device.recorded or options.one_mode or options.max_error is not None:
        return False
    if conditions.regime is not Regime.RESTED or conditions.mode is Mode.WARM:
        return False
    return best_ns < WARM_DIFFERS_NS


def time_warm(device: Device, candidates: Sequence[Trial], seed: int) -> dict[Configuration, float]:
    """Return the candidates' times in the mode warm, in nanoseconds; one that fails is left out.

    They are not precise, and only tell which candidates are worth racing.
    """
    entered = [Contestant(trial.configuration, trial.time_ns or 0.0) for trial in candidates]
    answer = device.race(RaceRequest(entered, WARM_ROUNDS, WARM_SAMPLES, seed, Mode.WARM))
    return {candidates[index].configuration: timed.time_ns for index, timed in answer.timed.items()}
