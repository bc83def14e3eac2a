"""The database's tables, as steps in plain SQL from each version to the next; a new file takes all of them.

A step that was released is never changed: files in the world have gone through it. So it names every column itself,
and asks nothing of the code that reads and writes the newest version but what a cell holds.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tuner.core.errors import DatabaseError
from tuner.database import cells, owners

VERSION_1 = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, started_at TEXT NOT NULL, ended_at TEXT, state TEXT NOT NULL, owner TEXT NOT NULL,
  kernel TEXT NOT NULL, kernel_file TEXT NOT NULL, kernel_digest TEXT NOT NULL,
  problem TEXT NOT NULL, problem_key TEXT NOT NULL, dtype TEXT NOT NULL,
  device TEXT NOT NULL, replayed INTEGER NOT NULL,
  gpu_name TEXT NOT NULL, gpu_uuid TEXT NOT NULL, cc INTEGER NOT NULL, gpu TEXT NOT NULL,
  driver TEXT NOT NULL,
  versions TEXT NOT NULL, seed INTEGER NOT NULL, sampler TEXT NOT NULL, trials_requested INTEGER NOT NULL,
  lookahead INTEGER NOT NULL, narrowing TEXT NOT NULL, stats TEXT NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE TABLE trials (
  id INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
  kernel TEXT NOT NULL, variant TEXT NOT NULL, problem_key TEXT NOT NULL, dtype TEXT NOT NULL,
  gpu_name TEXT NOT NULL, cc INTEGER NOT NULL, replayed INTEGER NOT NULL,
  configuration TEXT NOT NULL, status TEXT NOT NULL,
  time_ns REAL, ci_low_ns REAL, ci_high_ns REAL, samples BLOB NOT NULL, sample_count INTEGER NOT NULL,
  tflops REAL, gbytes_per_s REAL, speed_of_light REAL,
  registers INTEGER, static_shared_bytes INTEGER, dynamic_shared_bytes INTEGER, stack_bytes INTEGER,
  spill_bytes INTEGER, active_blocks INTEGER,
  verification TEXT, error TEXT NOT NULL, source_digests TEXT NOT NULL, compile_log TEXT NOT NULL,
  compile_s REAL NOT NULL, measure_s REAL NOT NULL, tags TEXT NOT NULL, created_at TEXT NOT NULL,
  digest TEXT NOT NULL, UNIQUE (run_id, number)
) STRICT;
CREATE INDEX trials_by_problem ON trials (kernel, problem_key, gpu_name, time_ns);
CREATE TABLE sources (digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE attempts (
  id INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
  variant TEXT NOT NULL, configuration TEXT NOT NULL, configuration_key TEXT NOT NULL,
  started_at TEXT NOT NULL
) STRICT;
CREATE INDEX attempts_by_run ON attempts (run_id, number);
CREATE TABLE winners (
  id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE REFERENCES runs(id),
  trial_id INTEGER NOT NULL REFERENCES trials(id), kernel TEXT NOT NULL, problem_key TEXT NOT NULL,
  dtype TEXT NOT NULL, gpu_name TEXT NOT NULL, cc INTEGER NOT NULL, replayed INTEGER NOT NULL,
  variant TEXT NOT NULL, configuration TEXT NOT NULL, time_ns REAL NOT NULL,
  default_trial_id INTEGER REFERENCES trials(id), default_time_ns REAL,
  ratio REAL, ratio_low REAL, ratio_high REAL, verdict TEXT NOT NULL, confirmed_ns REAL,
  edges_verified INTEGER NOT NULL, exportable INTEGER NOT NULL, reason TEXT NOT NULL, race TEXT NOT NULL,
  created_at TEXT NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE INDEX winners_by_problem ON winners (kernel, problem_key, gpu_name, time_ns);
CREATE INDEX winners_by_trial ON winners (trial_id);
CREATE INDEX winners_by_default_trial ON winners (default_trial_id);
"""


