"""Databases made to do harm: refused or read within bounds, and never beyond the reach of Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import tracemalloc
import zlib
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.stored import PROBLEM, filled, make_run, make_trial, refused
from tuner.core.errors import DatabaseError
from tuner.core.model import canonical_json
from tuner.database import cells
from tuner.database.database import Database
from tuner.database.records import Filters


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
    "not strict": (altered("runs", ") STRICT", ")"),),
    "index": ("CREATE INDEX x ON trials (status)",),
    "virtual table": ("CREATE VIRTUAL TABLE x USING fts4(y)",),
    "hostile statistics": (
        "CREATE TABLE x (tbl, idx, stat)",
        "INSERT INTO x VALUES ('trials', 'trials_by_problem', 1)",
        "UPDATE sqlite_master SET name = 'sqlite_stat1', tbl_name = 'sqlite_stat1', "
        f"""sql = 'CREATE TABLE sqlite_stat1 (tbl, idx, stat AS ({SLOW.replace("'", "''")}) VIRTUAL)' """
        "WHERE name = 'x'",
    ),
    "index gone": ("DROP INDEX trials_by_problem",),
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
    began = time.process_time()
    for write in (True, False):
        refused(path, write=write)
    assert time.process_time() - began < 60  # a second; what is slow there takes minutes


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


def test_a_journal_of_a_longer_file_is_refused(path: Path) -> None:
    """SQLite makes the database as long as a hot journal says that it was, up to eight terabytes."""
    filled(path)
    size = path.stat().st_size
    numbers = (0, 1, 2**31 - 1, 512, 4096)
    header = bytes.fromhex("d9d505f920a163d7") + b"".join(number.to_bytes(4, "big") for number in numbers)
    path.with_name("tuning.db-journal").write_bytes(header.ljust(512, b"\0"))
    refused(path, "a longer one", write=False)
    assert path.stat().st_size == size


def test_a_pipe_in_the_place_of_a_journal_is_not_waited_for(path: Path) -> None:
    filled(path)
    journal = path.with_name("tuning.db-journal")
    journal.unlink(missing_ok=True)
    os.mkfifo(journal)
    refused(path, "is not a file", write=False)


def reseal(path: Path, table: str, number: int, **columns: str | bytes | int) -> None:
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


@pytest.mark.parametrize("text", ["5", "[]", "{", '{"a": [1]}', '{"a": null}'])
def test_parameters_that_are_no_values_are_no_columns(path: Path, text: str) -> None:
    filled(path, count=2)
    reseal(path, "trials", 2, configuration=text)
    with Database.open(path, write=False) as database:
        assert database.nested_names(Filters())["parameters"] == list(make_trial(0).configuration.values)


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
    ("trials", "configuration", '{"block": [1]}'),
    ("trials", "configuration", f'{{"block": {10**400}}}'),
    ("winners", "race", "[]"),
    ("winners", "race", '{"warm": 5}'),
    ("winners", "race", '{"warm": {"time_ns": "fast", "counts": true}}'),
    ("winners", "created_at", ""),
]


@pytest.mark.parametrize(("table", "column", "text"), OF_OTHER_TYPES)
def test_a_cell_of_another_type_is_a_finding(path: Path, table: str, column: str, text: str) -> None:
    filled(path)
    reseal(path, table, 1, **{column: text})
    with Database.open(path, write=False) as database:
        assert any(re.search("[1a] cannot be read", problem) for problem in database.check().problems)


def resealed(path: Path, **changes: str | bytes | int) -> None:
    """Change cells of all trials of a filled database, and give each row the digest that fits."""
    for number in range(1, len(filled(path)) + 1):
        reseal(path, "trials", number, **changes)


WARM_RACE = (
    '{"warm": {"time_ns": %d, "ratio": null, "ratio_low": null, "ratio_high": null, "verdict": "", "behind": 1.0, '
    '"behind_in_mode": 1.0, "counts": true}}'
)
IMPOSSIBLE_TIMES = [
    *((table, {"time_ns": time_ns}) for table in ("trials", "winners") for time_ns in (0.0, -5.0)),
    ("trials", {"ci_low_ns": 0.0}),
    ("winners", {"confirmed_ns": -1.0}),
    ("winners", {"default_time_ns": 0.0}),
    ("winners", {"race": WARM_RACE % 0}),
]


