"""Teaches a search, before it begins, the results of earlier runs of its problem and of other tasks."""

from __future__ import annotations

from collections.abc import Collection

from tuner.database.database import Database
from tuner.model import Configuration, Status, Trial
from tuner.search.study import Search
from tuner.search.task_distance import distance
from tuner.tuning.state import State
from tuner.tuning.trials import told_time, under_bound

RETRIED = 3
"""Best configurations of earlier runs that are tried again: times of another day cannot be raced against today's."""
MAX_RELATED = 2000
"""Trials of other problems that are read, the newest."""
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


def teach_earlier_runs(
    search: Search, database: Database, state: State, attempted: Collection[Configuration]
) -> list[Configuration]:
    """Teach the results of earlier runs of this very kernel, problem and GPU, so that only new ground is tried.

    Failures that may not happen again on another day are left out.

    Args:
        search: is taught.
        database: has the runs.
        state: of this run; ``known_before`` counts the results that are taught.
        attempted: what this run has begun: this run's result counts for these.

    Returns:
        The confirmed best of them and the next few, to be tried again; without those that this run has tried.
    """
    max_error = state.run.options.max_error
    earlier = [under_bound(trial, max_error) for trial in database.earlier_trials(state.run)]
    # A trial without a bound has no error; it may well be accurate enough.
    unknown = [trial for trial in earlier if trial.status is Status.INACCURATE and not _settled(trial)]
    ok = [trial.configuration for trial in earlier if trial.status is Status.OK or trial in unknown]
    best_before = state.best_before
    best = ([best_before[0]] if best_before and best_before[0] in ok else []) + ok[:RETRIED]
    tried = {trial.configuration for trial in state.trials}
    again = [c for c in dict.fromkeys(best) if search.space.contains(c) and c not in tried]
    of_this_run = {*tried, *attempted, *again, search.space.default}
    for trial in earlier:
        if trial.configuration not in of_this_run and _settled(trial):
            search.add(trial.configuration, told_time(trial))
            state.known_before += 1
    return again


def teach_other_tasks(search: Search, database: Database, state: State) -> None:
    """Teach the results of earlier runs of this very kernel at other sizes and on other GPUs."""
    for other, trials in database.related_trials(state.run, MAX_RELATED):
        results = [(trial.configuration, told_time(trial)) for trial in trials]
        search.learn(results, distance(state.run, other))
        state.transferred += len(results)


def _settled(trial: Trial) -> bool:
    """Return whether an earlier trial would have the same result again.

    An inaccurate one would if its error was counted; of one that was tried without a bound the error is not known.
    """
    if trial.status is Status.INACCURATE:
        return trial.verification is not None and trial.verification.true_error is not None
    return trial.status in DETERMINISTIC