VERSION_2 = """
ALTER TABLE runs ADD COLUMN mode TEXT NOT NULL DEFAULT 'cold';
ALTER TABLE runs ADD COLUMN regime TEXT NOT NULL DEFAULT 'rested';
ALTER TABLE runs ADD COLUMN calibration TEXT NOT NULL DEFAULT 'null';
ALTER TABLE trials ADD COLUMN mode TEXT NOT NULL DEFAULT 'cold';
ALTER TABLE trials ADD COLUMN regime TEXT NOT NULL DEFAULT 'rested';
ALTER TABLE trials ADD COLUMN sm_clock_hz REAL NOT NULL DEFAULT 0;
ALTER TABLE trials ADD COLUMN capped_samples INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trials ADD COLUMN outliers INTEGER NOT NULL DEFAULT 0;
ALTER TABLE winners ADD COLUMN mode TEXT NOT NULL DEFAULT 'cold';
ALTER TABLE winners ADD COLUMN regime TEXT NOT NULL DEFAULT 'rested';
CREATE TABLE benchmarks (
  id INTEGER PRIMARY KEY, bench TEXT NOT NULL, kernel TEXT NOT NULL, kernel_digest TEXT NOT NULL,
  problem TEXT NOT NULL, problem_key TEXT NOT NULL, dtype TEXT NOT NULL,
  gpu_name TEXT NOT NULL, gpu_uuid TEXT NOT NULL, cc INTEGER NOT NULL, gpu TEXT NOT NULL,
  driver TEXT NOT NULL, mode TEXT NOT NULL, regime TEXT NOT NULL,
  contestant TEXT NOT NULL, variant TEXT, configuration TEXT, winner_run TEXT,
  time_ns REAL NOT NULL, ci_low_ns REAL NOT NULL, ci_high_ns REAL NOT NULL,
  samples BLOB NOT NULL, sample_count INTEGER NOT NULL,
  ratio REAL, ratio_low REAL, ratio_high REAL, verdict TEXT NOT NULL, noise_floor REAL NOT NULL,
  sm_clock_hz REAL NOT NULL, tags TEXT NOT NULL, versions TEXT NOT NULL, created_at TEXT NOT NULL,
  digest TEXT NOT NULL
) STRICT;
CREATE INDEX benchmarks_by_problem ON benchmarks (kernel, problem_key, gpu_name, created_at);
"""


VERSION_3 = """
ALTER TABLE runs ADD COLUMN computation TEXT NOT NULL DEFAULT '';
ALTER TABLE trials ADD COLUMN implementation TEXT NOT NULL DEFAULT '';
ALTER TABLE benchmarks ADD COLUMN computation TEXT NOT NULL DEFAULT '';
CREATE INDEX trials_by_run ON trials (run_id, status, variant, time_ns, number, created_at, tflops, gbytes_per_s,
  speed_of_light, registers);
"""
"""No row is sealed anew: an added column counts in a row's digest where it is not empty (``cells.ADDED``).

The index holds all of a trial that lists filter and sort by, in a tenth of the table's size.
"""


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of version 1."""
    _execute(connection, VERSION_1)


def add_conditions(connection: sqlite3.Connection) -> None:
    """Say how each time was taken, and make room for benchmarks.

    Version 1 knew one way: cold and rested. Rows that were intact are sealed anew; the digest of a damaged one
    fits the new row as little as the old.

    Raises:
        DatabaseError: a tuner that knows only version 1 is working on the file; it would go on writing its rows.
    """
    _refuse_going_on(connection)
    _execute(connection, VERSION_2)
    _reseal(
        connection,
        "runs",
        {"digest", "state", "ended_at", "stats", "owner"},
        {"mode", "regime", "calibration"},
    )
    added = {"mode", "regime", "sm_clock_hz", "capped_samples", "outliers"}
    _reseal(connection, "trials", {"id", "digest"}, added)
    _reseal(connection, "winners", {"id", "digest"}, {"mode", "regime"})


def add_identities(connection: sqlite3.Connection) -> None:
    """Make room for what identifies a computation and how it is done.

    Rows of before have neither. A run's are filled in when its kernel is tuned again and its text is still the same
    (:meth:`tuner.database.database.Database.adopt_runs`).
    """
    _execute(connection, VERSION_3)


def _refuse_going_on(connection: sqlite3.Connection) -> None:
    """Refuse a file that another process, which knows only its present version, is working on."""
    runs = connection.execute("SELECT id, owner FROM runs WHERE state = 'running'").fetchall()
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    for run, owner in runs:
        if owners.alive(owner) or owners.RunLocks(path).taken(run):
            raise DatabaseError(
                f"run {run} is still going in {owners.described(owner)}, an older kernel-tune",
                "wait for it, or end it",
            )


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):  # executescript would end the transaction
        if statement.strip():
            connection.execute(statement)


def _reseal(connection: sqlite3.Connection, table: str, ignored: set[str], added: set[str]) -> None:
    numbers = [row[0] for row in connection.execute(f"SELECT rowid FROM {table} NOT INDEXED")]
    for number in numbers:
        cursor = connection.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,))
        row = dict(cursor.fetchone() or {})  # none where a damaged page has its rows out of order
        try:
            if cells.content_digest(row, ignored | added) != row["digest"]:
                continue
            more = _trial_of_version_2(row) if table == "trials" else {}
        except (LookupError, ValueError, TypeError, zlib.error):
            continue
        more["digest"] = cells.content_digest({**row, **more}, ignored)
        names = ", ".join(f"{name} = ?" for name in more)
        connection.execute(f"UPDATE {table} SET {names} WHERE rowid = ?", (*more.values(), number))


def _trial_of_version_2(row: dict[str, Any]) -> dict[str, Any]:
    """Count the outliers; what was ``untrusted`` is now one of two, and the error says which."""
    more = {"outliers": cells.outliers_in(row["samples"], row["sample_count"])}
    if row["status"] != "untrusted":
        return more
    return {**more, "status": "too_fast" if "than the hardware needs" in row["error"] else "clock_mismatch"}


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    create_tables,
    add_conditions,
    add_identities,
)
"""The step at index i takes a file from version i to version i + 1."""
