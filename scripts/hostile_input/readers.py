"""The commands that read a database, each with the options that change what it reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from scripts.hostile_input.beside import NAME
from scripts.hostile_input.runner import SQL_S, Command

DB = ("--db", NAME)
BUNDLE = ("-o", "out")
STATEMENTS = (
    "SELECT * FROM trials",
    "SELECT * FROM runs",
    "SELECT * FROM winners w JOIN trials t ON t.id = w.trial_id",
    "SELECT status, count(*) FROM trials GROUP BY status",
    "SELECT text FROM sources",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pragma_table_info('trials')",
    "SELECT instr(zeroblob(15000000) || x'01', zeroblob(7000000) || x'01')",
    "SELECT * FROM trials, trials, trials, trials, trials, trials",
    "SELECT hex(zeroblob(15000000))",
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c",
    "SELECT char(27) || ']0;x' || char(7) || char(8238), '=1+1', x'1b5b'",
    "DELETE FROM trials",
    "ATTACH 'made.db' AS m",
    "SELECT replace(hex(zeroblob(2000000)), '0', 'aaaaaaaaaaaa')",
    "SELECT printf('%.*c', 16000000, 'x') LIKE '%a%a%a%a%a%a%'",
    "SELECT json_extract(configuration, '$') FROM trials",
    "",
    "SELECT 1; SELECT 2",
    "PRAGMA user_version = 5",
    "SELECT load_extension('victim')",
)
_SORTS = (
    "time",
    "-time",
    "number",
    "id",
    "created",
    "kernel",
    "variant",
    "status",
    "tflops",
    "speed",
    "registers",
)


_FILTERS = tuple(
    tuple(pair.split())
    for pair in (
        "--kernel gemm", "--kernel vector_add", "--gpu h200", "--dtype float16", "--size m=4096", "--variant tiled",
        "--since 30d", "--mode cold", "--regime rested", "--run a",
    )
)  # fmt: skip


def _filters(rng: random.Random) -> tuple[str, ...]:
    return tuple(word for pair in rng.sample(_FILTERS, rng.choice([0, 0, 1, 2])) for word in pair)


def _reading(kind: str, *arguments: str, makes: tuple[str, ...] = (), compiles: bool = False) -> Command:
    return Command(kind, (*arguments, *DB), makes, compiles)


def _query(rng: random.Random) -> tuple[str, ...]:
    more: tuple[str, ...] = ("--sort", rng.choice(_SORTS)) if rng.random() < 0.5 else ()
    if rng.random() < 0.3:
        more += ("--status", "ok")
    if rng.random() < 0.3:
        more += (rng.choice(["--replayed", "--measured"]),)
    return ("query", *_filters(rng), *more, "--limit", rng.choice(["0", "5", "50"]))


def _sql(rng: random.Random, *options: str) -> Command:
    arguments = ("query", "--sql", rng.choice(STATEMENTS), *options, *DB)
    return Command("query --sql", arguments, allowed_s=SQL_S)


def _trial(rng: random.Random) -> str:
    return str(rng.choice([*range(1, 24), 10_000]))


def _export(kind: str, rng: random.Random) -> Command:
    kernel = rng.choice([("--kernel", "gemm"), ("--kernel", "vector_add"), ()])
    variant = rng.choice([("--variant", "tiled"), ("--variant", "vectorized"), ()]) if kind == "t1" else ()
    target = rng.choice(["out", "-"]) if kind != "optuna" else "out"
    replayed = rng.choice([("--replayed",), ()])
    return _reading(
        f"export {kind}",
        "export",
        "--format",
        kind,
        "-o",
        target,
        *kernel,
        *variant,
        *replayed,
        makes=("out",),
    )


COMMANDS: tuple[Command | Callable[[random.Random], Command], ...] = (
    lambda rng: _reading("best", "best", *_filters(rng), "--replayed"),
    lambda rng: _reading("best", "best", *_filters(rng)),
    _reading("best --json", "best", "--json", "--replayed"),
    _reading("best --csv", "best", "--csv", "--replayed"),
    lambda rng: _reading("table", "table", *_filters(rng), *_form(rng), "--replayed"),
    lambda rng: _reading("query --columns", *_query(rng), "--columns", "trial,problem,configuration,time,interval"),
    lambda rng: _reading("query", *_query(rng)),
    lambda rng: _reading("query --json", *_query(rng), "--json"),
    lambda rng: _reading("query --csv", *_query(rng), "--csv"),
    _sql,
    lambda rng: _sql(rng, rng.choice(["--csv", "--json"])),
    lambda rng: _reading("trial", "trial", _trial(rng)),
    lambda rng: _reading("trial --json", "trial", _trial(rng), "--json"),
    lambda rng: _reading("trial --source", "trial", _trial(rng), rng.choice(["--source", "--log"])),
    lambda rng: _reading("trial --again", "trial", _trial(rng), "--again"),
    _reading("table --json", "table", "--json", "--replayed", "--full"),
    _reading("bundle", "bundle", "--kernel", "gemm", "--replayed", *BUNDLE, makes=("out",), compiles=True),
    _reading("bundle --few", "bundle", "--kernel", "gemm", "--few", *BUNDLE, makes=("out",), compiles=True),
    _reading("db check", "db", "check"),
    _reading("db backup", "db", "backup", "out", makes=("out",)),
    Command("db merge", ("db", "merge", NAME, "--db", "out"), ("out",)),
    lambda rng: _reading("db delete", "db", "delete", rng.choice(["aaaa", "a" * 32]), "--yes", makes=(NAME,)),
    lambda rng: _reading("export header", "export", *_filters_of_header(rng), "-o", "out.hpp", makes=("out.hpp",)),
    lambda rng: _reading("export header", "export", *_filters_of_header(rng), "-o", "out.hpp", makes=("out.hpp",)),
    lambda rng: _reading("export header -", "export", *_filters_of_header(rng), "-o", "-"),
    lambda rng: _export("t4", rng),
    lambda rng: _export("kernel-tuner-cache", rng),
    lambda rng: _export("t1", rng),
    lambda rng: _export("optuna", rng),
    lambda rng: _reading("bench --history", "bench", "--history", *rng.choice([("--kernel", "gemm"), ("--json",), ()])),
    _reading("bench", "bench", "--kernel", "gemm"),
    lambda rng: _reading("report", "report", "-o", "out", *_subjects(rng), makes=("out",)),
    lambda rng: _reading("explain --trial", "explain", "--trial", _trial(rng), compiles=True),
    lambda rng: _reading("explain", "explain", "vector_add", *rng.choice([("--json",), ()]), compiles=True),
    lambda rng: _run("run --resume", "--resume", rng),
    lambda rng: _run("run", "-q", rng),
)  # fmt: skip


def _form(rng: random.Random) -> tuple[str, ...]:
    return rng.choice([(), ("--json",), ("--csv",), ("--markdown",), ("--full",)])


def _subjects(rng: random.Random) -> tuple[str, ...]:
    return rng.choice([(), ("--all",), ("--kernel", "gemm"), ("--run", "a" * 32)])


def _filters_of_header(rng: random.Random) -> tuple[str, ...]:
    return rng.choice([(), ("--replayed",), ("--replayed", "--kernel", "vector_add"), ("--kernel", "gemm")])


def _run(kind: str, option: str, rng: random.Random) -> Command:
    kernel = (
        "--kernel",
        "vector_add",
        "--trials",
        rng.choice(["4", "8"]),
        "--device",
        "replay",
        "--sampler",
        "random",
    )
    seed = ("--seed", "1") if option == "--resume" else ()
    return _reading(kind, *kernel, *seed, option, "--json", makes=(NAME,))


def commands(seed: str, number: int, count: int) -> list[Command]:
    """Return the commands for a case: the list is gone through in turn, so that each comes as often."""
    rng = random.Random(f"{seed} commands {number}")
    # A step without a common divisor with the number of commands or of mutations: all pairs come in time.
    places = [(7 * number + 11 * i) % len(COMMANDS) for i in range(count)]
    offered = [COMMANDS[place] for place in places]
    return [one if isinstance(one, Command) else one(rng) for one in offered]


def compiled(folder: Path) -> list[str]:
    """Return the compiler's command line for a header that was written, if one was."""
    header = folder / "out.hpp"
    return (
        ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Werror", "-x", "c++", str(header)]
        if header.exists()
        else []
    )
