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

from scripts.hostile_input import values
from scripts.hostile_input.beside import FILES, NAME
from scripts.hostile_input.schemas import SCHEMAS, change_schema
from tuner.core.model import Problem
from tuner.database import cells, schema

Row = dict[str, Any]
Tables = dict[str, list[Row]]
NO_JSON = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
MISSING = "f" * 32
PATHS = (
    "/etc/passwd", "/dev/zero", "/dev/stdin", "/dev/full", "/proc/self/environ", "/proc/self/mem", ".", "..", "/",
    "fifo", "loop", "../victim", "~root/x", "x" * 300, "x/" * 3000, "", "\0", "http://localhost/x.toml",
    "tuning.db", "gemm.toml", "evil.toml", "a\nb", "\x1b[2J", "-h", "--db",
)  # fmt: skip
"""Where a path of a stored row may point."""


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
    from tuner.cli.problems import ProblemTexts, make_problems
    from tuner.kernel.load import load_kernel
    from tuner.studies.portfolio import build
    from tuner.studies.portfolio_races import PortfolioRequest
    from tuner.studies.portfolio_report import make_progress

    kernel = load_kernel("gemm")
    given = ProblemTexts(dtypes=["bfloat16"], problem_texts=["m=64|4096,n=2048,k=1024"])
    problems = make_problems(kernel, given)
    request = PortfolioRequest(kernel, tuple(problems), searched=0)
    build(request, SimulatedGpu(), database, make_progress(quiet=True))


def write(folder: Path, start: Path, seed: str, number: int) -> str:
    """Write one hostile database; returns what was done to it."""
    rng = random.Random(f"{seed} database {number}")
    path = folder / NAME
    shutil.copy(start, path)
    (folder / "victim").write_text("untouched\n")
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    kinds: list[Any] = [*ROWS, *SCHEMAS, *FILES]
    first = kinds[number % len(kinds)]
    more = [kind for kind in ROWS if kind is not first]
    chosen = [*rng.sample(more, rng.choice([0, 0, 1, 2])), first]
    for change in sorted(chosen, key=kinds.index):
        if change in ROWS:
            # A change before may have left no JSON for this one to change.
            with edited(path, rng) as tables, suppress(*NO_JSON):
                change(tables, rng)
        elif change in SCHEMAS:
            change_schema(path, change, rng)
        else:
            change(path, rng)
    return " + ".join(getattr(change, "__name__", change) for change in chosen)


