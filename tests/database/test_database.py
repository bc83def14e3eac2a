"""What the database keeps, and gives back."""

from __future__ import annotations

import math
import random
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.stored import (
    CALIBRATION,
    GPU,
    HOT,
    PROBLEM,
    WARM,
    file_hash,
    filled,
    make_benchmark,
    make_run,
    make_trial,
    make_winner,
)
from tuner.conditions import Conditions, Mode, Regime
from tuner.database import cells, schema
from tuner.database.database import Database
from tuner.database.records import Filters, Metrics
from tuner.errors import DatabaseError, UsageError
from tuner.model import Status, Verification

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]


# -- what is written comes back


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
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == len(schema.MIGRATIONS)


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
        monkeypatch.setattr(schema, "SAFE_WAL_VERSION", first)
        Database.open(path).close()
        monkeypatch.setattr(schema, "SAFE_WAL_VERSION", safe_from)
        with Database.open(path) as database:
            assert database.connection.execute("PRAGMA journal_mode").fetchone()[0] == journal
            assert database.connection.execute("PRAGMA synchronous").fetchone()[0] == synchronous


def test_sqlite_utils_plugins_stay_outside(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite_utils.db

    monkeypatch.setattr(sqlite_utils.db, "ensure_plugins_loaded", lambda: pytest.fail("plugins were loaded"))
    Database.open(path).close()


# -- attempts and runs


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
        database.start_run(replace(make_run(), sampler="kriging"))
    with Database.open(path, write=False) as database:
        before = file_hash(path)
        assert database.run(make_run().id).sampler == "gp-ei"
        assert database.check().problems == []
        assert database.select("SELECT sampler FROM runs") == [{"sampler": "kriging"}]
    assert file_hash(path) == before


# -- winners


def test_best_known_prefers_exportable_winners_then_verified_trials(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        assert database.best_known(PROBLEM, GPU.name) is None
        for number, (time_ns, status) in enumerate(
            [(50.0, Status.WRONG_RESULT), (60.0, Status.UNVERIFIED), (300.0, Status.OK), (200.0, Status.OK)]
        ):
            database.record(run.id, make_trial(number, time_ns, status))
        trials = database.trials(run.id)
        assert database.best_known(PROBLEM, GPU.name) == (trials[3].configuration, 200.0)
        assert database.best_known(PROBLEM, "another") is None
        database.record_winner(run.id, make_winner(trials[2], 310.0, exportable=False))
        assert database.best_known(PROBLEM, GPU.name) == (trials[3].configuration, 200.0)
        database.record_winner(run.id, make_winner(trials[2], 310.0))
        assert database.best_known(PROBLEM, GPU.name) == (trials[2].configuration, 310.0)
        database.mark_unstable(trials[3].id or 0, "came back at 400 ns")
        assert database.trial(trials[3].id or 0).trial.status is Status.UNSTABLE


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
        assert database.best_known(PROBLEM, GPU.name) == (configuration, 900.0)
        assert database.best_known(PROBLEM, GPU.name, WARM) == (configuration, 500.0)
        assert database.best_known(PROBLEM, GPU.name, HOT) == (configuration, 950.0)
        assert database.best_known(PROBLEM, GPU.name, Conditions(Mode.ROTATING)) is None
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


def test_the_fastest_trial_under_the_conditions_is_best_known(path: Path) -> None:
    with Database.open(path) as database:
        for name, conditions, time_ns in (("a", Conditions(), 900.0), ("b", WARM, 500.0)):
            run = make_run(name * 32, conditions=conditions)
            database.start_run(run)
            database.record(run.id, make_trial(0, time_ns))
        assert database.best_known(PROBLEM, GPU.name) == (make_trial(0).configuration, 900.0)
        assert database.best_known(PROBLEM, GPU.name, WARM) == (make_trial(0).configuration, 500.0)


def test_a_suspect_time_ranks_nowhere(path: Path) -> None:
    run = make_run()
    with Database.open(path) as database:
        database.start_run(run)
        for number, time_ns in enumerate((300.0, 200.0, 100.0)):
            database.record(run.id, make_trial(number, time_ns))
        slow, middle, fast = database.trials(run.id)
        database.retag(fast.id or 0, ("noisy", "suspect"))
        database.retag(slow.id or 0, ("not suspect", '"suspect\\'))
        assert database.trial(fast.id or 0).trial == replace(
            make_trial(2, 100.0), tags=("noisy", "suspect"), id=fast.id
        )
        assert database.check().problems == []
        assert database.best_known(PROBLEM, GPU.name) == (middle.configuration, 200.0)
        other = make_run("b" * 32)
        assert [trial.time_ns for trial in database.earlier_trials(other)] == [200.0, 300.0]
        database.retag(middle.id or 0, ("suspect",))
        assert database.best_known(PROBLEM, GPU.name) == (slow.configuration, 300.0)
        database.retag(fast.id or 0, ())
        assert database.best_known(PROBLEM, GPU.name) == (fast.configuration, 100.0)


def test_a_damaged_or_missing_trial_is_not_retagged(path: Path) -> None:
    trials = filled(path)
    with Database.open(path) as database:
        database.connection.execute("UPDATE trials SET time_ns = 1 WHERE id = ?", (trials[0].id,))
        with pytest.raises(DatabaseError, match="is damaged"):
            database.retag(trials[0].id or 0, ())
        with pytest.raises(DatabaseError, match="there is no trial 99"):
            database.retag(99, ())
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
        assert database.best_known(PROBLEM, GPU.name) is None
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


# -- benchmarks


def test_benchmarks_come_back_newest_first(path: Path) -> None:
    trials = filled(path)
    with Database.open(path) as database:
        winner = database.winners().rows[0]
        assert winner.trial.id == trials[0].id
        first = [make_benchmark(winner_id=winner.id), make_benchmark("torch", ratio_high=None)]
        numbers = database.record_benchmark(first)
        later = make_benchmark("default", bench="f" * 32, conditions=WARM, ratio=None, verdict="")
        numbers += database.record_benchmark([later])
        assert database.record_benchmark([]) == []
    with Database.open(path, write=False) as database:
        selection = database.benchmarks()
        assert selection.damaged == []
        stamps = [benchmark.created_at for benchmark in selection.rows]
        assert stamps[1] == stamps[2] < stamps[0]
        assert [replace(b, created_at="") for b in selection.rows] == [
            replace(benchmark, id=number)
            for benchmark, number in zip((later, *first), (numbers[2], *numbers[:2]), strict=True)
        ]
        assert database.check().problems == []
        assert database.check().rows["benchmarks"] == 3


def test_a_benchmark_is_written_as_a_whole(path: Path) -> None:
    filled(path)
    with Database.open(path) as database:
        with pytest.raises(DatabaseError, match="there is no winner 99"):
            database.record_benchmark([make_benchmark(), make_benchmark("default", winner_id=99)])
        assert database.benchmarks().rows == []
    with Database.open(path, write=False) as database, pytest.raises(DatabaseError, match="for reading"):
        database.record_benchmark([make_benchmark()])


def test_infinite_bounds_of_a_ratio_are_none(path: Path) -> None:
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(ratio_low=0.0, ratio_high=math.inf)])
        (stored,) = database.benchmarks().rows
        assert (stored.ratio_low, stored.ratio_high) == (0.0, None)


