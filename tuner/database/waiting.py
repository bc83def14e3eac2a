"""Waiting for the locks of other programs, so that a signal gets through meanwhile."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

SLICE_S = 0.2
"""SQLite waits for so long without returning to Python, which handles signals only in between."""
PAUSE_S = 0.02
"""Between two slices: SQLite may give up without having waited."""


class PatientConnection(sqlite3.Connection):
    """A connection whose statements wait for a lock in slices of :data:`SLICE_S`, and longer together.

    Attributes:
        patience_s: how long a statement waits.
    """

    patience_s = 30.0
    """A transaction takes milliseconds, a merge of a large file some seconds."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement.

        Raises:
            sqlite3.OperationalError: among others, the file was locked for too long.
        """
        began = time.monotonic()
        while True:
            try:
                return super().execute(*arguments)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() - began > self.patience_s - SLICE_S:
                    raise
                time.sleep(PAUSE_S)