@contextmanager
def edited(path: Path, rng: random.Random) -> Iterator[Tables]:
    """Let a block change the rows of a database; they are sealed anew, and written without any check."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        tables = {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in schema.TABLES
        }
        yield tables
        loose = any(_of_another_kind(row) for rows in tables.values() for row in rows) or rng.random() < 0.1
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


def _of_another_kind(row: Row) -> bool:
    return bool(row.pop("_loose", False))


def _loosen(connection: sqlite3.Connection) -> None:
    """Take STRICT and NOT NULL from the tables, so that a cell holds anything."""
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_master SET sql = replace(replace(sql, ') STRICT', ')'), ' NOT NULL', '') WHERE type = 'table'"
    )
    version = connection.execute("PRAGMA schema_version").fetchone()[0]
    connection.execute(f"PRAGMA schema_version = {version + 1}")
    connection.execute("PRAGMA writable_schema = RESET")


def _cells(tables: Tables, kind: type, rng: random.Random, count: int) -> list[tuple[Row, str]]:
    rows = [row for name in ("runs", "trials", "winners", "benchmarks", "sources") for row in tables[name]]
    chosen = []
    for _ in range(count):
        row = rng.choice(rows)
        names = [
            name for name, cell in row.items() if isinstance(cell, kind) and name not in ("digest", "id")
        ]
        if names:
            chosen.append((row, rng.choice(names)))
    return chosen


def _is_json(text: object) -> bool:
    if not isinstance(text, str) or text[:1] not in ("{", "["):
        return False
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return True
    return False


def _json_cells(tables: Tables) -> list[tuple[Row, list[str]]]:
    rows = [row for name in ("runs", "trials", "winners", "benchmarks") for row in tables[name]]
    cells_of = [(row, [name for name, cell in row.items() if _is_json(cell)]) for row in rows]
    return [(row, names) for row, names in cells_of if names]


# -- rows


def texts_of_any_kind(tables: Tables, rng: random.Random) -> None:
    for row, name in _cells(tables, str, rng, rng.choice([1, 4, 30])):
        row[name] = rng.choice(values.TEXTS)


def numbers_of_any_size(tables: Tables, rng: random.Random) -> None:
    for row, name in _cells(tables, (int, float), rng, rng.choice([1, 4, 30])):  # type: ignore[arg-type]
        row[name] = rng.choice(values.NUMBERS)


def cells_of_other_types(tables: Tables, rng: random.Random) -> None:
    for row, name in _cells(tables, object, rng, rng.choice([1, 4, 30])):
        row[name] = rng.choice([None, b"", b"\xff\xfe\x00", "text", 5, 1.5, "", b"\x1b[2J", 2**62, "9" * 400])
        row["_loose"] = True


def json_of_other_shapes(tables: Tables, rng: random.Random) -> None:
    rows = _json_cells(tables)
    for row, names in rng.sample(rows, min(len(rows), rng.choice([1, 5, 40]))):
        name = rng.choice(names)
        row[name] = values.dump(values.mutate_json(json.loads(row[name]), rng, rng.choice([1, 1, 3])))


def json_of_no_writer(tables: Tables, rng: random.Random) -> None:
    for row, names in rng.sample(_json_cells(tables), rng.choice([1, 4])):
        row[rng.choice(names)] = values.json_texts(rng)


def sample_bombs(tables: Tables, rng: random.Random) -> None:
    count = rng.choice([2**24, 2**24, 2**23, 2**24 + 1, 2**62, -1, 0, 1])
    size = min(4 * max(count, 0), 2**26)
    bomb = zlib.compress(bytes(size), 9) if rng.random() < 0.7 else zlib.compress(bytes(2**27), 9)
    rows = tables["trials"] + tables["benchmarks"]
    for row in rng.sample(rows, rng.choice([1, len(rows)])):
        row["samples"], row["sample_count"] = bomb, count


def names_of_any_kind(tables: Tables, rng: random.Random) -> None:
    """Rename a kernel, size, option, dtype or GPU wherever it stands, keys included."""
    old = rng.choice(
        ["gemm", "vector_add", "m", "n", "layout", "nn", "float16", "NVIDIA H200", "input", "GPU-1"]
    )
    new = rng.choice(values.TEXTS)
    for name in ("runs", "benchmarks"):
        for row in tables[name]:
            for column, cell in row.items():
                if _is_json(cell):
                    row[column] = json.dumps(_renamed(json.loads(cell), old, new))
                elif cell == old:
                    row[column] = new
    _rekeyed(tables)


def _renamed(data: Any, old: str, new: str) -> Any:
    if isinstance(data, dict):
        return {new if key == old else key: _renamed(item, old, new) for key, item in data.items()}
    if isinstance(data, list):
        return [_renamed(item, old, new) for item in data]
    return new if data == old else data


def _rekeyed(tables: Tables) -> None:
    """Let the keys of all rows follow from their problems and GPUs, as far as these can be read."""
    keys: dict[str, Row] = {}
    for row in tables["runs"] + tables["benchmarks"]:
        with suppress(Exception):
            problem, gpu = Problem.from_json(json.loads(row["problem"])), json.loads(row["gpu"])
            row |= {"kernel": problem.kernel, "problem_key": problem.key, "dtype": problem.dtype}
            row |= {"gpu_name": gpu["name"], "cc": gpu["cc"]}
        keys[row.get("id", "")] = {
            n: row[n] for n in ("kernel", "problem_key", "dtype", "gpu_name", "cc") if n in row
        }
    for row in tables["trials"] + tables["winners"]:
        row |= keys.get(row["run_id"], {})


def sizes_of_any_kind(tables: Tables, rng: random.Random) -> None:
    """Change a problem's sizes and options to what no kernel has, keys included."""
    for row in tables["runs"]:
        problem = json.loads(row["problem"])
        part = rng.choice([name for name in problem if isinstance(problem[name], dict) and problem[name]])
        problem[part][rng.choice([*problem[part], "extra"])] = values.value(rng)
        row["problem"] = values.dump(problem)
    _rekeyed(tables)