def test_benchmarks_are_filtered(path: Path) -> None:
    filled(path)
    small = replace(PROBLEM, sizes={"m": 1, "n": 1, "k": 1})
    with Database.open(path) as database:
        winner = database.winners().rows[0].id
        database.record_benchmark([make_benchmark(winner_id=winner), make_benchmark("torch")])
        database.record_benchmark([make_benchmark(problem=small, conditions=HOT)])
        for filters, count in (
            (Filters(kernel="gemm"), 3),
            (Filters(kernel="saxpy"), 0),
            (Filters(problem_key=small.key), 1),
            (Filters(sizes={"m": 4096}), 2),
            (Filters(dtype="float16", gpu="h200"), 3),
            (Filters(variant="tiled"), 2),
            (Filters(mode="cold"), 3),
            (Filters(regime="sustained"), 1),
            (Filters(since="2999"), 0),
            (Filters(run="aaaa"), 1),
            (Filters(replayed=False), 3),
            (Filters(replayed=True), 0),
        ):
            assert len(database.benchmarks(filters).rows) == count, filters
        for filters in (Filters(statuses=("ok",)), Filters(exportable=True)):
            with pytest.raises(ValueError, match="no status"):
                database.benchmarks(filters)


def test_a_damaged_benchmark_is_left_out_and_not_merged(path: Path, tmp_path: Path) -> None:
    with Database.open(path) as database:
        first, _ = database.record_benchmark([make_benchmark(), make_benchmark("torch")])
        database.connection.execute("UPDATE benchmarks SET time_ns = 1 WHERE id = ?", (first,))
        selection = database.benchmarks()
        assert [benchmark.contestant for benchmark in selection.rows] == ["torch"]
        assert selection.damaged == database.check().problems
        assert f"benchmark {first} is damaged" in selection.damaged[0]
    with Database.open(tmp_path / "other.db") as other:
        merged = other.merge(path)
        assert (merged.benchmarks, len(merged.refused)) == (1, 1)


