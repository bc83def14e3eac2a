"""A user's own SELECT statement, on a connection that can change nothing; plain SQL through ``sqlite3``."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from tuner.database import schema
from tuner.errors import UsageError

LIMIT_S = 10.0
"""Longer than any sensible question takes on a million trials, and short enough to wait for."""
MAX_ROWS = 100_000
MAX_BYTES = 64 << 20
"""A result is held in memory as a whole, and printed."""
MAX_VALUE_BYTES = 16 << 20
"""Of one value: above what a cell holds, and below what ``zeroblob`` could ask for."""
MAX_PATTERN_BYTES = 100
"""Of a LIKE pattern: matching takes time that is exponential in its wildcards, without a chance to interrupt it."""
PROGRESS_STEPS = 10_000
"""Instructions between two looks at the clock: about 0.1 ms."""
_READING = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)

SqlTable = tuple[list[str], list[tuple[Any, ...]]]


def read_only(path: Path, text: str, limit_s: float = LIMIT_S) -> SqlTable:
    """Return the column names and the rows of one statement, run on a connection that is read-only four times over.

    ``mode=ro`` alone would still let ATTACH create files, so an authorizer allows nothing but reading.

    Raises:
        UsageError: not one statement that only reads, an error in it, or a result that takes too long or is too large.
        DatabaseError: the file cannot be opened.
    """
    with schema.explained(path):
        schema.refuse_foreign(path, may_create=False)
        deadline = time.monotonic() + limit_s
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=limit_s)
        try:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_BYTES)
            # These register themselves on first use, which the authorizer would refuse.
            connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
            connection.set_authorizer(_authorize)
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), PROGRESS_STEPS)
            return _fetch(connection, text)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            interrupted = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
            if interrupted and time.monotonic() < deadline:
                raise KeyboardInterrupt from None  # an exception in the handler: only Ctrl-C raises one there
            raise _explained(error, limit_s) from error
        finally:
            connection.close()


def _authorize(action: int, *names: str | None) -> int:
    dangerous = action == sqlite3.SQLITE_FUNCTION and names[1] in ("load_extension", "fts3_tokenizer")
    return sqlite3.SQLITE_OK if action in _READING and not dangerous else sqlite3.SQLITE_DENY


def _fetch(connection: sqlite3.Connection, text: str) -> SqlTable:
    cursor = connection.execute(text)
    if cursor.description is None:
        raise UsageError("--sql is empty", "give one SELECT statement")
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(rows) > MAX_ROWS or size > MAX_BYTES:
            raise UsageError("the result of --sql is too large", "select less, or add a LIMIT")
    return [column[0] for column in cursor.description], rows


def _explained(error: Exception, limit_s: float) -> UsageError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        return UsageError(f"--sql took more than {limit_s:g} s", "select less")
    if code == sqlite3.SQLITE_AUTH or code == sqlite3.SQLITE_READONLY:
        return UsageError(
            "--sql can only read", "give one SELECT statement; ATTACH, PRAGMA and writes are refused"
        )
    return UsageError(f"--sql: {error}", "give one SELECT statement; docs/database.md lists the tables")
