"""Teaches a search, before it begins, the results of earlier runs of its problem and of other tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from inspect import isclass, isfunction
from pathlib import Path

from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Run, Status
from tuner.database.earlier import Source, distance
from tuner.database.records import KnownTrial, Mark
from tuner.formats.lessons import best_and_others, read_lessons
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.search.base import Transferring
from tuner.search.samplers import find_sampler
from tuner.search.study import Search
from tuner.search.translation import Results, translated, winner_of
from tuner.tuning.state import State, Taught, told_time
from tuner.tuning.store import Store

RETRIED = 3
"""Best configurations of earlier runs that are tried again: times of another day cannot be raced against today's."""
MAX_TAUGHT = 1000
"""Results that the search is taught: samplers learn from fewer, and each would make every proposal slower. What else is
known is not tried again."""
MAX_RELATED = 400
"""Trials that are read of each other task."""
MAX_TASKS = 3
"""Other tasks that a search learns from: the nearest."""
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
    taught = best_and_others(settled, MAX_TAUGHT)
    intact = store.intact(taught)
    damaged = {trial.id for trial in taught} - {trial.id for trial in intact}
    for trial in intact:
        search.add(trial.configuration, told_time(trial))
    for trial in settled:
        if trial.id not in damaged:
            search.sampler.exclude(trial.configuration)
    return again


def sources_of(files: Sequence[Path], kernel: KernelSpec, sampler: str) -> list[Source]:
    """Return what files can teach the runs of a kernel; there is such a sampler.

    Raises:
        UsageError: a file has no results of this kernel, or the sampler would learn nothing from them.
        RecordingError, DatabaseError: a file cannot be read.
    """
    make = find_sampler(sampler)
    # A sampler of the user's own is a function until it is made.
    if files and not (isfunction(make) or (isclass(make) and issubclass(make, Transferring))):
        raise UsageError(
            f"the sampler {sampler} learns nothing from other tasks",
            "leave out --learn-from, or take the default sampler with it",
        )
    return read_lessons(files, kernel)


def gather_lessons(
    store: Store, run: Run, mark: Mark | None, space: SearchSpace
) -> list[tuple[Run, Results]]:
    """Return what the nearest other tasks have measured, as results of this run's configurations."""
    return [
        (other, translated([(trial.configuration, told_time(trial)) for trial in trials], space))
        for other, trials in store.related_trials(run, mark, MAX_RELATED)
    ]


def teach_other_tasks(search: Search, run: Run, lessons: Sequence[tuple[Run, Results]]) -> Taught:
    """Teach the results of the same kernel at other sizes, on other GPUs, with another text, and by other tools.

    Of the nearest of them the winners are proposed first, before what the search chooses itself.

    Args:
        search: is taught; its sampler learns from other tasks, if there are any.
        run: that of the search.
        lessons: results of other tasks, those first that are to be learnt first.
    """
    taught = Taught()
    for other, results in lessons:
        if len(taught.winners) == MAX_TASKS:
            break
        apart = distance(run, other)
        winner = winner_of(results, search.space) if apart < math.inf else None
        learnt = 0 if winner is None else search.learn(results, apart)
        if winner is None or not learnt:
            why = (
                "too few of its configurations are in this space"
                if apart < math.inf
                else "a GPU of another vendor, or a size 64 times as large or small"
            )
            taught.unlike.append(f"{other.problem} on {other.gpu.name}: {why}")
            continue
        taught.winners.append(winner)
        taught.results += learnt
        taught.of |= _where(run, other)
    search.sampler.begin_with(taught.winners, near=False)
    return taught


def _where(run: Run, other: Run) -> set[str]:
    """Return in words how what another run measured differs from what this one measures."""
    if other.foreign:
        return {"other tools"}
    differing = {"other problems"} if other.problem != run.problem else set()
    if other.gpu.name != run.gpu.name:
        differing.add("other GPUs")
    if not differing:
        differing.add(
            "an earlier text of the kernel" if other.kernel_digest != run.kernel_digest else "other files"
        )
    return differing


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
