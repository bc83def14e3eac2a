"""A user's own SELECT statement, run by a child that is killed when it takes too long, and by Ctrl-C."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from tuner.core.errors import UsageError
from tuner.core.processes import ChildDied, UnsendableError, ask_once
from tuner.database.sql_worker import ANSWERS, Question, SelectedRows

LIMIT_S = 10.0
"""Longer than any sensible question takes on a million trials, and short enough to wait for."""
ONE_SELECT = "give one SELECT statement"

SqlTable = tuple[list[str], list[tuple[Any, ...]]]


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
        reply = ask_once("tuner.database.sql_worker", ANSWERS, Question(path, text), limit_s)
    except ChildDied as death:
        raise UsageError(f"--sql takes too much memory ({death.reason})", "select less") from None
    except UnsendableError as error:
        raise UsageError(f"--sql: {error}", ONE_SELECT) from None
    if isinstance(reply, SelectedRows):
        return reply.columns, reply.rows
    if reply is None:
        raise UsageError(f"--sql took more than {limit_s:g} s", "select less")
    if reply.code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
        raise UsageError("--sql can only read", f"{ONE_SELECT}; ATTACH, PRAGMA and writes are refused")
    raise UsageError(
        f"--sql: {reply.problem.rstrip('.')}", f"{ONE_SELECT}; docs/database.md lists the tables"
    )
