"""Mutated files of every format that the tuner reads, and the commands that read them."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.harness import ROOT
from scripts.hostile_input import values
from scripts.hostile_input.runner import Command
from tests.formats import foreign_files

BOMB_BYTES = 2 << 30
CSV = "n,dtype\n2**20,float32\n1024,float16\n67108864,float32\n"
TOMLS = (
    *sorted((ROOT / "search_spaces").glob("*.toml")),
    *sorted((ROOT / "docs/examples").rglob("*.toml")),
)


CACHE, T1 = foreign_files.cache(), foreign_files.t1()
T4 = foreign_files.t4(CACHE)
KTT = {
    "Metadata": {"Device": "Some GPU", "TimeUnit": "Microseconds", "KttVersion": "2.1"},
    "Results": [
        {
            "KernelName": "stencil",
            "Status": "CompilationFailed" if isinstance(row["time"], str) else "Ok",
            "Configuration": [{"Name": n, "Value": row[n]} for n in ("bx", "by")],
            "ComputationResults": [{"Duration": 5.0, "KernelFunction": "f"}],
            "TotalDuration": 5.0,
            "TotalOverhead": 1.0,
        }
        for row in CACHE["cache"].values()
    ],
}


def _write_toml(folder: Path, rng: random.Random) -> None:
    start = rng.choice(TOMLS)
    shutil.copytree(start.parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.toml"))
    text = start.read_text()
    if rng.random() < 0.15:
        (folder / "f.toml").write_bytes(values.mutate_bytes(text.encode(), rng))
    else:
        (folder / "f.toml").write_text(values.mutate_toml(text, rng), errors="replace")


def _write_json(start: Any) -> Callable[[Path, random.Random], None]:
    def write(folder: Path, rng: random.Random) -> None:
        data = json.loads(json.dumps(start))
        kind = rng.randrange(10)
        if kind < 7:
            text = values.dump(values.mutate_json(data, rng, rng.choice([1, 1, 2, 5]))).encode()
        elif kind == 7:
            text = values.json_texts(rng).encode("utf-8", "replace")
        elif kind == 8:
            text = values.mutate_bytes(json.dumps(data).encode(), rng)
        else:  # as a writer leaves it that is killed
            text = json.dumps(data).encode()
            text = text[: rng.randrange(len(text))]
        if rng.random() < 0.2:
            text = gzip.compress(text)
            text = values.mutate_bytes(text, rng) if rng.random() < 0.5 else text
        elif rng.random() < 0.05:
            text = bomb(rng)
        (folder / "f.json").write_bytes(text)
        (folder / "T1.json").write_text(json.dumps(T1))
        (folder / "T4.json").write_text(json.dumps(T4))

    return write


def bomb(rng: random.Random) -> bytes:
    """Return gzip of far more than fits, or in far too many members."""
    if rng.random() < 0.2:
        return gzip.compress(b" " * 1000) * 200_000
    packer = zlib.compressobj(9, wbits=31)
    block = rng.choice([b" ", b"[", b"0,", b"{},", b'{"a":1},', b'"a":[],']) * (1 << 20)
    start = packer.compress(
        rng.choice([b"", b"[", b'{"a":"', b'{"results":[', b'{"cache":{', b'{"problems":['])
    )
    start += packer.flush(zlib.Z_FULL_FLUSH)
    # Behind a full flush nothing before is referred to: one packed block can be repeated.
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return start + packed * (BOMB_BYTES // len(block)) + packer.flush()


def _write_csv(folder: Path, rng: random.Random) -> None:
    if rng.random() < 0.3:
        (folder / "f.csv").write_bytes(values.mutate_bytes(CSV.encode(), rng))
        return
    rows = [line.split(",") for line in CSV.splitlines()]
    for _ in range(rng.choice([1, 2, 4])):
        row = rng.choice(rows)
        kind = rng.randrange(5)
        if kind < 3:
            drawn = rng.choice([rng.choice(values.TEXTS), rng.choice(values.NUMBERS[:25])])
            row[rng.randrange(len(row))] = str(drawn)
        elif kind == 3:
            row.append(rng.choice(values.TEXTS))
        else:
            rows.extend(rows[1:] * rng.choice([1, 1, 20]))
    text = "\n".join(",".join(row) for row in rows)
    (folder / "f.csv").write_text(text, encoding="utf-8", errors="replace", newline="")


def _write_recording(folder: Path, rng: random.Random) -> None:
    start = rng.choice(["vector_add", "saxpy", "mean_matvec"])
    data = (ROOT / f"results/recorded/{start}-H200.json.gz").read_bytes()
    kind = rng.randrange(10)
    if kind < 7:
        recorded = values.mutate_json(json.loads(gzip.decompress(data)), rng, rng.choice([1, 1, 3]))
        data = gzip.compress(values.dump(recorded).encode("utf-8", "replace"), 1)
    elif kind == 7:
        data = values.mutate_bytes(data, rng)
    elif kind == 8:
        data = gzip.compress(values.mutate_bytes(gzip.decompress(data), rng), 1)
    elif rng.random() < 0.2:
        data = bomb(rng)
    else:
        data = gzip.compress(values.json_texts(rng).encode("utf-8", "replace"))
    (folder / "f.json.gz").write_bytes(data)
    (folder / "kernel").write_text(start)


REPLAYED = "--trials 4 --db t.db -q"
RESULTS = f"""
import: import f.json --db t.db
import --json: import f.json --kernel k --gpu g --size n=5 --db t.db --json
run --device FILE: --device replay:f.json {REPLAYED} --json
run --space: --space T1.json --device replay:f.json {REPLAYED}
"""
TOML = """
show: show f.toml
show --json: show f.toml --json
explain FILE: explain f.toml: compiles
run FILE: --kernel f.toml --device replay --trials 3 --db t.db -q
check: check f.toml --configurations 1 --cc 90 --no-cpu: compiles
"""
SPACE = f"""
run --space FILE: --space f.json --device replay:T4.json {REPLAYED}
run --space FILE: --space f.json --device replay:T4.json {REPLAYED} --sampler random --json
"""
LIST = """
run --problems: --kernel vector_add --device replay --trials 2 --time 1 --db t.db -q --problems f.csv
run --problems: --kernel vector_add --device replay --trials 2 --time 1 --db t.db -q --problems f.csv --json
"""
RECORDING = f"""
run --device FILE: --kernel KERNEL --device replay:f.json.gz {REPLAYED}
run --device FILE: --kernel KERNEL --device replay:f.json.gz {REPLAYED} --sampler random --json
import: import f.json.gz --db t.db
"""
FORMATS: tuple[tuple[str, Callable[[Path, random.Random], None], str], ...] = (
    *3 * (("toml", _write_toml, TOML),),
    ("t1", _write_json(T1), SPACE),
    ("t4", _write_json(T4), RESULTS),
    ("cache", _write_json(CACHE), RESULTS),
    ("ktt", _write_json(KTT), RESULTS),
    ("csv", _write_csv, LIST),
    *2 * (("recording", _write_recording, RECORDING),),
)
"""A name, what writes a file of the kind, and the commands that read it."""


def write(folder: Path, seed: str, number: int) -> str:
    """Write one hostile file; returns its format."""
    name, write_file, _ = FORMATS[number % len(FORMATS)]
    write_file(folder, random.Random(f"{seed} file {number}"))
    return name


def commands(folder: Path, seed: str, number: int) -> list[Command]:
    """Return one of the commands for the file of a case."""
    rng = random.Random(f"{seed} file commands {number}")
    kind, words, *notes = map(
        str.strip, rng.choice(FORMATS[number % len(FORMATS)][2].strip().splitlines()).split(": ")
    )
    if "KERNEL" in words:
        words = words.replace("KERNEL", (folder / "kernel").read_text())
    return [Command.noted(kind, words.split(), " ".join(["t.db", *notes]))]
