"""Trials come back from the database as they were written."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import CALIBRATION, filled, make_benchmark, make_run, make_trial, make_winner
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import DatabaseError
from tuner.core.model import Status, Trial, Verification
from tuner.database import opening
from tuner.database.database import Database
from tuner.database.records import Filters, Metrics

pytestmark = pytest.mark.usefixtures("forked_children")


def test_a_trial_comes_back_as_it_was(path: Path) -> None:
    run, trial = make_run(), make_trial(0)
    with Database.open(path) as database:
        database.start_run(run)
        number = database.record(run.id, trial, metrics=Metrics(1.5, 2.5, 0.75))
    with Database.open(path, write=False) as database:
        assert database.run(run.id) == run
        assert list(database.run(run.id).problem.dtypes) == [
            "input",
            "accumulate",
            "output",
        ]  # the order is meaning
        stored = database.trial(number)
        assert stored.trial == replace(trial, id=number)
        assert stored.metrics == Metrics(1.5, 2.5, 0.75)
        assert database.trials(run.id) == [replace(trial, id=number, sources=())]


def test_conditions_calibration_and_true_error_come_back(path: Path) -> None:
    run = make_run(conditions=Conditions(Mode.ROTATING, Regime.SUSTAINED))
    verification = Verification(True, worst_ratio=0.5, true_error=3e-4)
    with Database.open(path) as database:
        database.start_run(run)
        database.start_run(replace(make_run("b" * 32), calibration=None))
        for number, error in enumerate((3e-4, None, math.inf)):
            verified = replace(verification, true_error=error)
            database.record(run.id, replace(make_trial(number), verification=verified))
    with Database.open(path, write=False) as database:
        assert database.run(run.id).conditions == Conditions(Mode.ROTATING, Regime.SUSTAINED)
        assert database.run(run.id).calibration == CALIBRATION
        assert database.run("b" * 32).calibration is None
        errors = [t.verification.true_error for t in database.trials(run.id) if t.verification]
        assert errors == [3e-4, None, math.inf]
        columns = "mode, regime, sm_clock_hz, capped_samples"
        assert database.select(f"SELECT {columns} FROM trials LIMIT 1") == [
            {"mode": "rotating", "regime": "sustained", "sm_clock_hz": 1.755e9, "capped_samples": 2}
        ]


def test_outliers_are_counted_when_a_trial_is_written(path: Path) -> None:
    samples = ((1000.0,) * 18 + (1001.0, 1200.0), (1000.0,) * 20, ())
    with Database.open(path) as database:
        database.start_run(make_run())
        for number, taken in enumerate(samples):
            database.record(make_run().id, replace(make_trial(number), samples_ns=taken))
        assert [stored.outliers for stored in database.query().rows] == [1, 0, 0]
        assert [row["outliers"] for row in database.select("SELECT outliers FROM trials")] == [1, 0, 0]


def test_odd_values_come_back(path: Path) -> None:
    verification = Verification(False, True, 3, math.inf, math.nan, "nan")
    trial = replace(
        make_trial(0, status=Status.WRONG_RESULT),
        time_ns=None, ci_low_ns=math.nan, samples_ns=(), resources=None, verification=verification,
        error="lone \ud800 surrogate \0", sources=("\ud800",),
    )  # fmt: skip
    with Database.open(path) as database:
        database.start_run(make_run())
        stored = database.trial(database.record(make_run().id, trial)).trial
        assert database.check().problems == []
    assert (stored.time_ns, stored.ci_low_ns, stored.samples_ns, stored.resources) == (None, None, (), None)
    assert stored.verification is not None
    assert stored.verification.worst_ratio == math.inf
    assert math.isnan(stored.verification.norm_error)
    assert stored.error == "lone ? surrogate \0"


def test_what_was_not_measured_comes_back_as_that(path: Path) -> None:
    bare = Trial(0, make_trial(0).configuration, Status.COMPILE_ERROR, error="no")
    quick = replace(
        make_trial(1), time_ns=0.5, ci_low_ns=0.4, ci_high_ns=0.6, compile_s=float("nan"), resources=None
    )
    with Database.open(path) as database:
        database.start_run(run := make_run())
        database.record(run.id, bare)
        database.record(run.id, quick)
        first, second = database.trials(run.id)
        assert replace(first, id=None) == bare
        assert replace(second, id=None) == replace(quick, compile_s=0.0, sources=(), resources=None)
        winner = make_winner(second, 0.25, default_time_ns=0.5, confirmed_ns=0.25, edges_verified=False)
        database.record_winner(run.id, winner)
        (stored,) = database.winners(Filters()).rows
        assert stored.winner == winner
        database.record_benchmark([make_benchmark(time_ns=0.5, ci_low_ns=0.5, sm_clock_hz=0.0)])
        (benchmark,) = database.benchmarks(Filters()).rows
        assert (benchmark.time_ns, benchmark.sm_clock_hz) == (0.5, 0.0)


def test_numpy_numbers_are_taken(path: Path) -> None:
    import numpy

    trial = replace(make_trial(0), time_ns=numpy.float64(7.5), samples_ns=tuple(numpy.ones(3, numpy.float32)))
    with Database.open(path) as database:
        database.start_run(make_run())
        number = database.record(make_run().id, trial, metrics=Metrics(tflops=numpy.float32(2.0)))
        stored = database.trial(number)
    assert (stored.trial.time_ns, stored.trial.samples_ns, stored.metrics.tflops) == (
        7.5,
        (1.0, 1.0, 1.0),
        2.0,
    )


def test_trials_come_in_the_order_of_their_numbers(path: Path) -> None:
    with Database.open(path) as database:
        database.start_run(make_run())
        for number in (2, 0, 1):
            database.record(make_run().id, make_trial(number))
        assert [trial.number for trial in database.trials(make_run().id)] == [0, 1, 2]


def test_the_same_trial_twice_is_one_row_and_another_is_refused(path: Path) -> None:
    with Database.open(path) as database:
        database.start_run(make_run())
        first = database.record(make_run().id, make_trial(0))
        assert database.record(make_run().id, make_trial(0, time_ns=5.0)) == first
        assert database.trial(first).trial.time_ns == 1000.0
        with pytest.raises(DatabaseError, match="has another trial 0"):
            database.record(make_run().id, make_trial(0, block=128))
        assert database.check().rows["trials"] == 1


def test_tables_are_strict_and_the_file_says_whose_it_is(path: Path) -> None:
    filled(path)
    assert path.read_bytes()[68:72] == b"tune"
    with Database.open(path) as database:
        tables = database.select(
            "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        )
        strict = {row["name"]: row["strict"] for row in tables if not row["name"].startswith("sqlite_")}
        assert {"runs", "trials"} <= strict.keys() and all(strict.values())
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == len(opening.MIGRATIONS)


@pytest.mark.parametrize(("safe_from", "journal", "synchronous"), [((99,), "persist", 2), ((3, 0), "wal", 2)])
def test_the_journal_suits_the_version(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    synced: None,
    safe_from: tuple[int, ...],
    journal: str,
    synchronous: int,
) -> None:
    for first in ((99,), (3, 0)):  # also coming from the other one
        monkeypatch.setattr(opening, "SAFE_WAL_VERSION", first)
        Database.open(path).close()
        monkeypatch.setattr(opening, "SAFE_WAL_VERSION", safe_from)
        with Database.open(path) as database:
            assert database.connection.execute("PRAGMA journal_mode").fetchone()[0] == journal
            assert database.connection.execute("PRAGMA synchronous").fetchone()[0] == synchronous


def test_sqlite_utils_plugins_stay_outside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite_utils.db

    monkeypatch.setattr(sqlite_utils.db, "ensure_plugins_loaded", lambda: pytest.fail("plugins were loaded"))
    Database.open(path).close()
