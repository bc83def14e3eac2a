"""A file as a whole: checked, copied, and joined with another."""

from __future__ import annotations

import glob
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.core.errors import DatabaseError, UsageError
from tuner.core.files import whole_file
from tuner.core.model import SUSPECT, Run, digest
from tuner.database import cells, opening, rows
from tuner.database.cells import Damaged
from tuner.database.file import DatabaseFile
from tuner.database.records import CheckReport, Merged

MAX_FAULTS = 20
"""Faults of the file's structure that are listed: with this many there is nothing left to mend."""
MAX_PROBLEMS = 1000
"""Of trials, and of sources that they lack: more say nothing more."""
ADOPTED = ("computation", "kernel_digest", "digest")
"""Columns of a run of schema 2 that change when it is identified (``Database.adopt_runs``)."""


class Maintenance(DatabaseFile):
    """An open database as a whole."""

    def check(self) -> CheckReport:
        """Check the pages, the references and the digest of every row."""
        problems: list[str] = []
        counts: dict[str, int] = {}
        try:
            structure = self.connection.execute(f"PRAGMA integrity_check({MAX_FAULTS})")
            faults = [line for row in structure if row[0] != "ok" for line in row[0].splitlines()]
            problems += [f"structure: {line}" for line in faults if not line.startswith("***")]
            references = self.connection.execute("PRAGMA foreign_key_check")
            problems += [f"{row[0]} row {row[1]} refers to a missing row of {row[2]}" for row in references]
            for table in opening.TABLES:
                counts[table] = 0
                found: list[str] = []
                for row in self.connection.execute(f"SELECT * FROM {table} NOT INDEXED"):
                    counts[table] += 1
                    if len(found) < MAX_PROBLEMS:
                        found += _problems_of(self, table, dict(row))
                problems += found
            problems += _lacking_sources(self)
            problems += _doubled(self)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            problems.append(f"structure: {error}")
        return CheckReport(counts, problems)

    def backup(self, to: Path) -> None:
        """Write a consistent copy, also while others write: beside the target, and there when it is on the disk.

        What a killed backup to this target has left is removed.

        Raises:
            DatabaseError: there is something of that name, or it cannot be written.
        """
        if to.exists() or to.is_symlink():
            raise DatabaseError(f"{to} exists already", "name a new file for the backup")
        with opening.explained(to, self.connection, of=self.path), whole_file(to) as partial:
            for journal in to.parent.glob(f"{glob.escape(partial.name.rsplit('.', 2)[0])}.*.partial-journal"):
                if not journal.with_name(
                    journal.name.removesuffix("-journal")
                ).exists():  # removed by whole_file
                    journal.unlink(missing_ok=True)
            self.connection.execute("PRAGMA query_only = OFF")  # it counts the copy as a write
            try:
                self.connection.execute("VACUUM INTO ?", (str(partial),))
            except BaseException:
                # SQLite leaves it on a full disk.
                partial.with_name(f"{partial.name}-journal").unlink(missing_ok=True)
                raise
            self.connection.execute(f"PRAGMA query_only = {int(not self.write)}")

    def merge(self, other: Path) -> Merged:
        """Add the runs and benchmarks of another file that this one lacks, in one transaction, but for what is damaged.

        Raises:
            UsageError: both are the same file.
        """
        refused: list[str] = []
        added = {"runs": 0, "trials": 0, "winners": 0}
        with DatabaseFile.open(other, write=False) as source, self.transaction():
            if self.path.samefile(other):
                raise UsageError(f"{other} is the database itself", "name another file to merge")
            for row in source.rows_where("runs", order_by="started_at"):
                try:
                    run = rows.decode_run(row)
                    added["runs"] += _merge_run(self, row)
                    added["trials"] += _merge_trials(self, source, run, refused)
                    added["winners"] += _merge_winner(self, source, run)
                except Damaged as error:
                    refused.append(str(error))
            benchmarks = _merge_benchmarks(self, source, refused)
        return Merged(**added, benchmarks=benchmarks, refused=refused)


