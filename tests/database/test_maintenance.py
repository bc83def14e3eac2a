"""A database is kept up: merged, copied, deleted from, asked in SQL, and read without its journal."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stored import file_hash, filled, make_run, make_trial, make_winner
from tuner.core.errors import DatabaseError, UsageError
from tuner.database import hostile, sql
from tuner.database.database import Database

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]


def test_merge_adds_what_is_missing_once(path: Path, tmp_path: Path) -> None:
    filled(path, make_run("a" * 32), count=5)
    other = tmp_path / "other.db"
    trials = filled(other, make_run("b" * 32))
    before = file_hash(other)
    with Database.open(path) as database:
        merged = database.merge(other)
        assert (merged.runs, merged.trials, merged.winners, merged.refused) == (1, 3, 1, [])
        again = database.merge(other)
        assert (again.runs, again.trials, again.winners, again.refused) == (0, 0, 0, [])
        assert database.check().problems == []
        moved = database.trials("b" * 32)
        assert [replace(trial, id=None) for trial in moved] == [replace(trial, id=None) for trial in trials]
        assert database.trial(moved[2].id or 0).trial.sources == make_trial(2).sources
        winner = next(s for s in database.winners().rows if s.run.id[0] == "b")
        assert winner.winner.trial_id == winner.winner.default_trial_id == moved[0].id != trials[0].id
        with pytest.raises(UsageError, match="is the database itself"):
            database.merge(path)
    assert file_hash(other) == before


def test_merge_leaves_out_damage_and_conflicts(path: Path, tmp_path: Path) -> None:
    filled(path, make_run("a" * 32))
    other = tmp_path / "other.db"
    shutil.copy(path, other)
    for file, time_ns in ((path, 5.0), (other, 6.0)):
        with Database.open(file) as database:
            database.record("a" * 32, make_trial(3, time_ns))
    with Database.open(other) as database:
        database.record("a" * 32, make_trial(4))
    filled(other, make_run("b" * 32))
    third = tmp_path / "third.db"
    filled(third, make_run("a" * 32))  # the same id, but started at another time
    connection = sqlite3.connect(other)
    connection.execute("UPDATE trials SET time_ns = 1.0 WHERE run_id LIKE 'b%' AND number = 1")
    connection.commit()
    connection.close()
    with Database.open(path) as database:
        kept = database.trials("a" * 32)
        merged = database.merge(other)
        assert (merged.runs, merged.trials, merged.winners) == (1, 3, 1)
        assert len(merged.refused) == 2
        assert any("trial 3 of run aaaa" in line and "differs" in line for line in merged.refused)
        assert any("is damaged" in line for line in merged.refused)
        assert database.trials("a" * 32)[:4] == kept
        assert len(database.trials("a" * 32)) == 5
        merged = database.merge(third)
        assert (merged.runs, merged.trials, merged.winners) == (0, 0, 0)
        assert "is another run" in merged.refused[0]
        assert database.check().problems == []


def test_merge_takes_how_a_run_has_ended_and_no_damaged_winner(path: Path, tmp_path: Path) -> None:
    run, other = make_run("a" * 32), tmp_path / "other.db"
    with Database.open(path) as database:
        database.start_run(run)
        database.record(run.id, make_trial(0))
        database.finish_run(run.id, "interrupted", {"occupied": 0.1})
        database.backup(other)
    with Database.open(other) as database:
        database.record_winner(run.id, make_winner(database.trials(run.id)[0]))
        database.finish_run(run.id, "finished", {"occupied": 0.9})
        ended = database.run_state(run.id)
    filled(other, make_run("b" * 32))
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE winners SET time_ns = 1.0 WHERE run_id LIKE 'b%'")
    for _ in range(2):
        with Database.open(path) as database:
            merged = database.merge(other)
            assert len(merged.refused) == 1 and "winner 2 is damaged" in merged.refused[0]
            assert database.run_state(run.id) == ended
            assert [stored.run.id for stored in database.winners().rows] == [run.id]
    with Database.open(other) as database:
        database.merge(path)
        assert database.run_state(run.id) == ended


@pytest.mark.parametrize("write", [True, False])
def test_backup_is_a_whole_database(path: Path, tmp_path: Path, write: bool) -> None:
    trials = filled(path)
    target = tmp_path / "backups" / f"{'copy' * 60}.db"
    with Database.open(path, write=write) as database:
        database.backup(target)
        with pytest.raises(DatabaseError, match="exists already"):
            database.backup(target)
    assert sorted(target.parent.iterdir()) == [target]
    with Database.open(target) as copy:
        assert copy.trials(make_run().id) == trials
        assert copy.check().problems == []


def test_deleting_a_run_keeps_the_others_and_their_sources(path: Path) -> None:
    filled(path, make_run("a" * 32), count=3)
    filled(path, make_run("ab" + "b" * 30), count=2)
    with Database.open(path) as database:
        with pytest.raises(DatabaseError, match="2 runs start with"):
            database.delete_run("a")
        with pytest.raises(DatabaseError, match="there is no run"):
            database.delete_run("")
        assert database.delete_run("aa") == 3
        check = database.check()
        assert check.problems == []
        counts = {"trials": 2, "sources": 3, "attempts": 0, "winners": 1, "benchmarks": 0}
        assert check.rows == {"runs": 1, **counts}
        with pytest.raises(DatabaseError, match="there is no run"):
            database.run("a" * 32)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("ATTACH '{}/new.db' AS other", "can only read"),
        ("VACUUM INTO '{}/new.db'", "can only read"),
        ("PRAGMA user_version = 9", "can only read"),
        ("PRAGMA user_version", "can only read"),
        ("DELETE FROM trials", "can only read"),
        ("CREATE TABLE x (y)", "can only read"),
        ("CREATE TEMP TABLE x (y)", "can only read"),
        ("BEGIN", "can only read"),
        ("SELECT load_extension('x')", "not authorized"),
        ("SELECT 1; DELETE FROM trials", "one statement"),
        ("", "is empty"),
        ("SELECT \0", "null character|unrecognized"),
        ("SELECT * FROM nowhere", "no such table"),
        ("WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x FROM t", "too large"),
        ("SELECT zeroblob(1000000000)", "too big"),
    ],
)
def test_sql_can_only_read(path: Path, tmp_path: Path, text: str, match: str) -> None:
    filled(path)
    before = file_hash(path)
    with Database.open(path, write=False) as database, pytest.raises(UsageError, match=match):
        database.sql(text.format(tmp_path))
    assert file_hash(path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results"]


SLOW = (
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t",
    "SELECT instr(zeroblob(15000000) || x'01', zeroblob(7000000) || x'01')",  # one instruction
)


@pytest.mark.parametrize("text", SLOW)
def test_sql_is_stopped_after_a_while(path: Path, text: str) -> None:
    filled(path)
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"more than 0\.2 s"):
        sql.read_only(path, text, limit_s=0.2)
    assert time.monotonic() - began < 100  # not for ever


def running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def readers_of(pid: int) -> list[int]:
    """Return the children of a process that read a database for it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"tuner.database.sql" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("text", SLOW)
