"""Files that a run learns from: other tools' results, and recordings and databases of this one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Run, Status
from tuner.database.database import Database
from tuner.database.earlier import Lesson, Source
from tuner.database.records import KnownTrial
from tuner.database.schema import is_ours
from tuner.formats.foreign import read_foreign, run_of
from tuner.formats.foreign_json import JsonResults
from tuner.formats.recording import FORMAT, Row, read_recording
from tuner.kernel.spec import KernelSpec


def read_lessons(files: Iterable[Path], kernel: KernelSpec) -> list[Source]:
    """Return what files can teach the runs of a kernel.

    Args:
        files: T4 and cache files, recordings, databases.
        kernel: whose parameters they must have, at least some of them.

    Raises:
        UsageError: a file has no results of this kernel.
        RecordingError, DatabaseError: it cannot be read.
    """
    return [_of_database(file, kernel) if is_ours(file) else _of_results(file, kernel) for file in files]


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
        lessons.append(_lesson(file, run, {one: _time_of(row) for one, row in rows.items()}))
    return lessons


def _time_of(row: Row) -> float | None:
    return median(row.samples_ns) if row.status.ranked else None


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
    return [trials[0], *best_and_others(by_time, limit - 1)]


def best_and_others(trials: Sequence[KnownTrial], limit: int) -> Sequence[KnownTrial]:
    """Return at most so many of trials that are sorted by time: the best half, and some of all others."""
    best = limit // 2
    step = max(1, math.ceil((len(trials) - best) / (limit - best)))
    return [*trials[:best], *trials[best::step]]
