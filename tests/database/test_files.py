"""The database's file: refused, shared by processes, killed, damaged."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import best_known, filled, make_run, make_trial, refused, with_a_flipped_bit
from tuner.core.errors import DatabaseError
from tuner.database import cells, opening
from tuner.database.database import Database

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]


# -- files that are refused


@pytest.mark.parametrize("write", [True, False])
def test_foreign_files_are_refused_untouched(tmp_path: Path, write: bool) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("my notes, longer than a header\n" * 20)
    refused(text, "is not an SQLite file", write=write)
    short = tmp_path / "short"
    short.write_bytes(b"SQLite format 3\0")
    refused(short, "is not an SQLite file", write=write)
    foreign = tmp_path / "browser.db"
    connection = sqlite3.connect(foreign)
    connection.executescript("CREATE TABLE trials (x); INSERT INTO trials VALUES (1)")
    connection.close()
    refused(foreign, "a database of another program", write=write)
    refused(tmp_path, "is not a file", write=write)


def test_a_missing_or_empty_file_is_not_made_by_reading(path: Path) -> None:
    path.parent.mkdir()
    refused(path, "there is no database", write=False)
    path.touch()
    refused(path, "is empty", write=False)
    filled(path)  # writing may use the empty file


@pytest.mark.parametrize("write", [True, False])
def test_a_newer_file_is_refused_untouched(path: Path, write: bool) -> None:
    filled(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(opening.MIGRATIONS) + 1}")
    connection.close()
    refused(path, "newer kernel-tune", write=write)


def test_a_read_only_file_can_be_read_and_not_written(path: Path) -> None:
    filled(path)
    path.chmod(0o444)
    refused(path, "is read-only")
    with Database.open(path, write=False) as database:
        assert len(database.query().rows) == 3
        with pytest.raises(DatabaseError, match="opened for reading"):
            database.finish_run(make_run().id, "failed")


def test_network_filesystems_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path}/with\\040space nfs4 rw 0 0\n")
    assert opening.filesystem_of(tmp_path / "with space" / "sub" / "x.db", mounts) == "nfs4"
    assert opening.filesystem_of(tmp_path / "with spaces" / "x.db", mounts) == "ext4"
    assert opening.filesystem_of(tmp_path, tmp_path / "none") == ""
    assert opening.filesystem_of(tmp_path) not in opening.NETWORK_FILESYSTEMS
    path.parent.mkdir()
    monkeypatch.setattr(opening, "filesystem_of", lambda _: "nfs")
    refused(path, "network filesystem")


def test_a_full_disk_loses_nothing_and_says_so(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
        database.connection.execute(f"PRAGMA max_page_count = {pages + 6}")
        done = 0
        with pytest.raises(DatabaseError, match="the disk is full"):
            for number in range(100):
                database.record(run.id, replace(make_trial(number), sources=(f"{number}" * 2000,)))
                done += 1
        assert done > 0
    with Database.open(path) as database:
        assert len(database.trials(run.id)) == done
        assert database.check().problems == []


def test_a_file_size_limit_loses_nothing(fast: Path) -> None:
    code = """
    import resource, signal, sys
    from tests.stored import *
    from tuner.core.errors import DatabaseError
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    database = Database.open(Path(sys.argv[1])); database.start_run(make_run())
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for number in range(1000):
        try:
            database.record(make_run().id, replace(make_trial(number), sources=(f"{number}" * 3000,)))
        except DatabaseError as error:
            print(error); break
        print(number, flush=True)
    """
    path = fast / "t.db"
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    *numbers, message = result.stdout.splitlines()
    assert "disk is full" in message or "writing failed" in message
    with Database.open(path) as database:
        assert [str(trial.number) for trial in database.trials(make_run().id)] == numbers
        assert len(numbers) > 2
        assert database.check().problems == []


# -- several processes, and death

WRITER = """
import os, sys
from tests.stored import *
path, (name, *others), count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
forks = []
for other in others:
    forks.append(os.fork())
    if not forks[-1]:
        name, forks = other, []
        break
run = make_run(name * 32)
with Database.open(path) as database:
    database.start_run(run)
    for number in range(count):
        database.attempt(run.id, number, make_trial(number).configuration)
        database.record(run.id, make_trial(number))
        print(number, flush=True)
    database.finish_run(run.id, "finished")