def test_sql_is_stopped_by_its_user(path: Path, text: str, number: signal.Signals) -> None:
    filled(path)
    command = [sys.executable, "-m", "tuner", "query", "--db", str(path), "--sql", text]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    deadline = time.monotonic() + 100
    while not (children := readers_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    (child,) = children
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(100) != 0
    while running(child) and time.monotonic() < began + 100:
        time.sleep(0.01)
    assert time.monotonic() - began < 100  # not for ever


def test_sql_reads_with_functions(path: Path) -> None:
    filled(path)
    with Database.open(path, write=False) as database:
        columns, values = database.sql(
            "SELECT t.number AS n, j.value FROM trials t, json_each(t.tags) j ORDER BY 1 LIMIT 1"
        )
    assert (columns, values) == (["n", "value"], [(0, "noisy")])


def test_a_journal_that_is_gone_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process ends its transaction between the look for the file and the look into it."""
    path = tmp_path / "t.db"
    Database.open(path).close()
    journal = tmp_path / "t.db-journal"
    journal.write_bytes(b"\0" * 28)
    look = hostile._refuse_journal

    def too_late(*arguments: Any) -> None:
        journal.unlink()
        look(*arguments)

    monkeypatch.setattr(hostile, "_refuse_journal", too_late)
    Database.open(path).close()
    assert not journal.exists()
