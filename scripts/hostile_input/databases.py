"""Databases whose rows have right digests, and which are hostile all the same.

Each begins as a copy of one that the tuner wrote; rows are changed and sealed anew, the schema is changed by hand.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from scripts.hostile_input import values
from scripts.hostile_input.beside import FILES, NAME
from scripts.hostile_input.schemas import SCHEMAS, change_schema
from tuner.core.model import Problem, digest
from tuner.database import cells, opening

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Change = Callable[[Tables, random.Random], None]
NO_JSON = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
MISSING = "f" * 32
PATHS = (
    "/etc/passwd", "/dev/zero", "/dev/stdin", "/dev/full", "/proc/self/environ", "/proc/self/mem", ".", "..", "/",
    "fifo", "loop", "../victim", "~root/x", "x" * 300, "x/" * 3000, "", "\0", "http://localhost/x.toml",
    "tuning.db", "gemm.toml", "evil.toml", "a\nb", "\x1b[2J", "-h", "--db",
)  # fmt: skip
"""Where a path of a stored row may point."""
OTHER_TYPES = (None, b"", b"\xff\xfe\x00", "text", 5, 1.5, "", b"\x1b[2J", 2**62, "9" * 400)


def template(folder: Path, run: Callable[..., int]) -> Path:
    """Write the database that all begin as: replayed runs, one of them unfinished, and a measured one."""
    from tests.stored import filled, make_benchmark, make_run

    path = folder / NAME
    small = ("--sampler", "random", "--device", "replay", "--db", NAME, "-q")
    for arguments in (
        ("--kernel", "vector_add", "--trials", "8", *small),
        ("--kernel", "vector_add", "--trials", "6", "--seed", "1", *small),
        ("--kernel", "gemm", "--trials", "5", *small),
    ):
        if run(*arguments):
            raise SystemExit(f"the template cannot be made: tune {' '.join(arguments)}")
    filled(path, make_run())
    from tuner.database.database import Database

    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(), make_benchmark("torch"), make_benchmark("default")])
        _add_portfolio(database)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE runs SET state = 'interrupted', ended_at = NULL WHERE seed = 1 AND kernel = 'vector_add'"
        )
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def _add_portfolio(database: Any) -> None:
    """Add one of few sizes, as a simulated GPU times them."""
    from tests.simulated_gpu import SimulatedGpu
    from tuner.cli.options import ProblemTexts
    from tuner.cli.problems import make_problems
    from tuner.kernel.load import load_kernel
    from tuner.report.progress import counting
    from tuner.studies.portfolio import Building
    from tuner.studies.portfolio_races import PortfolioRequest

    kernel = load_kernel("gemm")
    given = ProblemTexts(dtypes=["bfloat16"], problem_texts=["m=64|4096,n=2048,k=1024"])
    problems = make_problems(kernel, given)
    request = PortfolioRequest(kernel, tuple(problems), searched=0)
    Building(request, SimulatedGpu(), database, counting(quiet=True)).run()


def write(folder: Path, start: Path, seed: str, number: int) -> str:
    """Write one hostile database; returns what was done to it."""
    rng = random.Random(f"{seed} database {number}")
    path = folder / NAME
    shutil.copy(start, path)
    (folder / "victim").write_text("untouched\n")
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    first = CHANGES[number % len(CHANGES)]
    chosen = {*rng.sample([kind for kind in ROWS if kind != first], rng.choice([0, 0, 1, 2])), first}
    ordered = [kind for kind in dict.fromkeys(CHANGES) if kind in chosen]
    for kind in ordered:
        if kind in ROWS:
            # A change before may have left no JSON for this one to change.
            loose = kind == "cells of other types" or rng.random() < 0.1
            with edited(path, loose=loose) as tables, suppress(*NO_JSON):
                ROWS[kind](tables, rng)
        elif kind in SCHEMAS:
            change_schema(path, kind, rng)
        else:
            FILES[kind](path, rng)
    return " + ".join(ordered)


@contextmanager
def edited(path: Path, *, loose: bool) -> Iterator[Tables]:
    """Let a block change the rows of a database; they are sealed anew, and written without any check."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        tables = {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]
            for name in opening.TABLES
        }
        yield tables
        for statement in ("PRAGMA foreign_keys = OFF", "PRAGMA ignore_check_constraints = ON", "BEGIN"):
            connection.execute(statement)
        if loose:
            _loosen(connection)
        for name, rows in tables.items():
            connection.execute(f"DELETE FROM {name}")
            for row in rows:
                if "digest" in row and name in cells._NOT_CONTENT:
                    with suppress(ValueError, TypeError, RecursionError):
                        row["digest"] = cells.row_digest(name, row)
                marks = ", ".join("?" * len(row))
                with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                    connection.execute(
                        f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})", [*row.values()]
                    )
        connection.execute("COMMIT")


