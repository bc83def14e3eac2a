"""A connection on which no statement runs without end or beyond the reach of Ctrl-C, whatever the file holds."""

from __future__ import annotations

import sqlite3
from typing import Any

from tuner.database.waiting import PatientConnection

MAX_ROW_BYTES = 16 << 20
"""Of a value and of a row: above the largest trial (an error and a log of 4 MiB each, and its samples)."""
MAX_SCHEMA_BYTES = 64 << 10
"""The same while the schema is read: the largest table of ours takes 2 KB."""
STEPS = 1000
"""Instructions between two looks: some 20 us, against half a microsecond for the look."""
SCHEMA_STEPS = 10_000
"""To read the schema and the version; ours takes 500."""
LEAST_STEPS = 50_000_000
STEPS_PER_BYTE = 10
"""Of a statement: a check of every row takes 1 for each byte of the file. Pages that name each other as children hold
more rows than there are atoms, and are read for ever."""
_READING = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_TRANSACTION)
)


class Connection(PatientConnection):
    """A connection for a file that may be hostile: :meth:`open_up` it once its schema is known to be ours.

    Until then nothing but reading is possible, no function is called, and reading ends after :data:`SCHEMA_STEPS`.
    SQLite reads the schema, and the statistics of ANALYZE, before the first statement. Afterwards a statement ends
    when it has taken more instructions than the file's size explains.

    Attributes:
        exhausted: whether a statement was ended so. Otherwise an interrupted one means Ctrl-C, whose exception SQLite
            does not pass on.
    """

    exhausted = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._allowed = SCHEMA_STEPS // STEPS
        self._left = self._allowed
        self._limit_length(MAX_SCHEMA_BYTES)
        self.set_authorizer(_only_reading)
        self.set_progress_handler(self._step, STEPS)

    def open_up(self, size: int) -> None:
        """Allow what our own statements need.

        Args:
            size: of the file, in bytes.
        """
        self._allowed = (LEAST_STEPS + STEPS_PER_BYTE * size) // STEPS
        self._left = self._allowed
        self._limit_length(MAX_ROW_BYTES)
        self.set_authorizer(None)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement, with the whole of the allowed steps."""
        self._left = self._allowed
        return super().execute(*arguments)

    def _limit_length(self, size: int) -> None:
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        self.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, size)

    def _step(self) -> int:
        """Return whether to end the statement; signals are handled when this is called."""
        self._left -= 1
        self.exhausted = self._left < 0
        return int(self.exhausted)


def _only_reading(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
