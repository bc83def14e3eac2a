"""Teaches a search, before it begins, the results of earlier runs of its problem and of other tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tuner.core.model import Configuration, Status
from tuner.database.records import KnownTrial
from tuner.search.observations import distance
from tuner.search.study import Search
from tuner.tuning.state import State, told_time
from tuner.tuning.store import Store

RETRIED = 3
"""Best configurations of earlier runs that are tried again: times of another day cannot be raced against today's."""
MAX_TAUGHT = 1000
"""Results that the search is taught: samplers learn from fewer, and each would make every proposal slower. What else is
known is not tried again."""
MAX_RELATED = 2000
"""Trials of other problems that are read, of the newest runs."""
DETERMINISTIC = (
    Status.OK,
    Status.SLOW,
    Status.INVALID_CONFIG,
    Status.COMPILE_ERROR,
    Status.LAUNCH_ERROR,
    Status.WRONG_RESULT,
    Status.MEMORY_FAULT,
)
"""Results that would be the same again; a hang or a lack of memory may have been caused by another program."""


def teach_earlier_runs(search: Search, store: Store, state: State) -> list[Configuration]:
    """Teach the results of earlier runs of this very kernel, problem and GPU, so that only new ground is tried.

    Failures that may not happen again on another day are left out.

    Args:
        search: is taught.
        store: has the runs.
        state: of this run; ``known_before`` counts the configurations that are not tried again.

    Returns:
        Their winners and the next few, to be tried again.
    """
    max_error = state.run.options.max_error
    earlier = [_under_bound(trial, max_error) for trial in store.earlier_trials(state.run, state.mark)]
    # A trial without a bound has no error; it may well be accurate enough.
    unknown = Status.INACCURATE, None
    ok = [t.configuration for t in earlier if t.status is Status.OK or (t.status, t.true_error) == unknown]
    best_before = state.best_before
    winners = [*([best_before[0]] if best_before else []), *state.known_winners]
    accurate = set(ok)
    best = [configuration for configuration in winners if configuration in accurate] + ok[:RETRIED]
    again = [c for c in dict.fromkeys(best) if search.space.contains(c)]
    of_this_run = {*again, search.space.default}
    settled = [t for t in earlier if t.configuration not in of_this_run and _settled(t)]
    state.known_before = len(settled)
    taught = _best_and_others(settled)
    intact = store.intact(taught)
    damaged = {trial.id for trial in taught} - {trial.id for trial in intact}
    for trial in intact:
        search.add(trial.configuration, told_time(trial))
    for trial in settled:
        if trial.id not in damaged:
            search.sampler.exclude(trial.configuration)
    return again


def _best_and_others(trials: Sequence[KnownTrial]) -> Sequence[KnownTrial]:
    """Return at most :data:`MAX_TAUGHT` of trials that are sorted by time: the best half, and some of all others."""
    best = MAX_TAUGHT // 2
    step = max(1, math.ceil((len(trials) - best) / (MAX_TAUGHT - best)))
    return [*trials[:best], *trials[best::step]]


def teach_other_tasks(search: Search, store: Store, state: State) -> None:
    """Teach the results of earlier runs of this very kernel at other sizes and on other GPUs."""
    for other, trials in store.related_trials(state.run, state.mark, MAX_RELATED):
        results = [(trial.configuration, told_time(trial)) for trial in trials]
        search.learn(results, distance(state.run, other))
        state.transferred += len(results)
        state.transferred_from |= {
            where
            for where, differs in (
                ("other problems", other.problem != state.run.problem),
                ("other GPUs", other.gpu.name != state.run.gpu.name),
                ("an earlier text of the kernel", other.kernel_digest != state.run.kernel_digest),
            )
            if differs
        }


def _under_bound(trial: KnownTrial, max_error: float | None) -> KnownTrial:
    """Return a trial with the status that it has under this bound, whatever bound it was recorded under."""
    status: Status = Status.OK if trial.status is Status.INACCURATE else trial.status
    error = math.inf if trial.true_error is None else trial.true_error
    if max_error is not None and status.ranked and not error <= max_error:
        status = Status.INACCURATE
    return replace(trial, status=status)


def _settled(trial: KnownTrial) -> bool:
    """Return whether an earlier trial would have the same result again.

    An inaccurate one would if its error was counted; of one that was tried without a bound the error is not known.
    """
    return trial.status in DETERMINISTIC or (
        trial.status is Status.INACCURATE and trial.true_error is not None
    )