@pytest.mark.parametrize(("table", "changes"), IMPOSSIBLE_TIMES)
def test_a_time_that_none_can_be_is_a_finding_and_never_the_best(
    path: Path, table: str, changes: dict[str, object]
) -> None:
    filled(path)
    with Database.open(path) as database:
        before = database.query(sort="time").rows
    number = before[-1].trial.id
    assert number is not None
    reseal(path, table, number if table == "trials" else 1, **changes)
    with Database.open(path, write=False) as database:
        assert any("cannot be read: its " in problem for problem in database.check().problems)
        left = database.query(sort="time").rows
        assert [one.trial.id for one in left] == [
            one.trial.id for one in before if table == "winners" or one.trial.id != number
        ]
        assert not (table == "winners" and database.best().rows)
        known = database.earlier_trials(make_run("c" * 32))
        assert all(one.time_ns is None or one.time_ns > 0 for one in known)
    with Database.open(path.with_name("merged.db")) as merged:
        assert any("cannot be read: its " in refused for refused in merged.merge(path).refused)
        assert merged.check().problems == []


def test_a_possible_time_is_read(path: Path) -> None:
    filled(path)
    reseal(path, "winners", 1, race=WARM_RACE % 7)
    with Database.open(path, write=False) as database:
        assert database.check().problems == []
        assert database.best().rows[0].winner.warm is not None


def test_more_samples_than_any_timing_takes_are_not_decoded(path: Path) -> None:
    count = 1 << 24
    resealed(path, samples=zlib.compress(bytes(4 * count)), sample_count=count)
    tracemalloc.start()
    with Database.open(path, write=False) as database:
        selection = database.query()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (selection.rows, len(selection.damaged)) == ([], 3)
    assert peak < 20e6


@pytest.mark.parametrize("column", ["configuration", "tags", "error", "verification"])
def test_a_cell_longer_than_what_is_written_is_damage(path: Path, column: str) -> None:
    resealed(path, **{column: '{"a": "' + "a" * (1 << 21) + '"}'})
    with Database.open(path, write=False) as database:
        selection = database.query()
        assert (selection.rows, len(selection.damaged)) == ([], 3)


def test_what_a_reader_would_refuse_is_not_written(path: Path) -> None:
    filled(path)
    run = make_run("b" * 32)
    with Database.open(path) as database:
        database.start_run(run)
        for changes in ({"samples_ns": (1.0,) * 100_000}, {"tags": ("a" * (1 << 19),)}):
            with pytest.raises(DatabaseError, match="too many"):
                database.record(run.id, replace(make_trial(0), **changes))
        database.record(run.id, replace(make_trial(0), error="a" * (1 << 21)))  # is cut off
        assert database.check().problems == []


def test_pages_that_are_each_others_children_do_not_hang_a_reader(path: Path) -> None:
    """An interior page whose children are all one page has more rows with each level: here 100 ** 8 and more."""
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'attempts'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    data = bytearray(path.read_bytes())
    levels, children = 8, 100
    chain = [root, *range(pages + 1, pages + levels + 1)]
    data += bytes(size * levels)
    for page, child in pairwise(chain):
        cell = child.to_bytes(4, "big") + b"\x01"
        ends = [size - len(cell) * (i + 1) for i in range(children)]
        header = b"\x05\0\0" + children.to_bytes(2, "big") + ends[-1].to_bytes(2, "big") + b"\0"
        pointers = b"".join(end.to_bytes(2, "big") for end in ends)
        start = (page - 1) * size
        front = header + child.to_bytes(4, "big") + pointers
        data[start : start + size] = front + bytes(size - len(front) - len(cell) * children) + cell * children
    leaf = (chain[-1] - 1) * size
    record = bytes([8, 0, 0, 0, 0, 0, 0, 0])  # its header alone: every column is NULL
    cell = bytes([len(record), 1]) + record
    at = (size - len(cell)).to_bytes(2, "big")
    front = b"\x0d\0\0\0\x01" + at + b"\0" + at
    data[leaf : leaf + size] = front + bytes(size - len(front) - len(cell)) + cell
    data[28:32] = (pages + levels).to_bytes(4, "big")
    path.write_bytes(data)
    code = "import sys; from tuner.database import hostile; from tuner.database.database import Database\n"
    code += "hostile.LEAST_STEPS = 2_000_000\n"  # of 50 million, which take seconds
    code += "with Database.open(sys.argv[1], write=False) as database:\n"
    code += "    database.select('SELECT count(number) FROM attempts NOT INDEXED')"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=200)
    assert "DatabaseError" in done.stderr
    with pytest.raises(DatabaseError, match="damaged"):
        Database.open(path)