def _lacking_sources(database: DatabaseFile) -> Iterator[str]:
    """Return which sources of trials are not there; those of a damaged trial are reported with it."""
    for row in database.connection.execute(
        "SELECT t.id, j.value FROM trials t NOT INDEXED, json_each(CASE WHEN json_valid(t.source_digests) "
        "AND json_type(t.source_digests) = 'array' THEN t.source_digests ELSE '[]' END) j "
        "WHERE NOT EXISTS (SELECT 1 FROM sources s WHERE s.digest = j.value) LIMIT ?",
        (MAX_PROBLEMS,),
    ):
        yield f"source {row['value']} of trial {row['id']} is missing"


def _doubled(database: DatabaseFile) -> Iterator[str]:
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


def _problems_of(database: DatabaseFile, table: str, row: dict[str, Any]) -> list[str]:
    try:
        if table == "runs":
            rows.decode_run(row)
        elif table == "trials":
            database.decode_trial(row)
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


def _merge_run(database: DatabaseFile, row: dict[str, Any]) -> int:
    for ours in database.rows_where("runs", "id = ?", row["id"]):
        if _as_identified(row, ours)["digest"] != ours["digest"]:
            adopted = _as_identified(ours, row)
            if adopted["digest"] != row["digest"]:
                raise Damaged(f"run {row['id']} is another run in {database.path}")
            database.update_run(row["id"], **{name: adopted[name] for name in ADOPTED})
            database.forget_runs()
        if row["state"] == "finished" and ours["state"] != "finished":
            columns = {name: row[name] for name in ("state", "ended_at", "stats")}
            database.update_run(row["id"], **columns)
        return 0
    database.insert("runs", row)
    return 1


def _as_identified(row: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a run of schema 2 as it is once it is adopted, if the other row is so; any other run as it is."""
    if row["computation"] or not other["computation"]:
        return row
    adopted = {**row, "computation": other["computation"], "kernel_digest": other["kernel_digest"]}
    return {**adopted, "digest": cells.row_digest("runs", adopted)}


def _merge_trials(database: DatabaseFile, source: DatabaseFile, run: Run, refused: list[str]) -> int:
    added = 0
    numbers = database.rows_where("trials", "run_id = ?", run.id, columns="number, digest")
    ours = {row["number"]: row["digest"] for row in numbers}
    for one in source.rows_where("trials", "run_id = ?", run.id, order_by="number", columns="id"):
        row = source.trial_row(one["id"])  # all at once may be more than the memory
        try:
            sources = source.trial_of(row).trial.sources
        except DatabaseError as error:
            refused.append(str(error))
            continue
        if row["number"] not in ours:
            database.insert_sources(sources)
            database.insert("trials", _numbered_anew(row))
            added += 1
        elif ours[row["number"]] != row["digest"]:
            refused.append(f"trial {row['number']} of run {run.id} differs in {database.path}")
    return added


def _merge_winner(database: DatabaseFile, source: DatabaseFile, run: Run) -> int:
    if database.tables["winners"].count_where("run_id = ?", [run.id]):
        return 0
    for row in source.rows_where("winners", "run_id = ?", run.id):
        moved = {name: value for name, value in row.items() if name not in ("id", "digest")}
        for column in ("trial_id", "default_trial_id"):
            if row[column] is not None:
                moved[column] = _our_trial(database, source, row[column])
        rows.decode_winner(row, rows.decode_trial(source.trial_row(row["trial_id"]), run))
        database.insert("winners", cells.sealed("winners", **moved))
        return 1
    return 0


def _merge_benchmarks(database: DatabaseFile, source: DatabaseFile, refused: list[str]) -> int:
    added, ours = 0, {row["digest"] for row in database.rows_where("benchmarks", columns="digest")}
    for one in source.rows_where("benchmarks", order_by="id", columns="id"):
        (row,) = source.rows_where("benchmarks", "id = ?", one["id"])
        try:
            rows.decode_benchmark(row, None)
        except Damaged as error:
            refused.append(str(error))
            continue
        if row["digest"] not in ours:
            database.insert("benchmarks", _numbered_anew(row))
            added += 1
    return added


def _numbered_anew(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}


def _our_trial(database: DatabaseFile, source: DatabaseFile, theirs: int) -> int:
    same = "run_id = ? AND number = ? AND digest = ?"
    for row in source.rows_where("trials", "id = ?", theirs, columns="run_id, number, digest"):
        for ours in database.rows_where("trials", same, *row.values(), columns="id"):
            return int(ours["id"])
    raise Damaged(f"a winner's trial {theirs} in {source.path} was not merged")
