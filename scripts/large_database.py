"""Make a database of a million plausible trials, and time what reads it.

    python scripts/large_database.py --folder /tmp/large --trials 1000000 > results/evidence/large-database.txt

A replayed run is made first; two fifths of the trials are those of runs like it, so that the start of another one has
as many earlier trials to look at. The others are of five kernels, ten sizes each, on two GPUs. Digests are right.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.core.model import Configuration, Gpu, Problem, Resources, Run, Status, Trial, Verification, digest
from tuner.database import cells, rows
from tuner.database.database import Database
from tuner.database.records import Metrics, Winner

TRIALS_PER_RUN = 400
SOURCES = 5000
REPLAY = ["--kernel", "gemm", "--device", "replay", "--trials", "200", "--seed", "1"]
COMMANDS = {
    "tune run, to the first trial, empty database": [*REPLAY, "--db", "OUT-empty.db"],
    "tune run, to the first trial": REPLAY,
    "tune query": ["query"],
    "tune query --sort time": ["query", "--sort", "time"],
    "tune query --sort time --status ok": ["query", "--sort", "time", "--status", "ok"],
    "tune query --kernel softmax --variant v3 --sort -number": [
        *("query", "--kernel", "softmax", "--variant", "v3", "--sort", "-number"),
    ],
    "tune query --size n=1003 --gpu h100 --since 100w": [
        *("query", "--size", "n=1003", "--gpu", "h100", "--since", "100w"),
    ],
    "tune query --kernel nothing": ["query", "--kernel", "nothing"],
    "tune best": ["best"],
    "tune best --kernel gemm --replayed": ["best", "--kernel", "gemm", "--replayed"],
    "tune query --limit 0 --json": ["query", "--limit", "0", "--json"],
    "tune export --format t4": ["export", "--kernel", "softmax", "--format", "t4", "-o", "OUT.json"],
    "tune export --format t4 --replayed": [
        *("export", "--kernel", "gemm", "--replayed", "--format", "t4", "-o", "OUT2.json"),
    ],
    "tune db check": ["db", "check"],
    "tune db backup": ["db", "backup", "OUT.db"],
    "tune query of a file of schema 2, which is migrated": ["query", "--db", "OUT-2.db"],
    "tune db delete": ["db", "delete", "--yes", "RUN"],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="a part of the commands to time")
    options = parser.parse_args()
    path = options.folder / "tuning.db"
    if not path.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        make(path, options.trials)
        print(f"made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(f"{options.trials} trials, {path.stat().st_size / 1e9:.2f} GB, {machine()}")
    print(
        "seconds: until it ended, and the second time if the first took less than 10 s: then what it reads is cached"
    )
    print(
        "of a processor: its own and its children's; MB: the largest process; load: of the machine, processes"
    )
    print(f"{'command':<60}{'seconds':>9}{'again':>7}{'of a processor':>16}{'MB':>5}{'load':>6}  exit")
    for name, arguments in COMMANDS.items():
        if options.only in name:
            load = os.getloadavg()[0]
            seconds, busy, rss, status = timed(options.folder, arguments)
            again = (
                f"{timed(options.folder, arguments)[0]:.2f}"
                if seconds < 10 and "OUT-2.db" not in arguments
                else ""
            )
            row = f"{seconds:>9.2f}{again:>7}{busy:>16.2f}{rss / 1e6:>5.0f}{load:>6.1f}  {status}"
            print(f"{name:<60}{row}", flush=True)


def machine() -> str:
    """Return what the figures depend on."""
    models = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"


def timed(folder: Path, arguments: list[str]) -> tuple[float, float, int, int]:
    """Return a command's seconds, those of a processor, the peak memory in bytes, and the exit status.

    A run is ended by SIGTERM when its first trial is reported.
    """
    for path in folder.glob("OUT*"):
        path.unlink()
    if "OUT-2.db" in arguments:
        make_schema_2(folder / "tuning.db", folder / "OUT-2.db")
    if "RUN" in arguments:
        with Database.open(folder / "tuning.db", write=False) as database:
            arguments = [*arguments[:-1], database.run_ids()[-2]]
    where = () if "--db" in arguments else ("--db", "tuning.db")
    command = [sys.executable, "-m", "tuner", *arguments, *where]
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stderr is not None
        seconds = 0.0
        for line in process.stderr:
            if line.startswith(b"trial 1/"):
                seconds = time.monotonic() - began
                process.terminate()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    busy = usage.ru_utime + usage.ru_stime
    return seconds or time.monotonic() - began, busy, usage.ru_maxrss * 1024, process.returncode


def make_schema_2(path: Path, copy: Path) -> None:
    """Copy a database without what schema 3 has added."""
    shutil.copyfile(path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.executescript("PRAGMA synchronous = OFF; DROP INDEX trials_by_run")
        for table, column in (
            ("runs", "computation"),
            ("trials", "implementation"),
            ("benchmarks", "computation"),
        ):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.row_factory = sqlite3.Row
        for row in connection.execute("SELECT * FROM runs").fetchall():
            text = cells.row_digest("runs", dict(row))
            connection.execute(
                "UPDATE runs SET digest = ?, state = 'finished' WHERE id = ?", (text, row["id"])
            )
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
    os.sync()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}


def make(path: Path, count: int) -> None:
    """Write the database."""
    command = [sys.executable, "-m", "tuner", *REPLAY, "--db", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment())
    chance = random.Random(1)
    with Database.open(path) as database:
        (first,) = database.run_ids()
        model, tried = database.run(first), database.trials(first)
        database.connection.execute("PRAGMA synchronous = OFF")
        with database.transaction():
            database.insert_sources([source(number) for number in range(SOURCES)])
            number = 1
            for run in runs(model, chance):
                if number >= count:
                    break
                row = rows.encode_run(run, "host:1:1") | {"state": "finished", "ended_at": cells.now()}
                database.insert("runs", row)
                trials = replayed(run, tried, chance) if run.replayed else made_up(run, chance)
                encoded = list(trials)
                columns = list(encoded[0])
                database.connection.executemany(
                    f"INSERT INTO trials ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                    [tuple(row.values()) for row in encoded],
                )
                number += len(encoded)
                add_winner(database, run)


def source(number: int) -> str:
    return f"// source {number}\n" + "".join(f"float x{i} = {number * i}.0f;\n" for i in range(60))


def runs(model: Run, chance: random.Random) -> Iterator[Run]:
    """Yield runs without end: of five, two are like the first one."""
    gpus = [
        Gpu(f"NVIDIA {name}", 90, 132, 60 << 20, 1 << 37, 232448, 233472, uuid=name)
        for name in ("H200", "H100")
    ]
    kernels = ("vector_add", "reduce", "softmax", "transpose", "layer_norm")
    while True:
        new = replace(model, id=str(uuid.UUID(int=chance.getrandbits(128))))
        yield new
        yield replace(new, id=str(uuid.UUID(int=chance.getrandbits(128))))
        for _ in range(3):
            kernel = chance.choice(kernels)
            problem = Problem(kernel, {"n": 1000 + chance.randrange(10)}, {"input": "float32"})
            yield replace(
                new, id=str(uuid.UUID(int=chance.getrandbits(128))), problem=problem, device="cuda:0",
                gpu=chance.choice(gpus), kernel_digest=f"text of {kernel}", computation=f"what {kernel} computes",
            )  # fmt: skip


def replayed(run: Run, tried: list[Trial], chance: random.Random) -> Iterator[dict[str, Any]]:
    for number, trial in enumerate(chance.sample(tried, len(tried))):
        trial = replace(trial, number=number)
        yield rows.encode_trial(run, trial, Metrics(100.0, 2000.0, 0.5), [])


def made_up(run: Run, chance: random.Random) -> Iterator[dict[str, Any]]:
    base = None
    digests = cells.to_json([digest(source(chance.randrange(SOURCES)))])
    for number in range(TRIALS_PER_RUN):
        values = {f"p{i}": 1 << chance.randrange(8) for i in range(10)}
        configuration = Configuration.of(f"v{chance.randrange(8)}", values)
        time_ns = 1000.0 * (1 + chance.paretovariate(1.5))
        failed = chance.random() < 0.15
        if base is None or number % 40 == 0:  # new samples now and then: compressing them takes longest
            samples = tuple(time_ns * (1 + 0.01 * chance.gauss(0, 1)) for _ in range(60))
            trial = Trial(
                number, configuration, Status.OK, time_ns, time_ns * 0.99, time_ns * 1.01, samples,
                Resources(32, 1024, 0, 8, 4, 2), Verification(True, mismatches=0, worst_ratio=0.25, norm_error=1e-4),
                compile_log="ptxas info    : 0 bytes gmem\nptxas info    : Used 32 registers\n" * 3,
                compile_s=0.7, measure_s=0.2, sm_clock_hz=1.7e9,
            )  # fmt: skip
            base = rows.encode_trial(run, trial, Metrics(1.0, 2000.0, 0.5), [])
        row = {
            **base, "number": number, "variant": configuration.variant, "source_digests": digests,
            "configuration": cells.encode_parameters(configuration), "time_ns": None if failed else time_ns,
            "ci_low_ns": None if failed else time_ns * 0.99, "ci_high_ns": None if failed else time_ns * 1.01,
            "status": "compile_error" if failed else chance.choice(("ok", "ok", "slow")),
            "error": "nvrtc: error: no" if failed else "",
        }  # fmt: skip
        row.pop("digest")
        yield cells.sealed("trials", **row)


def add_winner(database: Database, run: Run) -> None:
    where = "run_id = ? AND status = 'ok' AND time_ns IS NOT NULL"
    (row,) = database.select(f"SELECT * FROM trials WHERE {where} ORDER BY time_ns LIMIT 1", run.id)
    stored = rows.decode_trial(row, run).trial
    assert stored.time_ns is not None and stored.id is not None
    winner = Winner(
        stored.id, stored.configuration, stored.time_ns, stored.id, stored.time_ns * 1.2, 1.2, 1.19, 1.21, "faster",
        stored.time_ns, True, exportable=not run.replayed, race={"rounds": [1, 2]},
    )  # fmt: skip
    database.insert("winners", rows.encode_winner(run, winner))


if __name__ == "__main__":
    main()
