"""Looking after a database file: checking, merging, copying, deleting, and SQL that can only read."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.database import cells, rows, schema
from tuner.database.cells import Damaged
from tuner.database.records import Check, Merged
from tuner.errors import DatabaseError, UsageError
from tuner.model import Run, digest

if TYPE_CHECKING:
    from tuner.database.database import Database

SQL_LIMIT_S = 10.0
SQL_MAX_ROWS = 100_000
SQL_MAX_BYTES = 64 << 20
_READING = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)


def read_only_sql(
    path: Path, text: str, limit_s: float = SQL_LIMIT_S
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run one statement on a connection of its own that is read-only four times over.

    ``mode=ro`` alone would still let ATTACH create files, so an authorizer allows nothing but reading.
    """
    with schema.explained(path):
        schema.refuse_foreign(path, may_create=False)
        deadline = time.monotonic() + limit_s
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=limit_s)
        try:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 16 << 20)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
            connection.execute(
                "SELECT 1 FROM json_each('[]'), json_tree('[]')"
            ).fetchall()  # not again until close
            connection.set_authorizer(_authorize)
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 10_000)
            return _fetch(connection, text)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            if (
                getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
                and time.monotonic() < deadline
            ):
                raise KeyboardInterrupt from None  # SQLite takes the handler's for a wish to end
            raise _explain_sql(error, limit_s) from error
        finally:
            connection.close()


def _authorize(action: int, *names: str | None) -> int:
    dangerous = action == sqlite3.SQLITE_FUNCTION and names[1] in ("load_extension", "fts3_tokenizer")
    return sqlite3.SQLITE_OK if action in _READING and not dangerous else sqlite3.SQLITE_DENY


