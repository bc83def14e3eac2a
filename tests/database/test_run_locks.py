"""One run, one tuner: also where host names and process numbers say nothing, and until that tuner is gone."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.command_line import Fake, assert_no_process_left, trials_in
from tests.faults.containers import permitted
from tests.faults.kernels import write_kernel
from tests.faults.killing import marked
from tests.faults.processes import command_of
from tests.stored import make_run, make_trial
from tuner.core.errors import DatabaseError
from tuner.database.database import Database

needs_containers = pytest.mark.skipif(not permitted(), reason="namespaces are not permitted here")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "results" / "tuning.db"


def entering(host: str) -> str:
    """Return the statement that goes on in another container."""
    return f"from tests.faults.containers import enter; enter({host!r})"


def resumed(tmp_path: Path, *arguments: str, sleep_s: float = 0.0) -> Fake:
    return Fake(tmp_path, *arguments, "--resume", first=entering("theirs"), sleep_s=sleep_s)


@needs_containers
def test_another_container_takes_over_what_was_killed_and_no_living_run(
    tmp_path: Path, database: Path
) -> None:
    kernel = write_kernel(tmp_path / "own", items=range(1, 30))
    command = ("--kernel", str(kernel), "--trials", "24")
    ours = Fake(tmp_path, *command, first=entering("ours"), sleep_s=0.2)
    ours.wait_for_trials(database, 3)
    workers = [pid for pid in marked(ours.mark) if "fake_worker" in command_of(pid)]
    for pid in workers:  # it goes on once the other has been refused
        os.kill(pid, signal.SIGSTOP)
    there = trials_in(database)
    said = resumed(tmp_path, *command).ends()
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    assert workers
    assert said.code == 1
    assert "still going in process" in said.err and "of host ours" in said.err
    ours.wait_for_trials(database, there + 2)
    ours.process.send_signal(signal.SIGKILL)
    ours.process.wait()
    assert_no_process_left(ours.mark)
    said = resumed(tmp_path, *command).ends()
    assert said.code == 0, said.err
    with Database.open(database, write=False) as opened:
        assert opened.check().problems == []
    assert trials_in(database) == 24


def test_a_lock_ends_with_its_database(database: Path) -> None:
    run = make_run()
    with Database.open(database) as first, Database.open(database) as second:
        first.start_run(run)
        with pytest.raises(DatabaseError, match="still going"):
            second.resume_run(run.id)
        with pytest.raises(DatabaseError, match="still going"):
            second.delete_run(run.id)
        first.finish_run(run.id, "interrupted")
        assert second.resume_run(run.id) == run
        with pytest.raises(DatabaseError, match="still going"):
            first.resume_run(run.id)
    with Database.open(database) as third:
        assert third.resume_run(run.id) == run


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_lock_file_is_refused(database: Path, kind: str) -> None:
    Database.open(database).close()
    planted = database.with_name("tuning.db-lock")
    match kind:
        case "pipe":
            os.mkfifo(planted)
        case "link":
            planted.symlink_to(database)
        case "folder":
            planted.mkdir()
    before = database.read_bytes()
    with Database.open(database) as opened, pytest.raises(DatabaseError, match="db-lock"):
        opened.start_run(make_run())
    assert database.read_bytes()[:4096] == before[:4096]


def test_check_finds_what_two_tuners_did_to_one_run(database: Path) -> None:
    run = make_run()
    with Database.open(database) as opened:
        opened.start_run(run)
        opened.record(run.id, make_trial(0))
        opened.record(run.id, make_trial(1))
        opened.record(run.id, replace(make_trial(2), configuration=make_trial(0).configuration))
        (problem,) = opened.check().problems
        assert "1 configurations tried twice" in problem
        opened.retag(run.id, 0, ("suspect",))  # as the drift check does before it times one again
        assert opened.check().problems == []


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("exchanged", "replaced while it was open"),
        ("deleted", "deleted"),
        ("cut off", ""),
        ("overwritten", ""),
    ],
)
def test_a_file_that_is_gone_or_destroyed_during_the_run_is_noticed(
    tmp_path: Path, database: Path, harm: str, said: str
) -> None:
    kernel = write_kernel(tmp_path / "own", items=range(1, 30))
    fake = Fake(tmp_path, "--kernel", str(kernel), "--trials", "200")
    fake.wait_for_trials(database, 5)
    match harm:
        case "exchanged":
            Database.open(tmp_path / "other.db").close()
            (tmp_path / "other.db").replace(database)
        case "deleted":
            database.unlink()
        case "cut off":
            os.truncate(database, database.stat().st_size // 2)
        case "overwritten":
            with database.open("r+b") as file:
                file.write(b"x" * database.stat().st_size)
    ended = fake.ends()
    assert ended.code == 1 and said in ended.err.splitlines()[-1]
    assert "kept in" not in ended.out and "are safe" not in ended.err and "Traceback" not in ended.err


def test_what_is_not_in_the_file_any_more_is_noticed(database: Path) -> None:
    run = make_run()
    with Database.open(database) as opened:
        opened.start_run(run)
        rows = [opened.record(run.id, make_trial(number)) for number in range(3)]
        opened.require_rows(run.id, rows)
        with closing(sqlite3.connect(database)) as other, other:
            other.execute("DELETE FROM trials WHERE id = ?", (rows[1],))
        with pytest.raises(DatabaseError, match="lacks 1 of the rows"):
            opened.require_rows(run.id, rows)
