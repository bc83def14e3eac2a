"""Hostile schemas: what a table computes, what stands in the place of one, what ``sqlite_master`` says."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

TABLES = ("runs", "trials", "sources", "attempts", "winners", "benchmarks")
BOMBS = (
    "instr(zeroblob(40000000) || x'01', zeroblob(20000000) || x'01')",
    "zeroblob(900000000)",
    "hex(zeroblob(400000000))",
    "replace(hex(zeroblob(30000000)), '0', 'aaaaaaaaaa')",
    "printf('%.*c', 900000000, 'x')",
    "like(printf('%.*c', 30000, '%a'), printf('%.*c', 40000, 'a'))",
    "randomblob(800000000)",
    "json_extract(printf('%.*c', 50000000, '['), '$')",
    "abs(-9223372036854775807 - 1)",
    "load_extension('victim')",
    "char(27) || ']0;x' || char(7)",
)
NAMES = ("bomb", "\x1b[2J", "a b", 'a"b', "select", "ignored;--", "id2", "digest2", "é")


def with_schema(
    path: Path, change: Callable[[sqlite3.Connection, random.Random], None], rng: random.Random
) -> None:
    """Let a function change a database's schema by all means; what SQLite refuses is left out."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA trusted_schema = ON")
        with suppress(sqlite3.Error, AttributeError):
            connection.execute("PRAGMA writable_schema = ON")
        deadline = [0]

        def stop() -> int:
            deadline[0] += 1
            return int(deadline[0] > 2000)

        connection.set_progress_handler(stop, 10_000)
        with suppress(sqlite3.Error, sqlite3.Warning):
            change(connection, rng)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(connection: sqlite3.Connection, table: str, change: Callable[[str], str]) -> None:
    """Change a table's text in sqlite_master."""
    (old,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (change(old), table))
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    connection.execute(f"PRAGMA schema_version = {version + 1}")


def _inside(text: str, more: str) -> str:
    """Add a column or constraint at the end of a table's text."""
    at = text.rindex(")")
    return f"{text[:at]}, {more}{text[at:]}"


def generated_column(connection: sqlite3.Connection, rng: random.Random) -> None:
    table, name = rng.choice(TABLES), _quoted(rng.choice(NAMES))
    kind = rng.choice(["VIRTUAL", "VIRTUAL", "STORED"])
    column = (
        f"{name} {rng.choice(['TEXT', 'BLOB', 'INTEGER'])} GENERATED ALWAYS AS ({rng.choice(BOMBS)}) {kind}"
    )
    if kind == "VIRTUAL" and rng.random() < 0.5:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    else:
        _text(connection, table, lambda text: _inside(text, column))


def generated_over_a_column(connection: sqlite3.Connection, rng: random.Random) -> None:
    """Compute one of the tables' own columns."""
    table = rng.choice(["runs", "trials", "winners"])
    _text(
        connection,
        table,
        lambda text: text.replace(
            "kernel TEXT NOT NULL", f"kernel TEXT GENERATED ALWAYS AS ({rng.choice(BOMBS)})", 1
        ),
    )


