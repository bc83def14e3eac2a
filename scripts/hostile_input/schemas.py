"""Hostile schemas: what a table computes, what stands in the place of one, what ``sqlite_master`` says."""

from __future__ import annotations

import itertools
import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

WORDS = {
    "table": ("runs", "trials", "sources", "attempts", "winners", "benchmarks"),
    "name": ("bomb", "\x1b[2J", "a b", 'a""b', "select", "ignored;--", "id2", "digest2", "é"),
    "kind": ("TEXT", "BLOB", "INTEGER"),
    "event": ("AFTER INSERT", "BEFORE UPDATE", "AFTER DELETE"),
    "module": ("fts5(a)", "fts4(a)", "fts3(a)", "rtree(i, a, b)", "dbstat"),
    "absent": ("unknown(x)", "csv(victim)"),
    "count": ("1", "2", "3", "-1", "2147483648"),
    "text": ("NULL", "''", "'CREATE'", "'SELECT 1'", "hex(zeroblob(500000))", "'CREATE TABLE runs'"),
    "statistics": ("''", "'x'", "'-1 -1'", "hex(zeroblob(200))", "'0 0 0 0 unordered sz=0 noskipscan'"),
    "other": (
        "'TEXT', 'BLOB'", "'TEXT', 'TEXT COLLATE unknown'", "'TEXT', 'TEXT COLLATE nocase'", "'INTEGER', 'REAL'",
        "' STRICT', ''", "' STRICT', ' WITHOUT ROWID'", "'PRIMARY KEY', ''", "'NOT NULL', ''", "'REAL', 'ANY'",
        "'UNIQUE', 'CHECK'", "'REFERENCES runs(id)', 'REFERENCES trials(id)'", "'INTEGER PRIMARY KEY', 'INTEGER'",
    ),
    "bomb": (
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
    ),
}  # fmt: skip
"""What a word of a change is drawn from; the same word is the same in all of its statements."""
MASTER = "UPDATE sqlite_master SET"
INSIDE = f"{MASTER} sql = rtrim(rtrim(rtrim(sql, 'STRICT')), ')') || ', %s) STRICT' WHERE name = '{{table}}'"
"""Adds a column or a constraint at the end of a table's text."""
RENAMED = "PRAGMA legacy_alter_table = ON; ALTER TABLE {table} RENAME TO old"
SCHEMAS = {
    "generated": (
        'ALTER TABLE {table} ADD COLUMN "{name}" {kind} GENERATED ALWAYS AS ({bomb}) VIRTUAL',
        INSIDE % '"{name}" {kind} GENERATED ALWAYS AS ({quoted}) VIRTUAL',
        INSIDE % '"{name}" {kind} GENERATED ALWAYS AS ({quoted}) STORED',
        f"{MASTER} sql = replace(sql, 'kernel TEXT NOT NULL', 'kernel TEXT GENERATED ALWAYS AS ({{quoted}})')",
    ),
    "constraint": (INSIDE % "CHECK ({quoted} IS NOT 5)", INSIDE % '"{name}" TEXT DEFAULT ({quoted})'),
    "index": tuple(
        f"CREATE INDEX i ON winners (kernel); {MASTER} sql = 'CREATE {text}' WHERE name = 'i'"
        for text in (
            "INDEX i ON winners ({quoted})",
            "INDEX i ON winners (kernel) WHERE {quoted}",
            "UNIQUE INDEX i ON winners (kernel)",
            "INDEX i ON winners (kernel COLLATE nocase)",
        )
    ),
    "view": (
        f"{RENAMED}; CREATE VIEW {{table}} AS SELECT *, {{bomb}} AS bomb FROM old",
        f"{RENAMED}; CREATE VIEW {{table}} AS SELECT * FROM {{table}}",
        f"{RENAMED}; CREATE VIEW {{table}} AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "
        "SELECT n AS id FROM c",
    ),
    "trigger": (
        'CREATE TRIGGER "{name}" {event} ON {table} BEGIN DELETE FROM trials; END',
        'CREATE TRIGGER "{name}" {event} ON {table} BEGIN SELECT {bomb}; END',
        'CREATE TRIGGER "{name}" {event} ON {table} BEGIN UPDATE winners SET exportable = 1; END',
        f"CREATE TRIGGER t {{event}} ON {{table}} BEGIN SELECT 1; END; {MASTER} type = 'Trigger' WHERE name = 't'",
    ),
    "virtual": (
        f"{RENAMED}; CREATE VIRTUAL TABLE {{table}} USING {{module}}",
        "CREATE VIRTUAL TABLE more USING {module}",
        "INSERT INTO sqlite_master VALUES ('table', 'more', 'more', 0, 'CREATE VIRTUAL TABLE more USING {absent}')",
    ),
    "columns": (
        'ALTER TABLE {table} RENAME COLUMN digest TO "{name}"',
        "ALTER TABLE {table} DROP COLUMN kernel",
        "; ".join(f"ALTER TABLE {{table}} ADD COLUMN c{number} TEXT DEFAULT 'x'" for number in range(300)),
        "ALTER TABLE {table} ADD COLUMN \"{name}\" TEXT DEFAULT 'x'",
        "DROP TABLE {table}",
    ),
    "types": (f"{MASTER} sql = replace(sql, {{other}}) WHERE name = '{{table}}'",),
    "master": (
        f"{MASTER} sql = {{text}} WHERE name = '{{table}}'",
        f"{MASTER} rootpage = {{count}} WHERE name = '{{table}}'",
        f"{MASTER} rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'runs')",
        f"{MASTER} name = '\x1b[2J' WHERE name = '{{table}}'",
        f"{MASTER} name = 'sqlite_x' WHERE name = '{{table}}'",
        f"{MASTER} type = 'x' WHERE name = '{{table}}'",
        "INSERT INTO sqlite_master SELECT * FROM sqlite_master WHERE name = '{table}'",
    ),
    "statistics": (
        "ANALYZE; UPDATE sqlite_stat1 SET stat = {statistics}",
        f"ANALYZE; {MASTER} sql = 'CREATE TABLE sqlite_stat1(tbl)' WHERE name = 'sqlite_stat1'",
    ),
}
"""By name: scripts, one of which is drawn."""


def change_schema(path: Path, kind: str, rng: random.Random) -> None:
    """Change a database's schema by all means; what SQLite refuses is left out."""
    drawn = {word: rng.choice(choices) for word, choices in WORDS.items()}
    script = rng.choice(SCHEMAS[kind]).format(**drawn, quoted=drawn["bomb"].replace("'", "''"))
    steps = itertools.count()
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as connection,
        suppress(sqlite3.Error, sqlite3.Warning),
    ):
        connection.set_progress_handler(lambda: next(steps) > 2000, 10_000)
        connection.executescript(f"PRAGMA trusted_schema = ON; PRAGMA writable_schema = ON; {script}")
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute(f"PRAGMA schema_version = {version + 1}")
