"""Runs and their attempts: counted, resumed, locked, written in one transaction."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import PROBLEM, file_hash, make_run, make_trial
from tuner.core.errors import DatabaseError
from tuner.database.database import Database

pytestmark = pytest.mark.usefixtures("forked_children")


ROOT = Path(__file__).resolve().parents[2]


def test_attempts_are_counted_until_there_is_a_result(path: Path) -> None:
    run, one, two = make_run(), make_trial(0), make_trial(1)
    with Database.open(path) as database:
        database.start_run(run)
        database.attempt(run.id, 0, one.configuration)
        database.attempt(run.id, 1, two.configuration)
        database.attempt(run.id, 0, one.configuration)
    with Database.open(path) as database:
        assert database.pending_attempts(run.id) == [(0, one.configuration, 2), (1, two.configuration, 1)]
        database.record(run.id, one)
        assert database.pending_attempts(run.id) == [(1, two.configuration, 1)]
        database.finish_run(run.id, "interrupted", forget_attempts=True)
        assert database.pending_attempts(run.id) == []


def test_a_trial_that_cannot_be_written_keeps_its_attempt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, trial = make_run(), make_trial(0)
    with Database.open(path) as database:
        database.start_run(run)
        database.attempt(run.id, 0, trial.configuration)
        insert = database.insert

        def fail(table: str, row: dict[str, object]) -> int:
            insert(table, row)
            raise KeyboardInterrupt

        monkeypatch.setattr(database, "insert", fail)
        with pytest.raises(KeyboardInterrupt):
            database.record(run.id, trial)
        assert database.trials(run.id) == []
        assert database.check().rows["sources"] == 0
        assert len(database.pending_attempts(run.id)) == 1


def test_ctrl_c_while_the_lock_is_waited_for_leaves_no_transaction_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python raises it once SQLite returns, with the lock; what is written next would join, and never be committed."""
    run = make_run()

    class Locked:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection

        def execute(self, *arguments: object) -> None:
            self.connection.execute(*arguments)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> object:
            return getattr(self.connection, name)

    with Database.open(path) as database:
        database.start_run(run)
        with monkeypatch.context() as patch:
            patch.setattr(database, "connection", Locked(database.connection))
            with pytest.raises(KeyboardInterrupt):
                database.attempt(run.id, 0, make_trial(0).configuration)
        database.finish_run(run.id, "interrupted")
    with Database.open(path) as database:
        assert database.run_state(run.id)["state"] == "interrupted"


def test_methods_join_one_transaction(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        with pytest.raises(ZeroDivisionError), database.transaction():
            database.record(run.id, make_trial(0))
            database.attempt(run.id, 1, make_trial(1).configuration)
            raise ZeroDivisionError
        assert database.trials(run.id) == []
        assert database.pending_attempts(run.id) == []


def test_the_last_unfinished_run_is_found_and_resumed(path: Path) -> None:
    with Database.open(path) as database:
        for name, state in (("a", "interrupted"), ("b", "failed"), ("c", "finished")):
            database.start_run(make_run(name * 32))
            database.finish_run(name * 32, state, {"n": 1})
        step = replace(make_run("e" * 32), options=replace(make_run().options, part=True))  # of a ladder
        database.start_run(step)
        database.finish_run(step.id, "interrupted")
        assert database.run(step.id) == step
        unfinished = database.latest_unfinished(PROBLEM, "cuda:0")
        assert unfinished == make_run("b" * 32)
        assert database.latest_unfinished(PROBLEM, "cuda:1") is None
        other = replace(PROBLEM, sizes={"m": 1, "n": 1, "k": 1})
        assert database.latest_unfinished(other, "cuda:0") is None
        assert database.resume_run("b" * 32) == unfinished
        assert database.run_state("b" * 32)["state"] == "running"
        assert database.run_state("a" * 32)["stats"] == {"n": 1}
        with pytest.raises(DatabaseError, match="there is no run"):
            database.finish_run("d" * 32, "finished")


def test_a_run_whose_process_lives_is_not_taken_over(path: Path) -> None:
    code = """if True:
        import sys
        from tests.stored import *
        database = Database.open(Path(sys.argv[1]))
        database.start_run(make_run())
        print("ok", flush=True)
        input()
    """
    command, pipe = [sys.executable, "-c", code, str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ok\n"
        with Database.open(path) as database:
            assert database.latest_unfinished(PROBLEM, "cuda:0") is None
            with pytest.raises(DatabaseError, match=f"still going in process {process.pid}"):
                database.resume_run(make_run().id)
            process.kill()
            process.wait()
            assert database.latest_unfinished(PROBLEM, "cuda:0") == make_run()
            database.resume_run(make_run().id)


def test_a_sampler_is_read_by_the_name_that_it_has_today(path: Path) -> None:
    with Database.open(path) as database:
        run = make_run()
        database.start_run(replace(run, options=replace(run.options, sampler="kriging")))
    with Database.open(path, write=False) as database:
        before = file_hash(path)
        assert database.run(make_run().id).options.sampler == "gp-ei"
        assert database.check().problems == []
        assert database.select("SELECT sampler FROM runs") == [{"sampler": "kriging"}]
    assert file_hash(path) == before
