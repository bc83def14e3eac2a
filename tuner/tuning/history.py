"""Teaches a search, before it begins, the results of earlier runs of its problem and of other tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import isclass, isfunction
from pathlib import Path
from statistics import median

from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Run, Status
from tuner.database.database import Database
from tuner.database.earlier import Lesson, Source, distance
from tuner.database.opening import is_ours
from tuner.database.records import KnownTrial, Mark
from tuner.formats.foreign import read_foreign, run_of
from tuner.formats.foreign_json import JsonResults
from tuner.formats.recording import FORMAT, read_recording
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


def teach_earlier_runs(
    search: Search, store: Store, state: State, first: Iterable[Configuration] = ()
) -> list[Configuration]:
    """Teach the results of earlier runs of this very kernel, problem and GPU, so that only new ground is tried.

    Failures that may not happen again on another day are left out.

    Args:
        search: is taught.
        store: has the runs.
        state: of this run; ``known_before`` counts the configurations that are not tried again.
        first: what is tried in any case.

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
    of_this_run = {*again, *first, search.space.default}
    settled = [t for t in earlier if t.configuration not in of_this_run and _settled(t)]
    state.known_before = len(settled)
    taught = _best_and_others(settled, MAX_TAUGHT)
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

    Args:
        files: T4 and cache files, recordings, databases.
        kernel: whose parameters they must have, at least some of them.
        sampler: by its name.

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
    return [_of_database(file, kernel) if is_ours(file) else _of_results(file, kernel) for file in files]


def gather_lessons(store: Store, run: Run, mark: Mark, space: SearchSpace) -> list[tuple[Run, Results]]:
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
            why = "a GPU of another vendor, or a size 64 times as large or small"
            why = "too few of its configurations are in this space" if apart < math.inf else why
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
    earlier = "an earlier text of the kernel" if other.kernel_digest != run.kernel_digest else "other files"
    return differing or {earlier}


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
    inaccurate = trial.status is Status.INACCURATE and trial.true_error is not None
    return inaccurate or trial.status in DETERMINISTIC


# -- files of other tools, recordings and databases that a run learns from


def _of_database(file: Path, kernel: KernelSpec) -> Source:
    with Database.open(file, write=False) as database:
        if kernel.name not in (names := database.names("kernel")):
            there = ", ".join(names) or "none"
            raise UsageError(
                f"{file} has no results of {kernel.name}; its kernels: {there}",
                "leave it out of --learn-from",
            )

    def lessons(run: Run, limit: int) -> Sequence[Lesson]:
        with Database.open(file, write=False) as database:
            return database.lessons(run, limit)

    return lessons


def _of_results(file: Path, kernel: KernelSpec) -> Source:
    if file.is_dir():
        raise UsageError(f"{file} is a folder", "name each file with --learn-from")
    read = _recorded(file) if JsonResults(file).head.get("format") == FORMAT else _foreign(file)
    ours = {name for variant in kernel.variants.values() for name in variant.parameters}
    every = (trial.configuration for _, trials in read for trial in trials)
    theirs = dict.fromkeys(name for one in every for name in one.values)
    if not ours & theirs.keys():
        raise UsageError(
            f"{file}: none of its parameters ({', '.join(theirs)}) is one of {kernel.name}",
            "leave it out of --learn-from",
        )
    return lambda _, limit: [(run, _first_best_and_others(trials, limit)) for run, trials in read]


def _foreign(file: Path) -> list[Lesson]:
    results = read_foreign(file)
    return [_lesson(file, run_of(results), {one: row.ranked_ns for one, row in results.rows.items()})]


def _recorded(file: Path) -> list[Lesson]:
    recording, lessons = read_recording(file), []
    for number, (problem, rows) in enumerate((one.problem, one.rows) for one in recording.problems):
        run = Run(f"{recording.name}-{number}", problem, recording.gpu, f"replay:{recording.name}")
        times_ns = {one: median(row.samples_ns) if row.status.ranked else None for one, row in rows.items()}
        lessons.append(_lesson(file, run, times_ns))
    return lessons


def _lesson(file: Path, run: Run, times_ns: Mapping[Configuration, float | None]) -> Lesson:
    """Return the ranked results of a run; of a file that has none there is nothing to learn.

    Raises:
        UsageError: that.
    """
    ranked = ((one, time_ns) for one, time_ns in times_ns.items() if time_ns)
    trials = [KnownTrial(i, one, Status.OK, time_ns, None) for i, (one, time_ns) in enumerate(ranked)]
    if not trials:
        raise UsageError(f"{file}: every result in it is a failure", "leave it out of --learn-from")
    return run, trials


def _first_best_and_others(trials: list[KnownTrial], limit: int) -> list[KnownTrial]:
    by_time = sorted(trials[1:], key=lambda trial: trial.time_ns or 0.0)
    return [trials[0], *_best_and_others(by_time, limit - 1)]


def _best_and_others(trials: Sequence[KnownTrial], limit: int) -> Sequence[KnownTrial]:
    """Return at most so many of trials that are sorted by time: the best half, and some of all others."""
    best = limit // 2
    step = max(1, math.ceil((len(trials) - best) / (limit - best)))
    return [*trials[:best], *trials[best::step]]
