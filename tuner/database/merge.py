"""Adding the content of another file, row by row through sqlite-utils' tables; rows keep their digests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.core.errors import DatabaseError, UsageError
from tuner.core.model import Run
from tuner.database import cells, rows
from tuner.database.cells import Damaged
from tuner.database.records import Merged

ADOPTED = ("computation", "kernel_digest", "digest")
"""Columns of a run of schema 2 that change when it is identified (``Database.adopt_runs``)."""

if TYPE_CHECKING:
    from tuner.database.database import Database


def merge(database: Database, source: Database) -> Merged:
    """Copy what is missing, in one transaction; both files keep what they have.

    Raises:
        UsageError: both are the same file.
    """
    if database.path.samefile(source.path):
        raise UsageError(f"{source.path} is the database itself", "name another file to merge")
    refused: list[str] = []
    added = {"runs": 0, "trials": 0, "winners": 0}
    with database.transaction():
        for row in source.rows_where("runs", order_by="started_at"):
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


def _merge_trials(database: Database, source: Database, run: Run, refused: list[str]) -> int:
    added = 0
    numbers = database.rows_where("trials", "run_id = ?", run.id, columns="number, digest")
    ours = {row["number"]: row["digest"] for row in numbers}
    for row in source.rows_where("trials", "run_id = ?", run.id, order_by="number"):
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


def _merge_winner(database: Database, source: Database, run: Run) -> int:
    if database.tables["winners"].count_where("run_id = ?", [run.id]):
        return 0
    for row in source.rows_where("winners", "run_id = ?", run.id):
        if not cells.intact("winners", row):
            raise Damaged(f"winner {row['id']} is damaged: its digest does not fit its content")
        moved = {name: value for name, value in row.items() if name not in ("id", "digest")}
        for column in ("trial_id", "default_trial_id"):
            if row[column] is not None:
                moved[column] = _our_trial(database, source, row[column])
        database.insert("winners", cells.sealed("winners", **moved))
        return 1
    return 0


def _merge_benchmarks(database: Database, source: Database, refused: list[str]) -> int:
    added, ours = 0, {row["digest"] for row in database.rows_where("benchmarks", columns="digest")}
    for row in source.rows_where("benchmarks", order_by="id"):
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


def _our_trial(database: Database, source: Database, theirs: int) -> int:
    same = "run_id = ? AND number = ? AND digest = ?"
    for row in source.rows_where("trials", "id = ?", theirs, columns="run_id, number, digest"):
        for ours in database.rows_where("trials", same, *row.values(), columns="id"):
            return int(ours["id"])
    raise Damaged(f"a winner's trial {theirs} in {source.path} was not merged")
