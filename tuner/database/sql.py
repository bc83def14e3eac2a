"""A user's own SELECT statement, run by a child: it can be killed, where one instruction of SQLite takes minutes.

``python -m tuner.database.sql`` is the child.
"""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from pathlib import Path
from typing import Any

from msgspec import Struct

from tuner.core.errors import UsageError
from tuner.core.messages import Channel, UnsendableError
from tuner.core.processes import ChildDied, ParentPipe, ask_once, limit_memory

LIMIT_S = 10.0
"""Longer than any sensible question takes on a million trials, and short enough to wait for."""
ONE_SELECT = "give one SELECT statement"
MAX_ROWS = 100_000
MAX_BYTES = 64 << 20
"""A result is held in memory as a whole, and printed."""
MAX_VALUE_BYTES = 16 << 20
"""Of one value: above what a cell holds, and below what ``zeroblob`` could ask for."""
MEMORY_BYTES = 2 << 30
SORTING_BYTES = 4 << 30
"""Of one temporary file: what sorting a million trials takes, and no full disk."""
_READING = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)


SqlTable = tuple[list[str], list[tuple[Any, ...]]]


class Question(Struct, frozen=True):
    """A statement, and the file to read, whose schema was found to be ours."""

    path: Path
    text: str


class Selected(Struct, frozen=True):
    """The result, or why there is none: SQLite's words, and its code, 0 where they are ours."""

    columns: list[str] = []
    rows: list[tuple[Any, ...]] = []
    problem: str = ""
    code: int = 0


ANSWERS: Channel[Question, Selected] = Channel(Question, Selected)


def read_only(path: Path, text: str, limit_s: float = LIMIT_S) -> SqlTable:
    """Return the column names and the rows of one statement, which can only read.

    Args:
        path: a file that was opened, so that its schema is ours.
        text: the statement.
        limit_s: wall-clock time, in seconds; the start of the child is part of it.

    Raises:
        UsageError: not one statement that only reads, an error in it, or a result that takes too long or is too large.
    """
    try:
        reply = ask_once("tuner.database.sql", ANSWERS, Question(path, text), limit_s)
    except ChildDied as death:
        raise UsageError(f"--sql takes too much memory ({death.reason})", "select less") from None
    except UnsendableError as error:
        raise UsageError(f"--sql: {error}", ONE_SELECT) from None
    if reply is None:
        raise UsageError(f"--sql took more than {limit_s:g} s", "select less")
    if reply.columns:
        return reply.columns, reply.rows
    if reply.code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
        raise UsageError("--sql can only read", f"{ONE_SELECT}; ATTACH, PRAGMA and writes are refused")
    raise UsageError(
        f"--sql: {reply.problem.rstrip('.')}", f"{ONE_SELECT}; docs/database.md lists the tables"
    )


def answer(question: Question) -> Selected:
    """Return the result of one statement, run on a connection that is read-only four times over.

    ``mode=ro`` alone would still let ATTACH create files, so an authorizer allows nothing but reading.
    """
    uri = f"{question.path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            # These register themselves on first use, which the authorizer would refuse.
            connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
            connection.set_authorizer(_authorize)
            return _fetch(connection, question.text)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return Selected(problem=str(error), code=getattr(error, "sqlite_errorcode", 0) & 0xFF)
    except MemoryError:
        return Selected(problem="it takes too much memory")


def _authorize(action: int, *names: str | None) -> int:
    dangerous = action == sqlite3.SQLITE_FUNCTION and names[1] in ("load_extension", "fts3_tokenizer")
    return sqlite3.SQLITE_OK if action in _READING and not dangerous else sqlite3.SQLITE_DENY


def _fetch(connection: sqlite3.Connection, text: str) -> Selected:
    cursor = connection.execute(text)
    if cursor.description is None:
        return Selected(problem="it is empty")
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(rows) > MAX_ROWS or size > MAX_BYTES:
            return Selected(problem="the result is too large; select less, or add a LIMIT")
    return Selected([column[0] for column in cursor.description], rows)


def main() -> None:
    """Answer one question."""
    pipe = ParentPipe(ANSWERS)
    limit_memory(MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SORTING_BYTES, SORTING_BYTES))
    question = pipe.receive()
    if question is not None:
        pipe.send(answer(question))


if __name__ == "__main__":
    main()
