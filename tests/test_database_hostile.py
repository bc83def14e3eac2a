"""Databases made to do harm: refused or read within bounds, and never beyond the reach of Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.stored import PROBLEM, filled
from tests.test_database_files import refused
from tuner.database import cells
from tuner.database.database import Database
from tuner.errors import DatabaseError
from tuner.model import canonical_json


def changed(path: Path, *statements: str) -> None:
    """Run statements on a file behind the database's back, also on the schema itself."""
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


SLOW = "instr(zeroblob(40000000) || x'01', zeroblob(20000000) || x'01')"
"""Takes minutes, and cannot be interrupted."""


def altered(table: str, old: str, new: str) -> str:
    """Return the statement that replaces a piece of a table's definition."""
    return f'''UPDATE sqlite_master SET sql = replace(sql, "{old}", "{new}") WHERE name = '{table}' '''


FOREIGN_SCHEMAS = {
    "trigger": ("CREATE TRIGGER x AFTER INSERT ON trials BEGIN DELETE FROM runs; END",),
    "view": ("CREATE VIEW x AS SELECT * FROM runs",),
    "generated column": (altered("trials", "kernel TEXT NOT NULL", f"kernel TEXT AS ({SLOW}) VIRTUAL"),),
    "generated column of runs": (altered("runs", "dtype TEXT NOT NULL", f"dtype TEXT AS ({SLOW}) VIRTUAL"),),
    "default": (altered("runs", "'cold'", "'warm'"),),
    "check": (altered("runs", "cc INTEGER", "cc INTEGER CHECK (cc > 0)"),),
    "not strict": (altered("runs", ") STRICT", ")"),),
    "index": ("CREATE INDEX x ON trials (status)",),
    "index of an expression": ("CREATE INDEX x ON runs (upper(kernel)) WHERE cc > 0",),
    "table": ("CREATE TABLE x (y)",),
    "virtual table": ("CREATE VIRTUAL TABLE x USING fts4(y)",),
    "statistics": ("ANALYZE",),
    "hostile statistics": (
        "CREATE TABLE x (tbl, idx, stat)",
        "INSERT INTO x VALUES ('trials', 'trials_by_problem', 1)",
        "UPDATE sqlite_master SET name = 'sqlite_stat1', tbl_name = 'sqlite_stat1', "
        f"""sql = 'CREATE TABLE sqlite_stat1 (tbl, idx, stat AS ({SLOW.replace("'", "''")}) VIRTUAL)' """
        "WHERE name = 'x'",
    ),
    "index gone": ("DROP INDEX trials_by_problem",),
    "table renamed": ("ALTER TABLE winners RENAME TO winnerz",),
    "second entry of a name": (
        "INSERT INTO sqlite_master SELECT type, name, tbl_name, 0, 'CREATE VIEW x AS SELECT 1' "
        "FROM sqlite_master WHERE name = 'runs'",
    ),
    "huge text": (
        "INSERT INTO sqlite_master VALUES ('view', 'x', 'x', 0, "
        "'CREATE VIEW x AS SELECT 1 --' || hex(zeroblob(10000000)))",
    ),
    "many views": (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        "INSERT INTO sqlite_master SELECT 'view', 'v' || i, 'v' || i, 0, 'CREATE VIEW v' || i || ' AS SELECT 1' "
        "FROM n",
    ),
}


@pytest.mark.parametrize("statements", FOREIGN_SCHEMAS.values(), ids=FOREIGN_SCHEMAS)
def test_another_schema_is_refused_at_once(path: Path, statements: tuple[str, ...]) -> None:
    changed(path, *statements)
    began = time.monotonic()
    for write in (True, False):
        refused(path, "", write=write)
    assert time.monotonic() - began < 10


