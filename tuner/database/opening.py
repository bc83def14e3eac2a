"""The database file: opening it, its version, and which files are refused before a byte is changed. Plain SQL.

Whoever has one open gets its tables from here, as sqlite-utils' :class:`SchemaTable`."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import sqlite_utils.db

from tuner.core.errors import DatabaseError
from tuner.database.hostile import SLICE_S, Connection, refuse_neighbours, refuse_other_schema
from tuner.database.migrations import MIGRATIONS

APPLICATION_ID = 0x74756E65
"""``tune`` in ASCII; it stands at byte 68 of the file."""
CHECKED_BYTES = 64 << 20
"""Of a file that is looked at as a whole before it is written to: 0.1 s."""
CHECKED_ROWS = 50
TABLES = ("runs", "trials", "sources", "attempts", "winners", "benchmarks")
OTHER = "name another file with --db"
URL = re.compile(r"\w[\w+.-]*:/")
"""How a URL begins, as a path: it may have a password, and is not made as folders."""
CHECK = "tune db check says what is damaged"
DAMAGED = f"restore a backup; {CHECK}"
UNOPENED = f"restore a backup, or {OTHER}"
"""Instead of naming ``tune db check``, which has to open the file as well."""
WRITABLE = f"make the file and its folder writable, or {OTHER}"
SAFE_WAL_VERSION = (3, 51, 3)
"""Older versions can corrupt a file in WAL mode when two connections write at once (the WAL-reset bug)."""
SYNCHRONOUS = ("EXTRA", "FULL")
"""How far SQLite waits for the disk, while a schema is made and after: what is committed outlives a power failure."""
NETWORK_FILESYSTEMS = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs",
        "pvfs2", "orangefs", "glusterfs", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
        "fuse.juicefs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse",
    )
)  # fmt: skip
"""Their locks cannot be trusted, and two writers would destroy the file."""


class SchemaTable(sqlite_utils.db.Table):
    """A table of the schema, which exists and keeps its columns while the file is open.

    sqlite-utils would look both up with each call, read no rows from a table whose name is damaged, and create it anew
    when a row is added.
    """

    def exists(self) -> bool:
        """Return True: where the table is missing, SQLite says so."""
        return True

    @cached_property
    def columns(self) -> list[Any]:
        """The columns, looked up once."""
        return list(super().columns)


def connect(path: Path, *, write: bool, create: bool = True) -> Connection:
    """Open a database file, creating or migrating it where that is needed and allowed.

    A file is created only to write, and only with ``create``.

    Raises:
        DatabaseError: the file is missing, foreign, newer, read-only, on a network filesystem or damaged.
    """
    if URL.match(str(path)) and not path.exists():
        raise DatabaseError("the database is a file, and no URL", OTHER)
    with explained(path, opening=True):
        refuse_foreign(path, may_create=write and create)
        refuse_neighbours(path, f"delete it, or {OTHER}")
        if write:
            if path.exists() and not _writable(path):  # before SQLite finds out halfway
                raise DatabaseError(f"{path} is read-only", WRITABLE)
            refuse_network(path)
            path.parent.mkdir(parents=True, exist_ok=True)
        return _opened(path, "rwc" if write else ("rw" if _writable(path) else "ro"))


def reading(path: Path) -> Connection:
    """Return another connection to a file that is open already, to read what it holds by now.

    Its header is not looked at before: closing a file in a process ends the locks that SQLite has on it there.

    Raises:
        DatabaseError: it cannot be read, or is damaged.
    """
    with explained(path):
        return _opened(path, "ro")


def _opened(path: Path, mode: str) -> Connection:
    """Return a connection to a file whose schema is ours and, unless it is opened ``ro``, the newest.

    With ``rwc`` it can be written, once what is visibly damaged is refused; otherwise it is for reading alone.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=SLICE_S,
        isolation_level=None,
        factory=Connection,
    )
    try:
        with explained(path, connection, opening=True):
            _prepare(connection, path, migrate=mode != "ro")
            if mode == "rwc":
                _refuse_damaged(connection, path)
                _settle_journal(connection)
            else:
                connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: Connection, path: Path, *, migrate: bool) -> None:
    connection.row_factory = sqlite3.Row
    # A row's digest finds the damage. Without a function of ours: that takes a tenth of the time of a check.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    for pragma in ("foreign_keys = ON", "trusted_schema = OFF", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("BEGIN")  # another process may be making or migrating it
    version = _version(connection, path)
    refuse_other_schema(connection, path, MIGRATIONS[:version], OTHER)
    connection.execute("COMMIT")
    connection.open_up(path.stat().st_size)
    if version < len(MIGRATIONS):
        if not migrate:
            raise DatabaseError(
                f"{path} has the older schema {version} and cannot be written", "make it writable, or copy it"
            )
        _migrate(connection, path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise DatabaseError(
            f"{path} was written by a newer kernel-tune (schema {version}, this one knows {len(MIGRATIONS)})",
            f"upgrade kernel-tune, or {OTHER}",
        )
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Take every step that is missing in one transaction; another process may have done it meanwhile."""
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[0]}")
    with immediate(connection):
        for step in MIGRATIONS[_version(connection, path) :]:
            step(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a block in one transaction that holds the write lock from its beginning; undo it if the block fails.

    The ``atomic()`` of sqlite-utils begins with a plain BEGIN, which asks for the lock at the first write: if two
    processes have read by then, one of them fails at once and does not wait. Inside of this it adds savepoints.
    """
    try:
        # Within the try: a Ctrl-C may be raised when the lock has just been obtained.
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _refuse_damaged(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse to write into a file whose structure is visibly damaged, in at most some 0.2 s.

    A file up to :data:`CHECKED_BYTES` is looked at as a whole; of a larger one the small tables, and the newest rows
    of the others, where the next ones go. What is damaged elsewhere is found by ``tune db check``.
    """
    whole = path.stat().st_size <= CHECKED_BYTES
    for table in ("",) if whole else ("('runs')", "('attempts')", "('winners')"):
        check = f"PRAGMA quick_check{table}" if table else "PRAGMA quick_check(1)"
        fault = connection.execute(check).fetchone()[0]
        if fault != "ok":
            raise DatabaseError(f"{path}: the file is damaged ({' '.join(fault.split())})", DAMAGED)
    if not whole:
        for table in TABLES:
            newest = f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid DESC LIMIT {CHECKED_ROWS}"
            for _ in connection.execute(newest):
                pass


def _settle_journal(connection: sqlite3.Connection) -> None:
    """Choose WAL if this SQLite is safe with it, else a rollback journal; committed means on the disk in both.

    A journal that persists ends a transaction by overwriting its header, and syncs that: as durable as deleting it with
    ``synchronous=EXTRA``, but without a change to the directory or to a file's size, which are slow on many disks.
    """
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[1]}")
    wanted = "wal" if sqlite3.sqlite_version_info >= SAFE_WAL_VERSION else "persist"
    deadline = time.monotonic() + Connection.patience_s
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != wanted:
        try:
            connection.execute(f"PRAGMA journal_mode = {wanted}")
        except sqlite3.OperationalError:  # in use; a rollback journal is safe with every version, WAL is not
            if wanted == "wal":
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def refuse_foreign(path: Path, *, may_create: bool) -> None:
    """Refuse what is no database of this tool, by its header only: a file of another program is not even locked."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if may_create:
            return
        raise DatabaseError(f"there is no database {path}", f"tune a kernel first, or {OTHER}") from None
    if not stat.S_ISREG(mode):
        raise DatabaseError(f"{path} is not a file", OTHER)
    with path.open("rb") as file:
        header = file.read(100)
    if not header:
        if may_create:
            return
        raise DatabaseError(f"{path} is empty", f"tune a kernel first, or {OTHER}")
    if not header.startswith(b"SQLite format 3\0") or len(header) < 100:
        raise DatabaseError(f"{path} is not an SQLite file", OTHER)
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise DatabaseError(f"{path} is a database of another program", OTHER)


def is_ours(path: Path) -> bool:
    """Return whether a file is a database of this tool, by its header."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return int.from_bytes(file.read(100)[68:72], "big") == APPLICATION_ID


def _writable(path: Path) -> bool:
    """Return whether a mode bit and the system allow writing; root is held to the bits as well."""
    try:
        bits = path.stat().st_mode & 0o222
        return bool(bits) and os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    except OSError:
        return False


def refuse_network(path: Path) -> None:
    """Refuse a filesystem whose locks cannot be trusted."""
    kind = filesystem_of(path)
    if kind in NETWORK_FILESYSTEMS:
        raise DatabaseError(
            f"{path} is on a network filesystem ({kind}), where SQLite's locks do not hold",
            "use a local --db, and join files with: tune db merge",
        )


def filesystem_of(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the filesystem that holds a path, or an empty text where that cannot be known."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    target, best, kind = path.absolute().resolve(), -1, ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"))
        if len(point.parts) >= best and (point == target or point in target.parents):
            best, kind = len(point.parts), fields[2]
    return kind


_CAUSES = {
    sqlite3.SQLITE_FULL: (
        "the disk is full",
        "free some space; --resume goes on with the trials that are recorded, if any",
    ),
    sqlite3.SQLITE_IOERR: (
        "reading or writing failed",
        "check the disk and its space; recorded trials are safe",
    ),
    sqlite3.SQLITE_BUSY: ("another program has locked it for too long", "end that program, then try again"),
    sqlite3.SQLITE_LOCKED: ("another program has locked it", "end that program, then try again"),
    sqlite3.SQLITE_READONLY_DBMOVED: (
        "the file was moved, deleted or replaced while it was open",
        "leave it to kernel-tune while that runs, and tune again",
    ),
    sqlite3.SQLITE_READONLY: ("it is read-only", WRITABLE),
    sqlite3.SQLITE_PERM: ("access is denied", WRITABLE),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", f"check the folder's permissions, or {OTHER}"),
    sqlite3.SQLITE_CORRUPT: ("the file is damaged", DAMAGED),
    sqlite3.SQLITE_NOTADB: ("it is not an SQLite file", OTHER),
    sqlite3.SQLITE_INTERRUPT: ("it holds more than its size allows", DAMAGED),
}


@contextmanager
def explained(
    path: Path, connection: sqlite3.Connection | None = None, *, opening: bool = False, of: Path | None = None
) -> Iterator[None]:
    """Turn what SQLite or the system raises into one line with a remedy.

    Args:
        path: what is named.
        connection: which tells Ctrl-C from a statement that had no end.
        opening: whether ``tune db check`` would fail in the same way.
        of: what the path is to be a copy of, which can be made elsewhere.

    Raises:
        KeyboardInterrupt: SQLite was interrupted by a signal.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_INTERRUPT and not getattr(connection, "exhausted", False):
            raise KeyboardInterrupt from None  # SQLite swallowed it
        cause, remedy = _CAUSES.get(code) or _CAUSES.get(code & 0xFF, (str(error), CHECK))
        if code & 0xFF == sqlite3.SQLITE_IOERR and not opening and not of and not path.exists():
            cause, remedy = _CAUSES[sqlite3.SQLITE_READONLY_DBMOVED]
        if of and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            remedy = "free some space, or name a file on another disk"
        path = of if of and code & 0xFF == sqlite3.SQLITE_CORRUPT else path
        unopened = opening and CHECK in remedy
        raise DatabaseError(f"{path}: {cause}", UNOPENED if unopened else remedy) from error
    except UnicodeDecodeError as error:  # SQLite's message quotes the damage
        raise DatabaseError(f"{path}: the file is damaged", UNOPENED if opening else DAMAGED) from error
    except OSError as error:
        raise DatabaseError(
            f"{error.filename or path}: {error.strerror or error}", "name another file" if of else OTHER
        ) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise DatabaseError(f"{path}: {error}", "such a value or path cannot be stored") from error