def _fetch(connection: sqlite3.Connection, text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    cursor = connection.execute(text)
    if cursor.description is None:
        raise UsageError("--sql is empty", "give one SELECT statement")
    found: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        found.append(row)
        size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if len(found) > SQL_MAX_ROWS or size > SQL_MAX_BYTES:
            raise UsageError("the result of --sql is too large", "select less, or add a LIMIT")
    return [column[0] for column in cursor.description], found


def _explain_sql(error: Exception, limit_s: float) -> UsageError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        return UsageError(f"--sql took more than {limit_s:g} s", "select less")
    if code == sqlite3.SQLITE_AUTH or code == sqlite3.SQLITE_READONLY:
        return UsageError(
            "--sql can only read", "give one SELECT statement; ATTACH, PRAGMA and writes are refused"
        )
    return UsageError(f"--sql: {error}", "give one SELECT statement; docs/database.md lists the tables")


def check(database: Database) -> Check:
    """Check the pages, the references and the digest of every row."""
    problems: list[str] = []
    counts: dict[str, int] = {}
    try:
        structure = database.connection.execute("PRAGMA integrity_check(20)")
        problems += [f"structure: {row[0]}" for row in structure if row[0] != "ok"]
        references = database.connection.execute("PRAGMA foreign_key_check")
        problems += [f"{row[0]} row {row[1]} refers to a missing row of {row[2]}" for row in references]
        for table in ("runs", "trials", "sources", "attempts", "winners", "benchmarks"):
            counts[table] = 0
            for cells in database.connection.execute(f"SELECT * FROM {table}"):
                counts[table] += 1
                problems += _problems_of(database, table, dict(cells))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        problems.append(f"structure: {error}")
    return Check(counts, problems)


def _problems_of(database: Database, table: str, row: dict[str, Any]) -> list[str]:
    try:
        if table == "runs":
            rows.decode_run(row)
        elif table == "trials":
            rows.decode_trial(row, database.run(row["run_id"]))
            for key in cells.from_json(row["source_digests"]):
                if not database.select("SELECT 1 FROM sources WHERE digest = ?", key):
                    return [f"source {key} of trial {row['id']} is missing"]
        elif table == "winners":
            trial = database.trial(row["trial_id"])
            rows.decode_winner(row, trial)
        elif table == "benchmarks":
            rows.decode_benchmark(row, None)
        elif table == "sources" and digest(row["text"]) != row["digest"]:
            return [f"source {row['digest']} is damaged"]
    except (Damaged, DatabaseError) as error:
        return [str(error)]
    except LookupError as error:
        return [f"structure: {table} has no column {error}"]
    return []


def merge(database: Database, source: Database) -> Merged:
    """Copy what is missing, in one transaction; both files keep what they have."""
    if database.path.samefile(source.path):
        raise UsageError(f"{source.path} is the database itself", "name another file to merge")
    refused: list[str] = []
    added = {"runs": 0, "trials": 0, "winners": 0}
    with database.transaction():
        for row in source.select("SELECT * FROM runs ORDER BY started_at"):
            try:
                run = rows.decode_run(row)
                added["runs"] += _merge_run(database, row)
                added["trials"] += _merge_trials(database, source, run, refused)
                added["winners"] += _merge_winner(database, source, run)
            except Damaged as error:
                refused.append(str(error))
        benchmarks = _merge_benchmarks(database, source, refused)
    return Merged(**added, benchmarks=benchmarks, refused=refused)


def _merge_run(database: Database, row: dict[str, Any]) -> int:
    ours = database.select("SELECT * FROM runs WHERE id = ?", row["id"])
    if not ours:
        database.insert("runs", row)
        return 1
    if ours[0]["digest"] != row["digest"]:
        raise Damaged(f"run {row['id']} is another run in {database.path}")
    if row["state"] == "finished" and ours[0]["state"] != "finished":
        columns = {name: row[name] for name in ("state", "ended_at", "stats")}
        database.update_run(row["id"], **columns)
    return 0


def _merge_trials(database: Database, source: Database, run: Run, refused: list[str]) -> int:
    added = 0
    for row in source.select("SELECT * FROM trials WHERE run_id = ? ORDER BY number", run.id):
        try:
            sources = source.trial(row["id"]).trial.sources
        except DatabaseError as error:
            refused.append(str(error))
            continue
        ours = database.select(
            "SELECT digest FROM trials WHERE run_id = ? AND number = ?", run.id, row["number"]
        )
        if not ours:
            for text in sources:
                database.insert_source(text)
            database.insert("trials", {name: value for name, value in row.items() if name != "id"})
            added += 1
        elif ours[0]["digest"] != row["digest"]:
            refused.append(f"trial {row['number']} of run {run.id} differs in {database.path}")
    return added


def _merge_winner(database: Database, source: Database, run: Run) -> int:
    added = 0
    for row in source.select("SELECT * FROM winners WHERE run_id = ?", run.id):
        if database.select("SELECT 1 FROM winners WHERE run_id = ?", run.id):
            continue
        if not cells.intact("winners", row):
            raise Damaged(f"winner {row['id']} is damaged: its digest does not fit its content")
        moved = {name: value for name, value in row.items() if name not in ("id", "digest")}
        for column in ("trial_id", "default_trial_id"):
            if row[column] is not None:
                moved[column] = _our_trial(database, source, row[column])
        database.insert("winners", cells.sealed("winners", moved))
        added += 1
    return added


def _merge_benchmarks(database: Database, source: Database, refused: list[str]) -> int:
    added, ours = 0, {row["digest"] for row in database.select("SELECT digest FROM benchmarks")}
    for row in source.select("SELECT * FROM benchmarks ORDER BY id"):
        try:
            rows.decode_benchmark(row, None)
        except Damaged as error:
            refused.append(str(error))
            continue
        if row["digest"] not in ours:
            database.insert("benchmarks", {name: value for name, value in row.items() if name != "id"})
            added += 1
    return added


def _our_trial(database: Database, source: Database, theirs: int) -> int:
    for row in source.select("SELECT run_id, number, digest FROM trials WHERE id = ?", theirs):
        find = "SELECT id FROM trials WHERE run_id = ? AND number = ? AND digest = ?"
        for ours in database.select(find, row["run_id"], row["number"], row["digest"]):
            return int(ours["id"])
    raise Damaged(f"a winner's trial {theirs} in {source.path} was not merged")


def backup(database: Database, to: Path) -> None:
    """Copy with VACUUM INTO beside the target, then move it there when it is complete and on the disk."""
    if to.exists() or to.is_symlink():
        raise DatabaseError(f"{to} exists already", "name a new file for the backup")
    with schema.explained(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        partial = to.with_name(f".{to.name}.{secrets.token_hex(4)}.partial")
        try:
            database.connection.execute("PRAGMA query_only = OFF")  # it counts the copy as a write
            database.connection.execute("VACUUM INTO ?", (str(partial),))
            database.connection.execute(f"PRAGMA query_only = {int(not database.write)}")
            _sync(partial)
            os.link(partial, to)  # unlike a rename, it fails where somebody else was faster
            _sync(to.parent)
        finally:
            partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_run(database: Database, run_id: str) -> int:
    """Delete a run's rows, and the sources that no other trial has."""
    with database.transaction():
        name = database.run_id(run_id)
        connection = database.connection
        connection.execute("DELETE FROM winners WHERE run_id = ?", (name,))
        connection.execute("DELETE FROM attempts WHERE run_id = ?", (name,))
        trials = connection.execute("DELETE FROM trials WHERE run_id = ?", (name,)).rowcount
        connection.execute("DELETE FROM runs WHERE id = ?", (name,))
        connection.execute(
            "DELETE FROM sources WHERE digest NOT IN (SELECT value FROM trials, json_each("
            "CASE WHEN json_valid(source_digests) THEN source_digests ELSE '[]' END))"
        )
        database.forget_runs()
        return trials