def test_a_journal_that_names_a_file_to_delete_is_refused(path: Path, tmp_path: Path) -> None:
    """SQLite deletes the file that a hot journal names as the journal of several databases: any of yours."""
    filled(path)
    victim = tmp_path / "thesis.tex"
    victim.write_text("three years of work\n")

    def numbers(*values: int) -> bytes:
        return b"".join(value.to_bytes(4, "big") for value in values)

    begin, end = bytes.fromhex("d9d505f920a163d7"), bytes.fromhex("d9d505f920a163d7")
    name, pages = str(victim).encode(), path.stat().st_size // 4096
    header = (begin + numbers(0, 1, pages, 512, 4096)).ljust(512, b"\0")
    path.with_name("tuning.db-journal").write_bytes(
        header + numbers((1 << 30) // 4096 + 1) + name + numbers(len(name), sum(name)) + end
    )
    for write in (True, False):
        refused(path, "names another file to delete", write=write)
    assert victim.exists()


def test_a_pipe_in_the_place_of_a_journal_is_not_waited_for(path: Path) -> None:
    filled(path)
    journal = path.with_name("tuning.db-journal")
    journal.unlink(missing_ok=True)
    os.mkfifo(journal)
    refused(path, "is not a file", write=False)


def reseal(path: Path, table: str, number: int, **columns: str) -> None:
    """Change cells of a row behind the database's back, and its digest with them."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,)).fetchone())
        columns["digest"] = cells.row_digest(table, {**row, **columns})
        names = ", ".join(f"{name} = ?" for name in columns)
        connection.execute(f"UPDATE {table} SET {names} WHERE rowid = ?", (*columns.values(), number))
        connection.commit()


@pytest.mark.parametrize("text", ["", "5", "{", "[" * 100_000, "[NaN]"])
def test_sources_that_are_no_list_are_a_finding(path: Path, text: str) -> None:
    filled(path)
    reseal(path, "trials", 2, source_digests=text)
    with Database.open(path, write=False) as database:
        (problem,) = database.check().problems
        assert problem.startswith("trial 2 cannot be read")
        with pytest.raises(DatabaseError, match="trial 2 cannot be read"):
            database.trial(2)


@pytest.mark.parametrize("size", ["x", [1], 1.5, None, {}])
def test_a_problem_whose_sizes_are_no_numbers_is_a_finding(path: Path, size: object) -> None:
    """What computes with sizes gets none of it: not the distance of two problems, not the limits of a header."""
    filled(path)
    sizes = {**PROBLEM.sizes, "k": size}
    problem = {**PROBLEM.to_json(), "sizes": sizes}
    reseal(path, "runs", 1, problem=json.dumps(problem), problem_key=canonical_json(problem))
    with Database.open(path, write=False) as database:
        assert any("cannot be read" in problem for problem in database.check().problems)
        with pytest.raises(DatabaseError, match="cannot be read"):
            database.run("a" * 32)


OF_OTHER_TYPES = [
    ("runs", "versions", "true"),
    ("runs", "versions", '{"nvrtc": 13}'),
    ("runs", "calibration", '{"noise": 5}'),
    ("runs", "calibration", '{"noise": {"cold, rested": "x"}}'),
    ("runs", "narrowing", '{"variants": 5}'),
    ("runs", "narrowing", '{"fixed": {"a": 5}}'),
    ("runs", "gpu", '{"name": "NVIDIA H200", "cc": 90, "sm_count": "many"}'),
    ("trials", "tags", '{"a": 1}'),
    ("trials", "verification", '{"passed": "yes", "worst_ratio": 0, "norm_error": 0}'),
    ("trials", "created_at", "yesterday"),
    ("winners", "race", "[]"),
    ("winners", "created_at", ""),
]


@pytest.mark.parametrize(("table", "column", "text"), OF_OTHER_TYPES)
def test_a_cell_of_another_type_is_a_finding(path: Path, table: str, column: str, text: str) -> None:
    filled(path)
    reseal(path, table, 1, **{column: text})
    with Database.open(path, write=False) as database:
        assert any(re.search("[1a] cannot be read", problem) for problem in database.check().problems)