def _loosen(connection: sqlite3.Connection) -> None:
    """Take STRICT and NOT NULL from the tables, so that a cell holds anything."""
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_master SET sql = replace(replace(sql, ') STRICT', ')'), ' NOT NULL', '') WHERE type = 'table'"
    )
    version = connection.execute("PRAGMA schema_version").fetchone()[0]
    connection.execute(f"PRAGMA schema_version = {version + 1}")
    connection.execute("PRAGMA writable_schema = RESET")


def _is_json(text: object) -> bool:
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return False
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


# -- rows


def of_cells(
    fits: Callable[[object], bool], new: Callable[[Any, random.Random], Any], most: int = 30
) -> Change:
    """Return a change of some cells: of those that fit, to something new."""

    def change(tables: Tables, rng: random.Random) -> None:
        rows = [row for name, rows in tables.items() if name != "attempts" for row in rows]
        for _ in range(rng.choice([1, 4, most])):
            row = rng.choice(rows)
            if names := [name for name, cell in row.items() if name not in ("digest", "id") and fits(cell)]:
                name = rng.choice(names)
                row[name] = new(row[name], rng)

    return change


def _mutated(text: str, rng: random.Random) -> str:
    return values.dump(values.mutate_json(json.loads(text), rng, rng.choice([1, 1, 3])))


def _huge(text: str, rng: random.Random) -> str:
    new = rng.choice(["x", "\x1b[", "é", "\n", "[", "'"]) * rng.choice([10**6, 4 * 10**6])
    return json.dumps([new]) if _is_json(text) else new


def sample_bombs(tables: Tables, rng: random.Random) -> None:
    count = rng.choice([2**24, 2**24, 2**23, 2**24 + 1, 2**62, -1, 0, 1])
    bomb = zlib.compress(bytes(min(4 * max(count, 0), 2**26) if rng.random() < 0.7 else 2**27), 9)
    rows = tables["trials"] + tables["benchmarks"]
    for row in rng.sample(rows, rng.choice([1, len(rows)])):
        row["samples"], row["sample_count"] = bomb, count


def words_of_any_kind(tables: Tables, rng: random.Random) -> None:
    """Change a word wherever it stands: a name, size, option, dtype, parameter, value or run; keys of rows included."""
    rows = [row for name, of_table in tables.items() if name != "sources" for row in of_table]
    cells_of = [cell for cell in rng.choice(tables["runs"] + tables["trials"]).values() if cell is not None]
    held = [json.loads(cell) if _is_json(cell) else [cell] for cell in cells_of]
    container, key = rng.choice([place for one in held for place in values.nodes(one)])
    old = key if isinstance(key, str) and rng.random() < 0.5 else container[key]
    new = rng.choice([rng.choice(values.TEXTS), rng.choice(values.NUMBERS), values.value(rng)])
    for row in rows:
        for name, cell in row.items():
            if _is_json(cell):
                row[name] = values.dump(_renamed(json.loads(cell), old, new))
            elif cell == old and name != "digest":
                row[name] = new if isinstance(new, (str, int, float)) else values.dump(new)
    _rekeyed(tables)


def _renamed(data: Any, old: Any, new: Any) -> Any:
    if data == old:
        return new
    if isinstance(data, dict):
        return {str(new) if key == old else key: _renamed(item, old, new) for key, item in data.items()}
    return [_renamed(item, old, new) for item in data] if isinstance(data, list) else data


