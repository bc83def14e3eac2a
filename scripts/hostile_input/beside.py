"""Hostile bytes of a database's file, and hostile files beside it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from scripts.hostile_input import values

NAME = "tuning.db"


def single_bytes(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 5, 50])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def bytes_of_the_header(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 2])):
        data[rng.randrange(100)] = rng.randrange(256)
    path.write_bytes(data)


def cut_or_longer(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    cut = rng.choice([0, 1, 50, 99, 100, 512, 4096, 8192, rng.randrange(len(data))])
    path.write_bytes(rng.choice([data[:cut], data + bytes(5000), data[:4096] + data, bytes(cut) + data]))


def of_other_versions(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"PRAGMA user_version = {rng.choice([0, 1, 2, 3, 9, 99, -1, 2**31 - 1, -(2**31)])}"
        )
        if rng.random() < 0.3:
            connection.execute(f"PRAGMA application_id = {rng.choice([0, 1, -1, 0x47504B47])}")


def in_utf16(path: Path, rng: random.Random) -> None:
    with closing(sqlite3.connect(path)) as connection:
        script = list(connection.iterdump())
        pragmas = {
            p: connection.execute(f"PRAGMA {p}").fetchone()[0] for p in ("user_version", "application_id")
        }
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA encoding = 'UTF-16{rng.choice(['le', 'be'])}'")
        connection.execute(f"PRAGMA page_size = {rng.choice([512, 4096, 65536])}")
        connection.execute(f"PRAGMA auto_vacuum = {rng.choice([0, 1, 2])}")
        for name, number in pragmas.items():
            connection.execute(f"PRAGMA {name} = {number}")
        for statement in script:
            with suppress(sqlite3.Error):
                connection.execute(statement)


def log_beside(path: Path, rng: random.Random) -> None:
    """Leave beside the file what a killed writer leaves, a journal to be played back or a log; or no such thing."""
    kind = rng.choice(["journal", "wal"])
    log = path.with_name(f"{NAME}-{kind}")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for pragma in ("wal_autocheckpoint = 0", "cache_size = 1", f"journal_mode = {JOURNALS[kind]}"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        connection.execute("UPDATE trials SET error = 'x'")  # of more pages than the cache has
        if kind == "wal":
            connection.execute("COMMIT")
        copies = path.read_bytes(), log.read_bytes()
        if kind == "journal":
            connection.execute("ROLLBACK")
    path.write_bytes(copies[0])
    how = rng.randrange(5)
    if how < 3:
        log.write_bytes(copies[1] if how == 0 else values.mutate_bytes(copies[1], rng))
    elif how == 3:
        log.write_bytes(rng.randbytes(5000))
        path.with_name(f"{NAME}-shm").write_bytes(rng.randbytes(40_000))
    elif rng.random() < 0.5:
        log.symlink_to("victim")
    else:
        log.mkdir()


JOURNALS = {"journal": "DELETE", "wal": "WAL"}
FILES: dict[str, Callable[[Path, random.Random], None]] = {
    "single bytes": single_bytes,
    "bytes of the header": bytes_of_the_header,
    "cut or longer": cut_or_longer,
    "of other versions": of_other_versions,
    "in UTF-16": in_utf16,
    "log beside": log_beside,
}
