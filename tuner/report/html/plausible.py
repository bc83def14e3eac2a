"""Rows whose numbers can be times, rates and ratios: a file of others may hold anything, with right digests."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tuner.database.records import Benchmark, StoredTrial, StoredWinner

LOWEST, HIGHEST = 1e-12, 1e18
"""Of a time in nanoseconds, a rate in any unit, a ratio."""
WHY = "has numbers that cannot be"


def plausible(*values: float | None) -> bool:
    """Return whether times, rates and ratios can be such, as far as they are there."""
    return all(value is None or LOWEST <= value <= HIGHEST for value in values)


def sound_trials(trials: Iterable[StoredTrial], damaged: list[str]) -> list[StoredTrial]:
    """Return the trials without those whose numbers cannot be, for which a line each is added."""
    sound = []
    for stored in trials:
        if _trial(stored):
            sound.append(stored)
        else:
            damaged.append(f"trial {stored.trial.id} {WHY}")
    return sound


def _trial(stored: StoredTrial | StoredWinner) -> bool:
    trial = stored.trial
    times = trial.time_ns, trial.ci_low_ns, trial.ci_high_ns, *trial.samples_ns
    return plausible(*times, trial.sm_clock_hz or None, *msgspec.structs.astuple(stored.metrics))


def sound_winners(winners: Iterable[StoredWinner], damaged: list[str]) -> list[StoredWinner]:
    """Return the winners likewise."""
    sound = []
    for stored in winners:
        one = stored.winner
        times = one.time_ns, one.default_time_ns, one.confirmed_ns
        if plausible(*times, one.ratio, one.ratio_low, one.ratio_high) and _trial(stored):
            sound.append(stored)
        else:
            damaged.append(f"winner {stored.id} {WHY}")
    return sound


def sound_benchmarks(benchmarks: Iterable[Benchmark], damaged: list[str]) -> list[Benchmark]:
    """Return the contestants of benches likewise."""
    sound = []
    for one in benchmarks:
        times = one.time_ns, one.ci_low_ns, one.ci_high_ns
        if plausible(*times, one.ratio, one.ratio_low, one.ratio_high):
            sound.append(one)
        else:
            damaged.append(f"benchmark {one.id} {WHY}")
    return sound