def _rekeyed(tables: Tables) -> None:
    """Let the keys of all rows follow from their problems and GPUs, as far as these can be read."""
    keys: dict[str, Row] = {}
    for row in tables["runs"] + tables["benchmarks"]:
        with suppress(Exception):
            problem, gpu = msgspec.convert(json.loads(row["problem"]), Problem), json.loads(row["gpu"])
            row |= {"kernel": problem.kernel, "problem_key": problem.key, "dtype": problem.dtype}
            row |= {"gpu_name": gpu["name"], "cc": gpu["cc"]}
        keys[row.get("id", "")] = {
            n: row[n] for n in ("kernel", "problem_key", "dtype", "gpu_name", "cc") if n in row
        }
    for row in tables["trials"] + tables["winners"]:
        row |= keys.get(row["run_id"], {})


def references_astray(tables: Tables, rng: random.Random) -> None:
    ids = [row["id"] for row in tables["trials"]]
    runs = [row["id"] for row in tables["runs"]]
    for row in tables["winners"]:
        row[rng.choice(["trial_id", "default_trial_id"])] = rng.choice([*ids, 0, -1, 2**62])
    for row in rng.sample(tables["trials"] + tables["winners"] + tables["attempts"], 3):
        row["run_id"] = rng.choice([*runs, MISSING, ""])
    for row in tables["benchmarks"]:
        row["winner_run"] = rng.choice([*runs, MISSING, None, ""])
    digests = [source["digest"] for source in tables["sources"]]
    for row in tables["trials"]:
        row["source_digests"] = json.dumps(
            rng.choice([digests * 500, [MISSING], [MISSING] * 5000, digests, [5]])
        )


def paths_astray(tables: Tables, rng: random.Random) -> None:
    """Point at other files, with a kernel's name that is not built in."""
    name = rng.choice(["vector_add", "own"])
    for row in tables["runs"]:
        row["kernel_file"] = rng.choice(PATHS)
        if rng.random() < 0.7:
            row["device"] = f"replay:{rng.choice(PATHS)}"
        row["problem"] = json.dumps({**json.loads(row["problem"]), "kernel": name})
    _rekeyed(tables)


def huge_sources(tables: Tables, rng: random.Random) -> None:
    text = rng.choice(["x", "\x1b]0;", "/* ", "\n"]) * rng.choice([10**5, 2 * 10**6])
    tables["sources"].append({"digest": digest(text), "text": text})
    for row in rng.sample(tables["trials"], min(30, len(tables["trials"]))):
        row["source_digests"] = json.dumps([digest(text)] * rng.choice([1, 2, 20]))


def many_rows(tables: Tables, rng: random.Random) -> None:
    first = tables["trials"][0]
    for number in range(rng.choice([300, 3000])):
        tables["trials"].append({**first, "id": 10_000 + number, "number": 10_000 + number})


ROWS: dict[str, Change] = {
    "many rows": many_rows,
    "texts of any kind": of_cells(
        lambda cell: isinstance(cell, str), lambda _, rng: rng.choice(values.TEXTS)
    ),
    "numbers of any size": of_cells(
        lambda cell: isinstance(cell, int | float), lambda _, rng: rng.choice(values.NUMBERS)
    ),
    "cells of other types": of_cells(lambda _: True, lambda _, rng: rng.choice(OTHER_TYPES)),
    "JSON of other shapes": of_cells(_is_json, _mutated),
    "JSON of no writer": of_cells(_is_json, lambda _, rng: values.json_texts(rng), 4),
    "huge cells": of_cells(lambda cell: isinstance(cell, str), _huge, 4),
    "huge sources": huge_sources,
    "sample bombs": sample_bombs,
    "words of any kind": words_of_any_kind,
    "references astray": references_astray,
    "paths astray": paths_astray,
}
CHANGES = [*ROWS, *5 * ["words of any kind"], *SCHEMAS, *FILES, "single bytes", "log beside"]
"""What comes first in one database after the other."""
