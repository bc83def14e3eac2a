"""Mutated files of every format that the tuner reads, and the commands that read them."""

from __future__ import annotations

import gzip
import json
import random
import re
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
    _write_text(folder / "f.toml", start.read_text(), values.TOML_TOKEN, rng)


def _write_csv(folder: Path, rng: random.Random) -> None:
    _write_text(folder / "f.csv", CSV, values.CSV_CELL, rng)


def _write_text(file: Path, text: str, token: re.Pattern[str], rng: random.Random) -> None:
    if rng.random() < 0.15:
        file.write_bytes(values.mutate_bytes(text.encode(), rng))
    else:
        file.write_text(values.mutate_text(text, token, rng), errors="replace", newline="")


def _write_json(start: Any) -> Callable[[Path, random.Random], None]:
    def write(folder: Path, rng: random.Random) -> None:
        text = _hostile_json(json.dumps(start), rng)
        if rng.random() < 0.2:
            text = gzip.compress(text)
            text = values.mutate_bytes(text, rng) if rng.random() < 0.5 else text
        (folder / "f.json").write_bytes(bomb(rng) if rng.random() < 0.05 else text)
        (folder / "T1.json").write_text(json.dumps(T1))
        (folder / "T4.json").write_text(json.dumps(T4))

    return write


def _write_recording(folder: Path, rng: random.Random) -> None:
    start = rng.choice(["vector_add", "saxpy", "mean_matvec"])
    data = gzip.decompress((ROOT / f"results/recorded/{start}-H200.json.gz").read_bytes())
    packed = gzip.compress(_hostile_json(data.decode(), rng), 1)
    packed = values.mutate_bytes(packed, rng) if rng.random() < 0.1 else packed
    (folder / "f.json.gz").write_bytes(bomb(rng) if rng.random() < 0.02 else packed)
    (folder / "kernel").write_text(start)


def _hostile_json(text: str, rng: random.Random) -> bytes:
    """Return changed JSON, what no writer writes, other bytes, or what a writer leaves that is killed."""
    kind = rng.randrange(10)
    if kind < 7:
        text = values.dump(values.mutate_json(json.loads(text), rng, rng.choice([1, 1, 2, 5])))
    elif kind == 7:
        text = values.json_texts(rng)
    data = text.encode("utf-8", "replace")
    return (
        values.mutate_bytes(data, rng)
        if kind == 8
        else data[: rng.randrange(len(data))]
        if kind == 9
        else data
    )


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
