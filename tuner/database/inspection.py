"""What is refused before a file's content is read: files beside it that SQLite would obey, and any other schema."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from tuner.core.errors import DatabaseError

_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""The beginning of a journal, and the end of one that names another file."""
LONGER = 2
"""A transaction of ours makes a file longer, never shorter: what was before it cannot be twice as long."""
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master"

Step = Callable[[sqlite3.Connection], None]


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
        try:
            mode = beside.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise DatabaseError(f"{beside} is not a file", remedy)
        if ending == "-journal":
            with contextlib.suppress(FileNotFoundError):  # a writer has ended its transaction meanwhile
                _refuse_journal(beside, path, remedy)


def _refuse_journal(journal: Path, path: Path, remedy: str) -> None:
    if _ending(journal, len(_MAGIC)) == _MAGIC:
        raise DatabaseError(f"{journal} is not of kernel-tune: it names another file to delete", remedy)
    if path.exists() and _length_before(journal) > LONGER * path.stat().st_size:
        raise DatabaseError(f"{journal} belongs to another file, a longer one", remedy)


def _length_before(journal: Path) -> int:
    """Return how long a journal says that its database was; 0 for one that is not to be undone."""
    with journal.open("rb") as file:
        head = file.read(28)
    pages, page_bytes = int.from_bytes(head[16:20], "big"), int.from_bytes(head[24:28], "big")
    return pages * page_bytes if head.startswith(_MAGIC) else 0


def _ending(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - length))
        return file.read()


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
    return Counter(
        tuple(" ".join(str(column).split()) for column in entry) for entry in connection.execute(_SCHEMA)
    )