def check_constraint(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    _text(connection, table, lambda text: _inside(text, f"CHECK ({rng.choice(BOMBS)} IS NOT 5)"))


def default_value(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    column = f"{_quoted(rng.choice(NAMES))} TEXT DEFAULT ({rng.choice(BOMBS)})"
    _text(connection, table, lambda text: _inside(text, column))


def expression_index(connection: sqlite3.Connection, rng: random.Random) -> None:
    """An index over an expression, or of some rows only, made as a plain one whose text is then changed."""
    table = rng.choice(["runs", "trials", "winners", "benchmarks"])
    name = _quoted(rng.choice(NAMES))
    connection.execute(f"CREATE INDEX {name} ON {table} (kernel)")
    bomb = rng.choice(BOMBS)
    text = rng.choice(
        [f"CREATE INDEX {name} ON {table} ({bomb})", f"CREATE INDEX {name} ON {table} (kernel) WHERE {bomb}",
         f"CREATE UNIQUE INDEX {name} ON {table} (kernel)", f"CREATE INDEX {name} ON {table} (kernel COLLATE nocase)"]
    )  # fmt: skip
    connection.execute(
        "UPDATE sqlite_master SET sql = ? WHERE type = 'index' AND name = ?", (text, name.strip('"'))
    )


def view_for_a_table(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    body = rng.choice(
        [f"SELECT *, {rng.choice(BOMBS)} AS bomb FROM old", f"SELECT * FROM {table}",
         "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n AS id FROM c"]
    )  # fmt: skip
    connection.execute("PRAGMA legacy_alter_table = ON")
    connection.execute(f"ALTER TABLE {table} RENAME TO old")
    connection.execute(f"CREATE VIEW {table} AS {body}")


def trigger(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    event = rng.choice(["INSERT", "UPDATE", "DELETE"])
    body = rng.choice(
        ["DELETE FROM trials", f"SELECT {rng.choice(BOMBS)}", "UPDATE winners SET exportable = 1"]
    )
    name = _quoted(rng.choice(NAMES))
    connection.execute(
        f"CREATE TRIGGER {name} {rng.choice(['AFTER', 'BEFORE'])} {event} ON {table} BEGIN {body}; END"
    )
    if rng.random() < 0.4:
        connection.execute("UPDATE sqlite_master SET type = 'Trigger' WHERE type = 'trigger'")


def virtual_table(connection: sqlite3.Connection, rng: random.Random) -> None:
    module = rng.choice(
        ["fts5(a)", "fts4(a)", "fts3(a)", "rtree(i, a, b)", "dbstat", "unknown(x)", "csv(victim)"]
    )
    table = rng.choice([*TABLES, "more"])
    if table != "more":
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute(f"ALTER TABLE {table} RENAME TO old")
    if module.startswith(("unknown", "csv")):
        connection.execute(
            "INSERT INTO sqlite_master VALUES ('table', ?, ?, 0, ?)",
            (table, table, f"CREATE VIRTUAL TABLE {table} USING {module}"),
        )
    else:
        connection.execute(f"CREATE VIRTUAL TABLE {table} USING {module}")


def other_columns(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    kind = rng.randrange(5)
    if kind == 0:
        connection.execute(
            f"ALTER TABLE {table} RENAME COLUMN {rng.choice(names)} TO {_quoted(rng.choice(NAMES))}"
        )
    elif kind == 1:
        column = rng.choice(names)
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    elif kind == 2:
        for number in range(rng.choice([1, 300, 1500])):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN c{number} TEXT DEFAULT 'x'")
    elif kind == 3:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(rng.choice(NAMES))} TEXT DEFAULT 'x'")
    else:
        connection.execute(f"DROP TABLE {table}")


def other_types(connection: sqlite3.Connection, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    old, new = rng.choice(
        [("TEXT", "BLOB"), ("TEXT", "TEXT COLLATE unknown"), ("TEXT", "TEXT COLLATE nocase"), ("INTEGER", "REAL"),
         (" STRICT", ""), (" STRICT", " WITHOUT ROWID"), ("PRIMARY KEY", ""), ("NOT NULL", ""), ("REAL", "ANY"),
         ("UNIQUE", "CHECK"), ("REFERENCES runs(id)", "REFERENCES trials(id)"), ("INTEGER PRIMARY KEY", "INTEGER")]
    )  # fmt: skip
    _text(connection, table, lambda text: text.replace(old, new))


def nonsense_in_the_master(connection: sqlite3.Connection, rng: random.Random) -> None:
    kind = rng.randrange(6)
    name = rng.choice([*TABLES, "trials_by_problem"])
    if kind == 0:
        texts = [
            None,
            "",
            "CREATE",
            "SELECT 1",
            "CREATE TABLE " + name,
            "x" * 1_000_000,
            "CREATE TABLE t(a);" * 2000,
        ]
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (rng.choice(texts), name))
    elif kind == 1:
        root = rng.choice([0, 1, 2, 3, -1, 2**31, 10**6])
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (root, name))
    elif kind == 2:
        connection.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'runs')"
        )
    elif kind == 3:
        new = rng.choice(["\x1b[2J", "", "sqlite_x", "a" * 100_000])
        connection.execute("UPDATE sqlite_master SET name = ? WHERE name = ?", (new, name))
    elif kind == 4:
        connection.execute(
            "UPDATE sqlite_master SET type = ? WHERE name = ?", (rng.choice(["x", "", "TABLE"]), name)
        )
    else:
        connection.execute("INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = ?", (name,))


def statistics_of_nonsense(connection: sqlite3.Connection, rng: random.Random) -> None:
    connection.execute("ANALYZE")
    text = rng.choice(
        ["", "x", "-1 -1", "9" * 400, "1 " * 100_000, "0 0 0 0 unordered sz=0 noskipscan", "\x1b[2J"]
    )
    connection.execute("UPDATE sqlite_stat1 SET stat = ?", (text,))
    if rng.random() < 0.3:
        connection.execute(
            "UPDATE sqlite_master SET sql = 'CREATE TABLE sqlite_stat1(tbl)' WHERE name = 'sqlite_stat1'"
        )


SCHEMAS: list[Callable[[sqlite3.Connection, random.Random], None]] = [
    generated_column, generated_column, generated_column, generated_over_a_column, check_constraint,
    default_value, expression_index, expression_index, view_for_a_table, trigger, virtual_table,
    other_columns, other_types, nonsense_in_the_master, nonsense_in_the_master, statistics_of_nonsense,
]  # fmt: skip
