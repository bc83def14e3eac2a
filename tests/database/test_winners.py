"""Which trial is best known: under which conditions, from which runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import GPU, HOT, PROBLEM, WARM, best_known, filled, make_run, make_trial, make_winner
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import DatabaseError
from tuner.core.model import Status
from tuner.database import cells
from tuner.database.database import Database
from tuner.database.records import Filters

pytestmark = pytest.mark.usefixtures("forked_children")


def test_best_known_prefers_exportable_winners_then_verified_trials(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        assert best_known(database) is None
        for number, (time_ns, status) in enumerate(
            [(50.0, Status.WRONG_RESULT), (60.0, Status.UNVERIFIED), (300.0, Status.OK), (200.0, Status.OK)]
        ):
            database.record(run.id, make_trial(number, time_ns, status))
        trials = database.trials(run.id)
        assert best_known(database) == (trials[3].configuration, 200.0)
        assert best_known(database, "another") is None
        database.record_winner(run.id, make_winner(trials[2], 310.0, exportable=False))
        assert best_known(database) == (trials[3].configuration, 200.0)
        database.record_winner(run.id, make_winner(trials[2], 310.0))
        assert best_known(database) == (trials[2].configuration, 310.0)
        database.reject(run.id, 3, "came back at 400 ns")
        assert database.trial(trials[3].id or 0).trial.status is Status.UNSTABLE


def test_a_winners_rates_are_those_of_its_time_in_the_race(path: Path) -> None:
    """Its trial took 1000 ns at half of the speed of light, and it 900 in the race."""
    filled(path)
    with Database.open(path) as database:
        (stored,) = database.winners(Filters()).rows
    rates = stored.metrics.tflops, stored.metrics.gbytes_per_s, stored.metrics.speed_of_light
    assert rates == pytest.approx((100.0 / 0.9, 2000.0 / 0.9, 0.5 / 0.9))


def test_earlier_trials_are_of_the_same_kernel_problem_and_gpu(path: Path) -> None:
    filled(path, replace(make_run("b" * 32), kernel_digest="other"))
    filled(path, make_run("c" * 32, gpu=replace(GPU, name="NVIDIA A100")))
    filled(path, make_run("d" * 32, device="replay:h200"))
    filled(path, make_run("e" * 32, problem=replace(PROBLEM, options={"layout": "nt"})))
    filled(path, make_run("a" * 32))  # last: of equal ones the first would count
    with Database.open(path) as database:
        new = make_run("f" * 32)
        winners = [(make_trial(0).configuration, 2)]
        assert database.known_winners(new) == winners, "of another text as well"
        assert database.known_winners(make_run("a" * 32)) == [(make_trial(0).configuration, 1)]
        database.start_run(new)
        database.record(new.id, make_trial(0))
        known = [(t.id, t.configuration, t.status, t.time_ns) for t in database.earlier_trials(new)]
        assert known == [(t.id, t.configuration, t.status, t.time_ns) for t in database.trials("a" * 32)]


def test_times_under_other_conditions_are_never_compared(path: Path) -> None:
    for name, conditions, time_ns in (("a", Conditions(), 900.0), ("b", WARM, 500.0), ("c", HOT, 950.0)):
        run = make_run(name * 32, conditions=conditions)
        with Database.open(path) as database:
            database.start_run(run)
            database.record(run.id, make_trial(0, time_ns + 5))
            database.record_winner(run.id, make_winner(database.trials(run.id)[0], time_ns))
    with Database.open(path, write=False) as database:
        times = {stored.run.conditions: stored.winner.time_ns for stored in database.best().rows}
        assert times == {Conditions(): 900.0, WARM: 500.0, HOT: 950.0}
        configuration = make_trial(0).configuration
        assert best_known(database) == (configuration, 900.0)
        assert best_known(database, conditions=WARM) == (configuration, 500.0)
        assert best_known(database, conditions=HOT) == (configuration, 950.0)
        assert best_known(database, conditions=Conditions(Mode.ROTATING)) is None
        for filters, names in (
            (Filters(mode="warm"), "b"),
            (Filters(mode="cold"), "ac"),
            (Filters(regime="sustained"), "c"),
            (Filters(mode="cold", regime="rested"), "a"),
            (Filters(mode="warm", regime="sustained"), ""),
        ):
            assert [s.run.id[0] for s in database.winners(filters).rows] == list(names)
            assert [s.run.id[0] for s in database.query(filters).rows] == list(names)
        for conditions, time_ns in ((Conditions(), 905.0), (WARM, 505.0), (HOT, 955.0)):
            later = make_run("f" * 32, conditions=conditions)
            assert [trial.time_ns for trial in database.earlier_trials(later)] == [time_ns]


def test_a_suspect_time_ranks_nowhere(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        for number, time_ns in enumerate((300.0, 200.0, 100.0)):
            database.record(run.id, make_trial(number, time_ns))
        slow, middle, fast = database.trials(run.id)
        database.retag(run.id, 2, ("noisy", "suspect"))
        database.retag(run.id, 0, ("not suspect", '"suspect\\'))
        assert database.trial(fast.id or 0).trial == replace(
            make_trial(2, 100.0), tags=("noisy", "suspect"), id=fast.id
        )
        assert database.check().problems == []
        assert best_known(database) == (middle.configuration, 200.0)
        other = make_run("b" * 32)
        assert [trial.time_ns for trial in database.earlier_trials(other)] == [200.0, 300.0]
        database.retag(run.id, 1, ("suspect",))
        assert best_known(database) == (slow.configuration, 300.0)
        database.retag(run.id, 2, ())
        assert best_known(database) == (fast.configuration, 100.0)


def test_a_damaged_or_missing_trial_is_not_retagged(path: Path) -> None:
    trials = filled(path)
    with Database.open(path) as database:
        database.connection.execute("UPDATE trials SET time_ns = 1 WHERE id = ?", (trials[0].id,))
        with pytest.raises(DatabaseError, match="is damaged"):
            database.retag(make_run().id, 0, ())
        with pytest.raises(DatabaseError, match="there is no trial 99"):
            database.retag(make_run().id, 99, ())
        assert len(database.check().problems) == 2  # the trial and its winner, still


def test_a_row_says_the_conditions_of_its_run(path: Path) -> None:
    filled(path, count=1)
    with Database.open(path) as database:
        for table in ("trials", "winners"):
            sound = database.select(f"SELECT * FROM {table}")[0]
            for column, value in (("mode", "warm"), ("regime", "sustained"), ("mode", "tepid")):
                row = cells.sealed(table, **{**sound, column: value})
                change = f"UPDATE {table} SET {column} = ?, digest = ?"
                database.connection.execute(change, (row[column], row["digest"]))
                assert database.best().rows == []
                assert database.check().problems
                database.connection.execute(change, (sound[column], sound["digest"]))
        assert len(database.best().rows) == 1


def test_replayed_results_are_never_best_known(path: Path) -> None:
    filled(path, make_run(device="replay:h200"))
    with Database.open(path) as database:
        assert best_known(database) is None
        assert len(database.best(Filters(replayed=None)).rows) == 1
        assert database.best(Filters(replayed=False)).rows == []


def test_best_gives_one_winner_a_problem_and_gpu(path: Path) -> None:
    small = replace(PROBLEM, sizes={"m": 1, "n": 1, "k": 1})
    for run_id, problem, gpu, time_ns, exportable in (
        ("a", PROBLEM, GPU, 900.0, True),
        ("b", PROBLEM, GPU, 800.0, True),
        ("c", PROBLEM, GPU, 100.0, False),
        ("d", small, GPU, 10.0, True),
        ("e", PROBLEM, replace(GPU, name="NVIDIA A100", cc=80), 2000.0, True),
    ):
        run = make_run(run_id * 32, problem, gpu)
        with Database.open(path) as database:
            database.start_run(run)
            number = database.record(run.id, make_trial(0))
            trial = database.trial(number).trial
            database.record_winner(run.id, make_winner(trial, time_ns, exportable=exportable))
    with Database.open(path, write=False) as database:
        selection = database.best()
        assert {stored.run.id[0] for stored in selection.rows} == {"b", "d", "e"}
        assert [s.run.id[0] for s in database.best(Filters(gpu="a100")).rows] == ["e"]
        assert [s.run.id[0] for s in database.best(Filters(sizes={"m": 1})).rows] == ["d"]
        assert database.best(Filters(sizes={"q": 1})).rows == []


def test_a_winner_must_be_a_trial_of_its_run(path: Path) -> None:
    trials = filled(path)
    with Database.open(path) as database:
        with pytest.raises(DatabaseError, match="is not the winner's"):
            database.record_winner(make_run().id, replace(make_winner(trials[0]), trial_id=trials[1].id or 0))
        assert database.best().rows[0].winner == make_winner(trials[0])