sys.exit(any(os.waitpid(fork, 0)[1] for fork in forks))
"""


def start_writer(path: Path, names: str, count: int) -> subprocess.Popen[str]:
    """Start a process that writes so many trials, and a fork of it for each further letter."""
    command = [sys.executable, "-c", WRITER, str(path), names, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_eight_processes_write_one_file(fast: Path) -> None:
    path = fast / "t.db"  # created by all of them at once
    writer = start_writer(path, "abcdefgh", 8)
    out, err = writer.communicate(timeout=200)
    assert writer.returncode == 0, err
    assert len(out.splitlines()) == 64
    with Database.open(path) as database:
        check = database.check()
        assert check.problems == []
        assert (check.rows["runs"], check.rows["trials"], check.rows["attempts"]) == (8, 64, 0)


def test_a_killed_writer_loses_no_recorded_trial(fast: Path) -> None:
    path, chance = fast / "t.db", random.Random(5)
    for name in "012":
        writer = start_writer(path, name, 100_000)
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline()]
        time.sleep(chance.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        acknowledged += writer.stdout.readlines()
        writer.communicate()
        numbers = [int(line) for line in acknowledged if line.endswith("\n")]
        with Database.open(path) as database:
            stored = [trial.number for trial in database.trials(name * 32)]
            assert stored[: len(numbers)] == numbers
            assert len(stored) - len(numbers) in (0, 1)  # the last may be written and not yet acknowledged
            assert stored == list(range(len(stored)))
            assert [n for n, _, _ in database.pending_attempts(name * 32)] in ([], [len(stored)])
            assert database.check().problems == []


# -- damage


def test_no_flipped_bit_reaches_a_result(fast: Path) -> None:
    path = fast / "t.db"
    filled(path, count=30)
    with Database.open(path) as database:
        truth = {stored.trial.id: stored for stored in database.query().rows}
        best = database.best().rows[0]
    measured = [(stored.trial.configuration, stored.trial.time_ns) for stored in truth.values()]
    sound, chance, noticed = path.read_bytes(), random.Random(3), 0
    for _ in range(16):
        path.write_bytes(with_a_flipped_bit(sound, chance))
        try:
            with Database.open(path) as database:
                selection, winners = database.query(), database.best()
                fastest = best_known(database)
                noticed += bool(database.check().problems)
        except DatabaseError:
            noticed += 1
            continue
        for stored in selection.rows:
            assert stored == truth[stored.trial.id]
        for winner in winners.rows:
            assert replace(winner, id=best.id) == best
        assert fastest in [None, (best.winner.configuration, 900.0), *measured]
    assert noticed > 3


def test_truncated_files_are_one_clear_error(fast: Path) -> None:
    path = fast / "t.db"
    filled(path)
    sound = path.read_bytes()
    for cut in range(1, len(sound), len(sound) // 20):
        path.write_bytes(sound[:cut])
        try:
            with Database.open(path) as database:
                database.query()
                database.check()
        except DatabaseError as error:
            assert "\n" not in str(error)


def test_damaged_rows_are_left_out_and_reported(path: Path) -> None:
    trials = filled(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE trials SET time_ns = 1.0 WHERE id = ?", (trials[0].id,))
    connection.execute("UPDATE sources SET text = text || ' '  WHERE text LIKE '%source 1%'")
    connection.commit()
    connection.close()
    with Database.open(path) as database:
        selection = database.query()
        assert [stored.trial.number for stored in selection.rows] == [1, 2]
        assert len(selection.damaged) == 1
        assert f"trial {trials[0].id} is damaged" in selection.damaged[0]
        assert database.best().rows == []
        assert len(database.best().damaged) == 1
        assert best_known(database) == (trials[1].configuration, 1001.0)
        with pytest.raises(DatabaseError, match="is damaged"):
            database.trials(make_run().id)
        with pytest.raises(DatabaseError, match="source"):
            database.trial(trials[1].id or 0)
        problems = "\n".join(database.check().problems)
        assert f"trial {trials[0].id} is damaged" in problems
        assert "source" in problems


def test_a_hostile_row_with_a_right_digest_is_damage_not_a_crash(path: Path) -> None:
    filled(path, count=1)
    chance = random.Random(1)
    columns = (
        "configuration", "samples", "sample_count", "verification", "tags", "status", "registers",
        "variant",
    )  # fmt: skip
    texts = (
        "[]", "{", '{"a": [1]}', '{"a": NaN}', "null", "[" * 5000, '"x"', "{}", "7",
        '{"passed": 1, "x": 2}',
    )  # fmt: skip
    with Database.open(path) as database:
        sound = database.select("SELECT * FROM trials")[0]
        for _ in range(100):
            column = chance.choice(columns)
            value: object = chance.choice(texts)
            if column in ("sample_count", "registers"):
                value = chance.choice((-1, 10**12, *((None, 3) if column == "registers" else ())))
            elif column == "samples":
                value = chance.randbytes(20)
            row = cells.sealed("trials", **{**sound, column: value})
            names = ", ".join(f"{name} = ?" for name in row)
            database.connection.execute(f"UPDATE trials SET {names}", list(row.values()))
            selection = database.query()
            assert len(selection.rows) + len(selection.damaged) == 1
            assert isinstance(database.check().problems, list)