def test_hostile_benchmarks_are_damage_not_a_crash(path: Path) -> None:
    chance = random.Random(6)
    texts = ("[]", "{", '{"a": [1]}', "null", "[" * 5000, '"x"', "{}", "7", "hot")
    columns = ("problem", "gpu", "mode", "regime", "configuration", "tags", "versions", "variant")
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark()])
        sound = database.select("SELECT * FROM benchmarks")[0]
        for _ in range(200):
            row = cells.sealed("benchmarks", **{**sound, chance.choice(columns): chance.choice(texts)})
            names = ", ".join(f"{name} = ?" for name in row)
            database.connection.execute(f"UPDATE benchmarks SET {names}", list(row.values()))
            selection = database.benchmarks()
            assert len(selection.rows) + len(selection.damaged) == 1
            assert isinstance(database.check().problems, list)


def test_benchmarks_outlive_what_they_measured_and_move_with_it(path: Path, tmp_path: Path) -> None:
    filled(path)
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(winner_id=database.winners().rows[0].id)])
    other = tmp_path / "other.db"
    filled(other, make_run("b" * 32))
    with Database.open(other) as database:
        merged = database.merge(path)
        assert (merged.winners, merged.benchmarks, merged.refused) == (1, 1, [])
        assert database.merge(path).benchmarks == 0
        (moved,) = database.benchmarks().rows
        (ours,) = (stored.id for stored in database.winners().rows if stored.run.id[0] == "a")
        assert moved.winner_id == ours
        trial = database.trials("a" * 32)[0]
        again = database.record_winner("a" * 32, make_winner(trial, 880.0))
        assert database.benchmarks().rows == [replace(moved, winner_id=again)]
        database.delete_run("aaaa")
        assert database.benchmarks().rows == [replace(moved, winner_id=None)]
        assert database.check().problems == []


# -- queries


def test_filters_and_sorting(path: Path) -> None:
    filled(path)
    with Database.open(path, write=False) as database:
        assert [s.trial.number for s in database.query(Filters(), "-time").rows] == [2, 1, 0]
        assert [s.trial.number for s in database.query(Filters(), "time", 1).rows] == [0]
        for filters, count in (
            (Filters(kernel="gemm"), 3),
            (Filters(kernel="gem"), 0),
            (Filters(gpu="h200"), 3),
            (Filters(gpu="%"), 0),
            (Filters(dtype="float16"), 3),
            (Filters(dtype="float32"), 0),
            (Filters(sizes={"m": 4096, "n": 2048}), 3),
            (Filters(sizes={"m": 4096, "n": 2049}), 0),
            (Filters(variant="tiled"), 3),
            (Filters(statuses=("hang", "ok")), 3),
            (Filters(statuses=("hang",)), 0),
            (Filters(since="2999"), 0),
            (Filters(run="aaa"), 3),
            (Filters(run="ab"), 0),
            (Filters(replayed=True), 0),
        ):
            assert len(database.query(filters).rows) == count, filters
        for sort in ("time; DROP TABLE trials", "", "--time", "t.id"):
            with pytest.raises(UsageError, match="cannot sort"):
                database.query(Filters(), sort)


def test_hostile_filters_change_and_find_nothing(path: Path) -> None:
    filled(path)
    before, chance = file_hash(path), random.Random(2)
    parts = [
        "'",
        '"',
        ";",
        "--",
        " OR 1=1",
        "/*",
        "\\",
        "%",
        "_",
        "\0",
        "$",
        "é",
        "😀",
        "DROP TABLE trials",
        "\n",
        ")",
    ]
    with Database.open(path, write=False) as database:
        for _ in range(300):
            text = "x" + "".join(chance.choices(parts, k=chance.randrange(1, 6)))
            for name in ("kernel", "gpu", "dtype", "variant", "run", "problem_key"):
                assert database.query(Filters(**{name: text})).rows == []
            assert database.query(Filters(statuses=(text,))).rows == []
            if text.strip("_x"):
                with pytest.raises(UsageError):
                    database.query(Filters(sizes={text: 1}))
    assert file_hash(path) == before
