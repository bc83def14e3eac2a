"""Checking every trial of a file, a part of them in each of several processes: a million take a minute of one.

``python -m tuner.database.trial_check`` is a child that checks one part.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from tuner.core.errors import DatabaseError
from tuner.core.processes import Channel, Child, ChildDied, ParentPipe
from tuner.database import rows
from tuner.database.cells import Damaged
from tuner.database.reader import Reader

PART = 50_000
"""Trials that are worth a process: they take 3 s, its start 0.3 s."""
MAX_PROBLEMS = 1000
"""Of each part: more say nothing more."""


class TrialRange(Struct, frozen=True):
    """Row numbers above ``after``, up to ``last``."""

    path: Path
    after: int
    last: int


class RangeReport(Struct, frozen=True):
    """What a part has: trials, and a line for each that is damaged."""

    trials: int
    problems: list[str]


RANGES: Channel[TrialRange, RangeReport] = Channel(TrialRange, RangeReport)


def check_trials(reader: Reader) -> RangeReport:
    """Return the number of trials of a file, and what is wrong with them.

    Raises:
        sqlite3.DatabaseError: the structure is damaged.
    """
    first, last = reader.connection.execute(
        "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM trials"
    ).fetchone()
    processes = min(len(os.sched_getaffinity(0)), (last - first) // PART)
    if processes < 2:
        return _checked(reader, TrialRange(reader.path, first - 1, last))
    ends = [first - 1 + (last - first + 1) * i // processes for i in range(processes + 1)]
    with contextlib.ExitStack() as stack:
        children = []
        for after, end in pairwise(ends):
            children.append(Child[TrialRange, RangeReport]("tuner.database.trial_check", RANGES))
            stack.callback(children[-1].kill)
            children[-1].send(TrialRange(reader.path, after, end))
        parts = list(_answers(children))
    return RangeReport(sum(part.trials for part in parts), [line for part in parts for line in part.problems])


def _answers(children: list[Child[TrialRange, RangeReport]]) -> Iterator[RangeReport]:
    for child in children:
        try:
            answer = child.receive(None)
        except ChildDied as death:
            answer = RangeReport(0, [f"structure: a part of the trials cannot be checked ({death.reason})"])
        assert answer is not None  # there is no time limit
        yield answer


def _checked(reader: Reader, part: TrialRange) -> RangeReport:
    problems: list[str] = []
    count = 0
    for row in reader.connection.execute(
        "SELECT * FROM trials NOT INDEXED WHERE id > ? AND id <= ? ORDER BY id", (part.after, part.last)
    ):
        count += 1
        try:
            rows.decode_trial(dict(row), reader.run(row["run_id"]))
        except (Damaged, DatabaseError) as error:
            if len(problems) < MAX_PROBLEMS:
                problems.append(str(error))
    return RangeReport(count, problems)


def main() -> None:
    """Check one part."""
    pipe = ParentPipe(RANGES)
    part = pipe.receive()
    if part is None:
        return
    try:
        with Reader.open(part.path, write=False) as reader:
            answer = _checked(reader, part)
    except (sqlite3.DatabaseError, UnicodeDecodeError, DatabaseError) as error:
        answer = RangeReport(0, [f"structure: {error}"])
    pipe.send(answer)


if __name__ == "__main__":
    main()