def parameters_of_any_kind(tables: Tables, rng: random.Random) -> None:
    """Change parameters' names and values in a trial and in the winner that it became."""
    by_configuration: dict[str, str] = {}
    variant = rng.choice([None, None, *values.TEXTS])
    for row in tables["trials"] + tables["winners"] + tables["benchmarks"]:
        old = row["configuration"]
        if old is None:
            continue
        if old not in by_configuration:
            new = json.loads(old)
            for _ in range(rng.choice([1, 3])):
                name = rng.choice([*new, "extra"])
                item = rng.choice([rng.choice(values.TEXTS), rng.choice(values.NUMBERS), values.value(rng)])
                if rng.random() < 0.5:
                    new[name] = item
                else:
                    new[rng.choice(values.TEXTS)] = new.pop(name, 1)
            by_configuration[old] = values.dump(new)
        row["configuration"] = by_configuration[old]
        row["variant"] = row["variant"] if variant is None else variant


def references_astray(tables: Tables, rng: random.Random) -> None:
    ids = [row["id"] for row in tables["trials"]]
    runs = [row["id"] for row in tables["runs"]]
    for row in tables["winners"]:
        row[rng.choice(["trial_id", "default_trial_id"])] = rng.choice([*ids, 0, -1, 2**62])
    for row in rng.sample(tables["trials"] + tables["winners"] + tables["attempts"], 3):
        row["run_id"] = rng.choice([*runs, MISSING, ""])
    for row in tables["benchmarks"]:
        row["winner_run"] = rng.choice([*runs, MISSING, None, ""])
    for row in tables["trials"]:
        digests = [source["digest"] for source in tables["sources"]]
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


def huge_cells(tables: Tables, rng: random.Random) -> None:
    text = rng.choice(["x", "\x1b[", "é", "\n", "[", "'"]) * rng.choice([10**6, 4 * 10**6])
    for row, name in _cells(tables, str, rng, rng.choice([1, 4])):
        row[name] = json.dumps([text]) if _is_json(row[name]) else text


def huge_sources(tables: Tables, rng: random.Random) -> None:
    from tuner.core.model import digest

    text = rng.choice(["x", "\x1b]0;", "/* ", "\n"]) * rng.choice([10**5, 2 * 10**6])
    tables["sources"].append({"digest": digest(text), "text": text})
    for row in rng.sample(tables["trials"], min(30, len(tables["trials"]))):
        row["source_digests"] = json.dumps([digest(text)] * rng.choice([1, 2, 20]))


def many_rows(tables: Tables, rng: random.Random) -> None:
    first = tables["trials"][0]
    for number in range(rng.choice([300, 3000])):
        tables["trials"].append({**first, "id": 10_000 + number, "number": 10_000 + number})


def run_ids_of_any_kind(tables: Tables, rng: random.Random) -> None:
    for row in tables["runs"]:
        new = rng.choice(values.TEXTS) + rng.choice(["", row["id"]])
        for name in ("trials", "winners", "attempts"):
            for other in tables[name]:
                if other["run_id"] == row["id"]:
                    other["run_id"] = new
        row["id"] = new


ROWS: list[Callable[[Tables, random.Random], None]] = [
    many_rows, texts_of_any_kind, numbers_of_any_size, cells_of_other_types, json_of_other_shapes, json_of_no_writer,
    sample_bombs, names_of_any_kind, names_of_any_kind, sizes_of_any_kind, parameters_of_any_kind,
    parameters_of_any_kind, references_astray, paths_astray, huge_cells, huge_sources,
    run_ids_of_any_kind,
]  # fmt: skip
