"""Databases of earlier and of newer versions: migrated, read, or refused."""

from __future__ import annotations

import functools
import os
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import (
    WARM,
    best_known,
    filled,
    make_run,
    make_trial,
    make_winner,
    refused,
    with_a_flipped_bit,
)
from tuner.core.conditions import Conditions
from tuner.core.errors import DatabaseError
from tuner.core.model import RunOptions, Status
from tuner.database import opening, owners
from tuner.database.database import Database
from tuner.database.records import Filters, Metrics

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]


def _add_note(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE notes (text TEXT) STRICT")


def test_an_older_file_is_migrated_with_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = filled(path)
    older = len(opening.MIGRATIONS)
    monkeypatch.setattr(opening, "MIGRATIONS", (*opening.MIGRATIONS, _add_note))
    with Database.open(path, write=False) as database:  # reading migrates too
        assert database.select("SELECT count(*) AS n FROM notes") == [{"n": 0}]
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == older + 1
        assert database.trials(make_run().id) == trials
    monkeypatch.setattr(opening, "MIGRATIONS", opening.MIGRATIONS[:-1])
    refused(path, "newer kernel-tune")


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE winners")
        connection.execute("nonsense")

    monkeypatch.setattr(opening, "MIGRATIONS", (*opening.MIGRATIONS, _add_note, fail))
    with pytest.raises(DatabaseError, match="nonsense"):
        Database.open(path)
    monkeypatch.setattr(opening, "MIGRATIONS", opening.MIGRATIONS[:-2])
    with Database.open(path) as database:
        assert database.check().problems == []
        assert len(database.best().rows) == 1


def test_a_read_only_older_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    path.chmod(0o444)
    monkeypatch.setattr(opening, "MIGRATIONS", (*opening.MIGRATIONS, _add_note))
    refused(path, "older schema", write=False)


VERSION_1 = (ROOT / "tests/database/version-1.sql").read_text()
"""What ``iterdump`` gave of a file that version 1 wrote.

Runs: a, measured and finished; b, replayed; c, interrupted, with its trial 1 altered behind the database's back; d,
altered itself; e, whose trials have the status ``untrusted``, which later became two.
"""


@functools.cache
def written_by_version_1() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(VERSION_1)
        connection.execute(f"PRAGMA application_id = {opening.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        return connection.serialize()


def version_1(path: Path, *statements: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written_by_version_1())
    if statements:
        with closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)
    return path


@pytest.mark.parametrize("write", [True, False])
def test_a_version_1_file_keeps_working(path: Path, write: bool) -> None:
    version_1(path)
    with Database.open(path, write=write) as database:
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == len(opening.MIGRATIONS)
        assert database.run("a" * 32) == replace(
            make_run(),
            calibration=None,
            options=RunOptions(seed=7, sampler="tpe"),
            kernel_digest="d1",
            computation="",
        )
        noisy, good, hang = (database.trial(number) for number in (1, 2, 3))
        old = {"sm_clock_hz": 0.0, "capped_samples": 0}
        samples = (1000.0,) * 18 + (1001.0, 1200.0)
        assert noisy.trial == replace(make_trial(0), samples_ns=samples, id=1, **old)
        assert good.trial == replace(make_trial(1), id=2, **old)
        assert (noisy.metrics, noisy.outliers, good.outliers) == (Metrics(100.0, 2000.0, 0.5), 1, 0)
        assert (hang.trial.status, hang.trial.time_ns, hang.outliers) == (Status.HANG, None, 0)
        winners = [(s.run.id[0], s.run.conditions, s.winner.time_ns) for s in database.winners().rows]
        assert winners == [("a", Conditions(), 900.0), ("b", Conditions(), 850.0)]
        assert best_known(database) == (make_trial(0).configuration, 900.0)
        assert len(database.query(Filters(mode="cold", regime="rested", run="a")).rows) == 3
        assert database.pending_attempts("c" * 32) == [(2, make_trial(2).configuration, 1)]
        assert database.benchmarks().rows == []


def test_a_version_1_file_is_written_on(path: Path) -> None:
    version_1(path)
    with Database.open(path) as database:
        run = database.resume_run("c" * 32)
        assert run.conditions == Conditions()
        number = database.record(run.id, make_trial(2))
        database.record_winner(run.id, make_winner(database.trial(number).trial))
        database.reject("a" * 32, 1, "came back at 2 us")
        database.retag("a" * 32, 0, ("suspect",))
        new = make_run("f" * 32, conditions=WARM)
        database.start_run(new)
        database.record(new.id, make_trial(0))
        assert [trial.number for trial in database.trials(new.id)] == [0]
        assert len(database.check().problems) == 3  # those of the damaged rows
        assert database.trial(1).trial.tags == ("suspect",)


def test_untrusted_times_get_the_status_that_says_why(path: Path) -> None:
    version_1(path)
    with Database.open(path) as database:
        fast, mismatch = database.trials("e" * 32)
        assert (fast.status, mismatch.status) == (Status.TOO_FAST, Status.CLOCK_MISMATCH)
        assert fast.error == "0.80 us is less than the hardware needs (1.20 us)"


def test_damage_in_a_version_1_file_stays_damage(path: Path) -> None:
    version_1(path)
    with Database.open(path) as database:
        assert [trial.number for trial in database.trials("a" * 32)] == [0, 1, 2]
        assert [s.trial.number for s in database.query(Filters(run="c")).rows] == [0]
        assert "is damaged" in database.query(Filters(run="c")).damaged[0]
        with pytest.raises(DatabaseError, match=r"run d+ is damaged"):
            database.run("d" * 32)
        problems = database.check().problems
        assert [problem.split(" is damaged")[0].split(": ")[-1] for problem in problems] == [
            "run " + "d" * 32,
            "trial 6",
            "run " + "d" * 32,  # its trial's
        ]


def test_a_migrated_file_has_the_tables_of_a_new_one(path: Path, tmp_path: Path) -> None:
    version_1(path)
    tables = []
    for file in (path, tmp_path / "new.db"):
        with Database.open(file) as database:
            schemas = database.select("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            tables.append({row["name"]: row["sql"] for row in schemas})
            strict = database.select("SELECT strict FROM pragma_table_list WHERE name = 'benchmarks'")
            assert strict == [{"strict": 1}]
    assert tables[0] == tables[1]


def test_copies_migrated_apart_are_the_same(path: Path, tmp_path: Path) -> None:
    version_1(path)
    other = version_1(tmp_path / "other.db")
    with Database.open(path) as database:
        merged = database.merge(other)  # migrates it, too
        assert (merged.runs, merged.trials, merged.winners, merged.benchmarks) == (0, 0, 0, 0)
        assert len(merged.refused) == 2
        assert all("damaged" in line for line in merged.refused)
    with Database.open(tmp_path / "new.db") as database:
        merged = database.merge(path)
        assert (merged.runs, merged.trials, merged.winners) == (4, 7, 2)
        assert database.check().problems == []


def test_a_file_on_which_an_older_tuner_works_is_not_migrated(path: Path) -> None:
    working = "UPDATE runs SET state = 'running', owner = '{}' WHERE id LIKE 'c%'"
    version_1(path, working.format(owners.this_process()))
    for write in (True, False):
        refused(path, f"still going in process {os.getpid()}, an older kernel-tune", write=write)
    path.unlink()
    version_1(path, working.format("host:1:1"))
    Database.open(path).close()


def test_a_trigger_does_not_see_the_migration(path: Path) -> None:
    version_1(path, "CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM winners; END")
    refused(path, "trigger 't'")


def test_no_flipped_bit_survives_the_migration(fast: Path) -> None:
    path = version_1(fast / "t.db")
    sound, chance, noticed = path.read_bytes(), random.Random(8), 0
    with Database.open(path) as database:
        truth = {stored.trial.id: stored for stored in database.query().rows}
        winners = {stored.id: stored for stored in database.winners().rows}
    assert truth and winners
    for _ in range(20):
        path.write_bytes(with_a_flipped_bit(sound, chance))
        try:
            with Database.open(path) as database:
                assert all(stored == truth[stored.trial.id] for stored in database.query().rows)
                assert all(stored == winners[stored.id] for stored in database.winners().rows)
                noticed += len(database.check().problems) > 3
        except DatabaseError:
            noticed += 1
    assert noticed > 1
