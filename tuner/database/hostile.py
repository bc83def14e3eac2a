"""What keeps a forged file from doing harm: which files are refused before their content is read, and a connection on
which no statement runs without end or beyond the reach of Ctrl-C.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tuner.core.errors import DatabaseError

SLICE_S = 0.2
"""SQLite waits for a lock for so long without returning to Python, which handles signals only in between."""
PAUSE_S = 0.02
"""Between two slices: SQLite may give up without having waited."""
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
_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The beginning of a journal, and the end of one that names another file."""
LONGER = 2
"""A transaction of ours makes a file longer, never shorter: what was before it cannot be twice as long."""

Step = Callable[[sqlite3.Connection], None]


class Connection(sqlite3.Connection):
    """A connection for a file that may be hostile: :meth:`open_up` it once its schema is known to be ours.

    Until then nothing but reading is possible, no function is called, and reading ends after :data:`SCHEMA_STEPS`.
    SQLite reads the schema, and the statistics of ANALYZE, before the first statement. Afterwards a statement ends
    when it has taken more instructions than the file's size explains.

    Attributes:
        patience_s: how long a statement waits for a lock.
        exhausted: whether a statement was ended so. Otherwise an interrupted one means Ctrl-C, whose exception SQLite
            does not pass on.
    """

    patience_s = 30.0
    """A transaction takes milliseconds, a merge of a large file some seconds."""
    exhausted = False
    _allowed: int
    _left: int

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bound(SCHEMA_STEPS, MAX_SCHEMA_BYTES)
        self.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
        )
        self.set_progress_handler(self._step, STEPS)

    def open_up(self, size: int) -> None:
        """Allow what our own statements need.

        Args:
            size: of the file, in bytes.
        """
        self._bound(LEAST_STEPS + STEPS_PER_BYTE * size, MAX_ROW_BYTES)
        self.set_authorizer(None)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Run a statement, with all of the allowed instructions; wait for a lock in slices, so that signals arrive.

        Raises:
            sqlite3.OperationalError: among others, the file was locked for too long.
        """
        began = time.monotonic()
        while True:
            self._left = self._allowed
            try:
                return super().execute(*arguments)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() - began > self.patience_s - SLICE_S:
                    raise
                time.sleep(PAUSE_S)

    def _bound(self, steps: int, size: int) -> None:
        self._allowed = self._left = steps // STEPS
        self.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)
        self.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, size)

    def _step(self) -> int:
        """Return whether to end the statement; signals are handled when this is called."""
        self._left -= 1
        self.exhausted = self._left < 0
        return int(self.exhausted)


def refuse_neighbours(path: Path, remedy: str) -> None:
    """Refuse a journal that would do more than undo what a killed tuner began.

    A journal can name a second one, which SQLite deletes after it has undone the transaction: any file of yours. No
    transaction of ours has two journals. It can also name a length of terabytes, which SQLite gives to the database. A
    pipe in the place of a journal would be waited for.

    Raises:
        DatabaseError: there is such a file.
    """
    path = path.resolve()  # as SQLite does before it appends the ending
    for ending in ("-journal", "-wal", "-shm"):
        beside = path.with_name(path.name + ending)
        with contextlib.suppress(FileNotFoundError):  # also a writer that has ended its transaction meanwhile
            if not stat.S_ISREG(beside.lstat().st_mode):
                raise DatabaseError(f"{beside} is not a file", remedy)
            if ending == "-journal":
                _refuse_journal(beside, path, remedy)


def _refuse_journal(journal: Path, path: Path, remedy: str) -> None:
    with journal.open("rb") as file:
        head = file.read(28)
        file.seek(max(0, file.seek(0, 2) - len(_MAGIC)))
        end = file.read()
    if end == _MAGIC:
        raise DatabaseError(f"{journal} is not of kernel-tune: it names another file to delete", remedy)
    length = int.from_bytes(head[16:20], "big") * int.from_bytes(
        head[24:28], "big"
    )  # pages, and bytes of one
    if head.startswith(_MAGIC) and path.exists() and length > LONGER * path.stat().st_size:
        raise DatabaseError(f"{journal} belongs to another file, a longer one", remedy)


def refuse_other_schema(
    connection: sqlite3.Connection, path: Path, steps: Sequence[Step], remedy: str
) -> None:
    """Refuse a file whose schema is not exactly what the steps make: tables, columns, indexes and all else.

    A generated column, a check or an index of an expression would run when the table is read or written.

    Raises:
        DatabaseError: it is another one.
    """
    ours, theirs = _schema_of(tuple(steps)), _schema(connection)
    for entry in theirs - ours:
        kind, name = entry[:2]
        if any(entry[:2] == other[:2] for other in ours):
            raise DatabaseError(f"{path}: {kind} {name!r} is altered", f"restore a backup; else {remedy}")
        raise DatabaseError(
            f"{path}: {kind} {name!r} is not of kernel-tune", f"drop it if you made it; else {remedy}"
        )
    for kind, name, *_ in ours - theirs:
        raise DatabaseError(f"{path}: {kind} {name!r} is missing", f"restore a backup; else {remedy}")


@functools.cache
def _schema_of(steps: tuple[Step, ...]) -> Counter[tuple[str, ...]]:
    """Return the schema that steps make, which takes 1.5 ms: a process opens many files."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        empty.row_factory = sqlite3.Row
        for step in steps:
            step(empty)
        return _schema(empty)


def _schema(connection: sqlite3.Connection) -> Counter[tuple[str, ...]]:
    """Return a file's schema: how often there is which entry. Blanks do not count: ours are nowhere in a literal."""
    entries = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return Counter(tuple(" ".join(str(column).split()) for column in entry) for entry in entries)
