"""A file as a whole: checking and copying it, with plain SQL, as both are beyond single tables."""

from __future__ import annotations

import glob
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.core.errors import DatabaseError
from tuner.core.files import whole_file
from tuner.core.model import SUSPECT, digest
from tuner.database import rows, schema
from tuner.database.cells import Damaged
from tuner.database.records import CheckReport
from tuner.database.trial_check import MAX_PROBLEMS, check_trials

if TYPE_CHECKING:
    from tuner.database.database import Database

MAX_FAULTS = 20
"""Faults of the file's structure that are listed: with this many there is nothing left to mend."""


def check(database: Database) -> CheckReport:
    """Check the pages, the references and the digest of every row."""
    problems: list[str] = []
    counts: dict[str, int] = {}
    try:
        structure = database.connection.execute(f"PRAGMA integrity_check({MAX_FAULTS})")
        faults = [line for row in structure if row[0] != "ok" for line in row[0].splitlines()]
        problems += [f"structure: {line}" for line in faults if not line.startswith("***")]
        references = database.connection.execute("PRAGMA foreign_key_check")
        problems += [f"{row[0]} row {row[1]} refers to a missing row of {row[2]}" for row in references]
        for table in schema.TABLES:
            if table == "trials":
                trials = check_trials(database)
                counts[table] = trials.trials
                problems += trials.problems
                problems += _lacking_sources(database)
                continue
            counts[table] = 0
            for row in database.connection.execute(f"SELECT * FROM {table}"):
                counts[table] += 1
                problems += _problems_of(database, table, dict(row))
        problems += _doubled(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        problems.append(f"structure: {error}")
    return CheckReport(counts, problems)


def _lacking_sources(database: Database) -> Iterator[str]:
    """Return which sources of trials are not there; those of a damaged trial are reported with it."""
    for row in database.connection.execute(
        "SELECT t.id, j.value FROM trials t NOT INDEXED, json_each(CASE WHEN json_valid(t.source_digests) "
        "AND json_type(t.source_digests) = 'array' THEN t.source_digests ELSE '[]' END) j "
        "WHERE NOT EXISTS (SELECT 1 FROM sources s WHERE s.digest = j.value) LIMIT ?",
        (MAX_PROBLEMS,),
    ):
        yield f"source {row['value']} of trial {row['id']} is missing"


def _doubled(database: Database) -> Iterator[str]:
    """Return what a run has twice: two tuners worked on it, and the trials of one misled the search of the other.

    A configuration is timed again on purpose when the GPU has drifted; the time before is then marked as suspect.
    """
    for what, columns, times in (
        ("numbers given", "number", "count(*)"),
        ("configurations tried", "variant, configuration", f"sum(instr(tags, '\"{SUSPECT}\"') = 0)"),
    ):
        doubled = (
            f"SELECT run_id, count(*) AS number FROM (SELECT run_id FROM trials NOT INDEXED "
            f"GROUP BY run_id, {columns} HAVING {times} > 1) GROUP BY run_id"
        )
        for row in database.connection.execute(doubled):
            yield f"run {row['run_id']}: {row['number']} {what} twice"


def _problems_of(database: Database, table: str, row: dict[str, Any]) -> list[str]:
    try:
        if table == "runs":
            rows.decode_run(row)
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


def backup(database: Database, to: Path) -> None:
    """Copy with VACUUM INTO beside the target, then move it there when it is complete and on the disk.

    What a killed backup to this target has left is removed.

    Raises:
        DatabaseError: there is something of that name, or it cannot be written.
    """
    if to.exists() or to.is_symlink():
        raise DatabaseError(f"{to} exists already", "name a new file for the backup")
    with schema.explained(to, database.connection, copying=True), whole_file(to) as partial:
        for journal in to.parent.glob(f".{glob.escape(to.name)}.*.partial-journal"):
            if not journal.with_name(journal.name.removesuffix("-journal")).exists():  # removed by whole_file
                journal.unlink(missing_ok=True)
        database.connection.execute("PRAGMA query_only = OFF")  # it counts the copy as a write
        try:
            database.connection.execute("VACUUM INTO ?", (str(partial),))
        except BaseException:
            partial.with_name(f"{partial.name}-journal").unlink(
                missing_ok=True
            )  # SQLite leaves it on a full disk
            raise
        database.connection.execute(f"PRAGMA query_only = {int(not database.write)}")
