"""Mutated files of every format that the tuner reads, and the commands that read them."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import shutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.hostile_input import values
from scripts.hostile_input.runner import Command
from tuner.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
BOMB_BYTES = 2 << 30
CSV = "n,dtype\n2**20,float32\n1024,float16\n67108864,float32\n"
TOMLS = (
    *sorted((ROOT / "search_spaces").glob("*.toml")),
    *sorted((ROOT / "docs/examples").rglob("*.toml")),
)


def _row(bx: int, by: int) -> dict[str, Any]:
    time = "CompilationFailedConfig" if bx == 128 else 1 + abs(bx - 64) / 64 + abs(by - 2)
    row = {"bx": bx, "by": by, "time": time, "compile_time": 100.0, "benchmark_time": 5.0}
    return row if bx == 128 else {**row, "times": [time, time, time]}


ROWS = [_row(bx, by) for bx, by in itertools.product((16, 32, 64, 128), (1, 2, 4))]
CACHE = {
    "device_name": "Some GPU", "kernel_name": "stencil", "problem_size": [512, 256],
    "tune_params_keys": ["bx", "by"], "tune_params": {"bx": [16, 32, 64, 128], "by": [1, 2, 4]},
    "objective": "time", "cache": {f"{row['bx']},{row['by']}": row for row in ROWS},
}  # fmt: skip
T4 = {
    "metadata": {"timeunit": "miliseconds"},
    "schema_version": "1.0.0",
    "results": [
        {
            "timestamp": "",
            "configuration": {"bx": row["bx"], "by": row["by"]},
            "times": {"compilation": 100.0, "runtimes": row.get("times", [])},
            "invalidity": "compile" if row["bx"] == 128 else "correct",
            "correctness": 1,
            "measurements": [{"name": "time", "value": row["time"], "unit": ""}],
            "objectives": ["time"],
        }
        for row in ROWS
    ],
}
T1 = {
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "bx", "Type": "int", "Values": "[16 * 2**i for i in range(4)]", "Default": 32},
            {"Name": "by", "Type": "int", "Values": "[1, 2, 4]", "Default": 1},
        ],
        "Conditions": [{"Parameters": ["bx", "by"], "Expression": "bx * by <= 512 and (by < 4 or bx > 16)"}],
    },
    "KernelSpecification": {"KernelName": "stencil"},
}
KTT = {
    "Metadata": {"Device": "Some GPU", "TimeUnit": "Microseconds", "KttVersion": "2.1"},
    "Results": [
        {
            "KernelName": "stencil",
            "Status": "CompilationFailed" if row["bx"] == 128 else "Ok",
            "Configuration": [{"Name": n, "Value": row[n]} for n in ("bx", "by")],
            "ComputationResults": [{"Duration": 5.0, "KernelFunction": "f"}],
            "TotalDuration": 5.0,
            "TotalOverhead": 1.0,
        }
        for row in ROWS
    ],
}


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    name: str
    write: Callable[[Path, random.Random], None]
    commands: Callable[[Path], list[Command]]


def _command(
    kind: str, *arguments: str, makes: tuple[str, ...] = ("t.db",), compiles: bool = False
) -> Command:
    return Command(kind, arguments, makes, compiles)


def _write_toml(folder: Path, rng: random.Random) -> None:
    start = rng.choice(TOMLS)
    shutil.copytree(start.parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.toml"))
    text = start.read_text()
    if rng.random() < 0.15:
        (folder / "f.toml").write_bytes(values.mutate_bytes(text.encode(), rng))
    else:
        (folder / "f.toml").write_text(values.mutate_toml(text, rng), errors="replace")


def _toml_commands(_folder: Path) -> list[Command]:
    commands = [
        _command("show", "show", "f.toml"),
        _command("show --json", "show", "f.toml", "--json"),
        _command("explain FILE", "explain", "f.toml", compiles=True),
        _command(
            "run FILE", "--kernel", "f.toml", "--device", "replay", "--trials", "3", "--db", "t.db", "-q"
        ),
    ]
    if "check" in COMMANDS:
        commands.append(
            _command(
                "check", "check", "f.toml", "--configurations", "1", "--cc", "90", "--no-cpu", compiles=True
            )
        )
    return commands


def _write_json(start: Any) -> Callable[[Path, random.Random], None]:
    def write(folder: Path, rng: random.Random) -> None:
        data = json.loads(json.dumps(start))
        kind = rng.randrange(10)
        if kind < 7:
            text = values.dump(values.mutate_json(data, rng, rng.choice([1, 1, 2, 5]))).encode()
        elif kind == 7:
            text = values.json_texts(rng).encode("utf-8", "replace")
        else:
            text = values.mutate_bytes(json.dumps(data).encode(), rng)
        if rng.random() < 0.2:
            text = (
                values.mutate_bytes(gzip.compress(text), rng) if rng.random() < 0.5 else gzip.compress(text)
            )
        elif rng.random() < 0.02:
            text = bomb(rng)
        (folder / "f.json").write_bytes(text)
        (folder / "T1.json").write_text(json.dumps(T1))
        (folder / "T4.json").write_text(json.dumps(T4))

    return write


def bomb(rng: random.Random) -> bytes:
    """Return gzip of far more than fits."""
    packer = zlib.compressobj(9, wbits=31)
    block = rng.choice([b" ", b"[", b"0,"]) * (1 << 20)
    start = packer.compress(rng.choice([b"", b"[", b'{"a":"']))
    return start + b"".join(packer.compress(block) for _ in range(BOMB_BYTES // len(block))) + packer.flush()


def _results_commands(_folder: Path) -> list[Command]:
    replayed = ("--device", "replay:f.json", "--trials", "4", "--db", "t.db", "-q")
    return [
        _command("import", "import", "f.json", "--db", "t.db"),
        _command("import --json", "import", "f.json", "--kernel", "k", "--gpu", "g", "--size", "n=5", "--db", "t.db",
                 "--json"),
        _command("run --device FILE", *replayed, "--json"),
        _command("run --space", "--space", "T1.json", *replayed),
    ]  # fmt: skip


def _space_commands(_folder: Path) -> list[Command]:
    replayed = ("--device", "replay:T4.json", "--trials", "4", "--db", "t.db", "-q")
    return [
        _command("run --space FILE", "--space", "f.json", *replayed),
        _command("run --space FILE", "--space", "f.json", *replayed, "--sampler", "random", "--json"),
    ]


def _write_csv(folder: Path, rng: random.Random) -> None:
    if rng.random() < 0.3:
        (folder / "f.csv").write_bytes(values.mutate_bytes(CSV.encode(), rng))
        return
    rows = [line.split(",") for line in CSV.splitlines()]
    for _ in range(rng.choice([1, 2, 4])):
        row = rng.choice(rows)
        kind = rng.randrange(5)
        if kind < 3:
            row[rng.randrange(len(row))] = str(
                rng.choice([rng.choice(values.TEXTS), rng.choice(values.NUMBERS[:25])])
            )
        elif kind == 3:
            row.append(rng.choice(values.TEXTS))
        else:
            rows.extend(rows[1:] * rng.choice([1, 1, 20]))
    text = "\n".join(",".join(row) for row in rows)
    (folder / "f.csv").write_text(text, encoding="utf-8", errors="replace", newline="")


def _csv_commands(_folder: Path) -> list[Command]:
    start = (
        "--kernel",
        "vector_add",
        "--device",
        "replay",
        "--trials",
        "2",
        "--time",
        "1",
        "--db",
        "t.db",
        "-q",
    )
    return [
        _command("run --problems", *start, "--problems", "f.csv"),
        _command("run --problems", *start, "--problems", "f.csv", "--json"),
    ]


def _write_recording(folder: Path, rng: random.Random) -> None:
    start = rng.choice(["vector_add", "saxpy", "mean_matvec"])
    data = (ROOT / f"results/recorded/{start}-H200.json.gz").read_bytes()
    kind = rng.randrange(10)
    if kind < 7:
        recorded = json.loads(gzip.decompress(data))
        text = values.dump(values.mutate_json(recorded, rng, rng.choice([1, 1, 3]))).encode(
            "utf-8", "replace"
        )
        data = gzip.compress(text, 1)
    elif kind == 7:
        data = values.mutate_bytes(data, rng)
    elif kind == 8:
        data = gzip.compress(values.mutate_bytes(gzip.decompress(data), rng), 1)
    else:
        data = (
            bomb(rng)
            if rng.random() < 0.2
            else gzip.compress(values.json_texts(rng).encode("utf-8", "replace"))
        )
    (folder / "f.json.gz").write_bytes(data)
    (folder / "kernel").write_text(start)


def _recording_commands(folder: Path) -> list[Command]:
    kernel = (folder / "kernel").read_text()
    start = ("--kernel", kernel, "--device", "replay:f.json.gz", "--trials", "4", "--db", "t.db", "-q")
    return [
        _command("run --device FILE", *start),
        _command("run --device FILE", *start, "--sampler", "random", "--json"),
        _command("import", "import", "f.json.gz", "--db", "t.db"),
    ]


FORMATS = (
    Format("toml", _write_toml, _toml_commands),
    Format("toml", _write_toml, _toml_commands),
    Format("toml", _write_toml, _toml_commands),
    Format("t1", _write_json(T1), _space_commands),
    Format("t4", _write_json(T4), _results_commands),
    Format("cache", _write_json(CACHE), _results_commands),
    Format("ktt", _write_json(KTT), _results_commands),
    Format("csv", _write_csv, _csv_commands),
    Format("recording", _write_recording, _recording_commands),
    Format("recording", _write_recording, _recording_commands),
)


def write(folder: Path, seed: str, number: int) -> str:
    """Write one hostile file; returns its format."""
    rng = random.Random(f"{seed} file {number}")
    format_ = FORMATS[number % len(FORMATS)]
    format_.write(folder, rng)
    return format_.name


def commands(folder: Path, seed: str, number: int) -> list[Command]:
    """Return the commands for the file of a case: two of those of its format."""
    rng = random.Random(f"{seed} file commands {number}")
    offered = FORMATS[number % len(FORMATS)].commands(folder)
    return rng.sample(offered, 1)
