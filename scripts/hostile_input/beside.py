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


def hot_journal(path: Path, rng: random.Random) -> None:
    """Leave a journal beside the file that SQLite plays back: pages of anything, for a file of any name."""
    data = path.read_bytes()
    pages, size = len(data) // 4096, 4096
    head = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
    nonce = 0
    records = []
    for _ in range(rng.choice([1, 3])):
        number = rng.randrange(1, pages + 1)
        page = bytearray(data[(number - 1) * size : number * size])
        if rng.random() < 0.5:
            page[rng.randrange(size)] ^= 0xFF
        check = (nonce + sum(page[size - 200 :: -200])) & 0xFFFFFFFF
        records.append(number.to_bytes(4, "big") + bytes(page) + check.to_bytes(4, "big"))
    count = len(records) if rng.random() < 0.7 else 0xFFFFFFFF
    numbers = (count, nonce, rng.choice([pages, pages, 1, 2**31 - 1]), 512, size)
    journal = (head + b"".join(n.to_bytes(4, "big") for n in numbers)).ljust(512, b"\0") + b"".join(records)
    kind = rng.randrange(4)
    if kind == 1:  # the name of a super-journal, a file that SQLite deletes when it is done
        name = str(path.with_name("victim").absolute()).encode()
        lock_page = 2**30 // size + 1
        sums = sum(name) & 0xFFFFFFFF
        journal += (
            lock_page.to_bytes(4, "big")
            + name
            + len(name).to_bytes(4, "big")
            + sums.to_bytes(4, "big")
            + head
        )
    elif kind == 2:
        journal = values.mutate_bytes(journal, rng)
    path.with_name(f"{NAME}-journal").write_bytes(journal)


def log_beside(path: Path, rng: random.Random) -> None:
    """Leave a write-ahead log beside the file, or something else of that name."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE runs SET owner = 'x'")
        connection.commit()
        log = path.with_name(f"{NAME}-wal").read_bytes()
        copy = path.read_bytes()
    path.write_bytes(copy)
    target = path.with_name(f"{NAME}-wal")
    kind = rng.randrange(5)
    if kind < 2:
        target.write_bytes(log if kind else values.mutate_bytes(log, rng))
    elif kind == 2:
        target.write_bytes(rng.randbytes(5000))
        path.with_name(f"{NAME}-shm").write_bytes(rng.randbytes(40_000))
    elif kind == 3:
        target.symlink_to("victim")
    else:
        path.with_name(f"{NAME}-journal").mkdir()


FILES: list[Callable[[Path, random.Random], None]] = [
    single_bytes, single_bytes, bytes_of_the_header, cut_or_longer, of_other_versions, in_utf16, hot_journal,
    log_beside,
]  # fmt: skip
