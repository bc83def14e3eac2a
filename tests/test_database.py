from __future__ import annotations

import hashlib
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tuner import cells, owners, schema
from tuner.database import Benchmark, Database, Filters, Metrics, Winner
from tuner.errors import DatabaseError, UsageError
from tuner.model import (
    Calibration,
    Conditions,
    Configuration,
    Gpu,
    Mode,
    Problem,
    Regime,
    Resources,
    Run,
    Status,
    Trial,
    Verification,
)

GPU = Gpu("NVIDIA H200", 90, 132, 60 << 20, 1 << 37, 232448, 233472, uuid="GPU-1", driver="580.95")
PROBLEM = Problem(
    "gemm",
    {"m": 4096, "n": 2048, "k": 1024},
    {"input": "float16", "accumulate": "float32", "output": "float16"},
    {"layout": "nn"},
)

WARM = Conditions(Mode.WARM)
HOT = Conditions(Mode.COLD, Regime.SUSTAINED)
CALIBRATION = Calibration(
    {"cold, rested": 0.002}, copy_bytes_per_s=3.9e12, event_ns=2800.0, notes=("no NVML",)
)


def make_run(
    run_id: str = "a" * 32,
    problem: Problem = PROBLEM,
    gpu: Gpu = GPU,
    device: str = "cuda:0",
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
) -> Run:
    return Run(
        run_id,
        problem,
        gpu,
        device,
        7,
        "tpe",
        200,
        4,
        {"variant": ["tiled"]},
        "d1",
        "gemm.toml",
        {"nvrtc": "13.5"},
        conditions,
        CALIBRATION,
    )


def make_trial(
    number: int, time_ns: float | None = None, status: Status = Status.OK, block: int = 64
) -> Trial:
    time_ns = 1000.0 + number if time_ns is None else time_ns
    return Trial(
        number=number,
        configuration=Configuration.of(
            "tiled", {"z_block": block + number, "double_buffer": True, "raster": "row"}
        ),
        status=status,
        time_ns=time_ns,
        ci_low_ns=time_ns - 0.5,
        ci_high_ns=time_ns + 0.5,
        samples_ns=(time_ns - 1.0, time_ns, time_ns + 1.5),
        resources=Resources(32, 1024, 0, 8, 4, 2),
        verification=Verification(True, mismatches=0, worst_ratio=0.25, norm_error=1e-4, message="é"),
        error="",
        sources=(f"// source {number}\n", "// second launch\n"),
        compile_log="ptxas info",
        compile_s=0.5,
        measure_s=0.25,
        tags=("noisy",),
        sm_clock_hz=1.755e9,
        capped_samples=2,
    )


def make_winner(trial: Trial, time_ns: float = 900.0, **changes: object) -> Winner:
    assert trial.id is not None
    winner = Winner(
        trial.id, trial.configuration, time_ns, trial.id, 1100.0, 1.2, 1.19, 1.21, "faster", 905.0, True,
        exportable=True, race={"rounds": [1, 2]},
    )  # fmt: skip
    return replace(winner, **changes)


def make_benchmark(contestant: str = "best", **changes: object) -> Benchmark:
    benchmark = Benchmark(
        bench="e" * 32,
        problem=PROBLEM,
        gpu=GPU,
        conditions=Conditions(),
        contestant=contestant,
        configuration=make_trial(0).configuration if contestant != "torch" else None,
        winner_id=None,
        kernel_digest="d1",
        time_ns=900.0,
        ci_low_ns=899.0,
        ci_high_ns=901.0,
        samples_ns=(899.5, 900.0, 901.0),
        ratio=1.25,
        ratio_low=1.24,
        ratio_high=1.26,
        verdict="faster",
        noise_floor=0.002,
        sm_clock_hz=1.755e9,
        tags=("capped",),
        versions={"torch": "2.9"},
    )
    return replace(benchmark, **changes)


def filled(path: Path, run: Run | None = None, count: int = 3) -> list[Trial]:
    run = run or make_run()
    with Database.open(path) as database:
        database.start_run(run)
        for number in range(count):
            database.record(run.id, make_trial(number), metrics=Metrics(100.0, 2000.0, 0.5))
        trials = database.trials(run.id)
        database.record_winner(run.id, make_winner(trials[0]))
        database.finish_run(run.id, "finished", {"occupied": 0.9})
    return trials


ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "tuning.db"


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory: waiting for a disk hides races."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
            found = replace(verification, true_error=error)
            database.record(run.id, replace(make_trial(number), verification=found))
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
        assert all(row["strict"] for row in tables if not row["name"].startswith("sqlite_"))
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == len(schema.MIGRATIONS)


@pytest.mark.parametrize(("safe_from", "journal", "synchronous"), [((99,), "persist", 2), ((3, 0), "wal", 2)])
def test_the_journal_suits_the_version(
    path: Path, monkeypatch: pytest.MonkeyPatch, safe_from: tuple[int, ...], journal: str, synchronous: int
) -> None:
    for first in ((99,), (3, 0)):  # also coming from the other one
        monkeypatch.setattr(schema, "WAL_IS_SAFE_FROM", first)
        Database.open(path).close()
        monkeypatch.setattr(schema, "WAL_IS_SAFE_FROM", safe_from)
        with Database.open(path) as database:
            assert database.connection.execute("PRAGMA journal_mode").fetchone()[0] == journal
            assert database.connection.execute("PRAGMA synchronous").fetchone()[0] == synchronous
            assert database.connection.execute("PRAGMA busy_timeout").fetchone()[0] == 30_000


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
        database.clear_attempts(run.id)
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
        found = database.latest_unfinished(PROBLEM, "cuda:0")
        assert found == make_run("b" * 32)
        assert database.latest_unfinished(PROBLEM, "cuda:1") is None
        other = replace(PROBLEM, sizes={"m": 1, "n": 1, "k": 1})
        assert database.latest_unfinished(other, "cuda:0") is None
        assert database.resume_run("b" * 32) == found
        assert database.run_state("b" * 32)["state"] == "running"
        assert database.run_state("a" * 32)["stats"] == {"n": 1}
        with pytest.raises(DatabaseError, match="there is no run"):
            database.finish_run("d" * 32, "finished")


def test_a_run_whose_process_lives_is_not_taken_over(path: Path) -> None:
    code = """if True:
        import sys
        sys.path.insert(0, "tests")
        from test_database import *
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
    filled(path, make_run("a" * 32))
    filled(path, replace(make_run("b" * 32), kernel_digest="other"))
    filled(path, make_run("c" * 32, gpu=replace(GPU, name="NVIDIA A100")))
    filled(path, make_run("d" * 32, device="replay:h200"))
    filled(path, make_run("e" * 32, problem=replace(PROBLEM, options={"layout": "nt"})))
    with Database.open(path) as database:
        new = make_run("f" * 32)
        database.start_run(new)
        database.record(new.id, make_trial(0))
        assert database.earlier_trials(new) == database.trials("a" * 32)


def test_times_under_other_conditions_are_never_compared(path: Path) -> None:
    for name, conditions, time_ns in (("a", Conditions(), 900.0), ("b", WARM, 500.0), ("c", HOT, 950.0)):
        run = make_run(name * 32, conditions=conditions)
        with Database.open(path) as database:
            database.start_run(run)
            database.record(run.id, make_trial(0, time_ns + 5))
            database.record_winner(run.id, make_winner(database.trials(run.id)[0], time_ns))
    with Database.open(path, write=False) as database:
        found = {stored.run.conditions: stored.winner.time_ns for stored in database.best().rows}
        assert found == {Conditions(): 900.0, WARM: 500.0, HOT: 950.0}
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
                row = cells.sealed(table, {**sound, column: value})
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
        found = database.best()
        assert {stored.run.id[0] for stored in found.rows} == {"b", "d", "e"}
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
        found = database.benchmarks()
        assert found.damaged == []
        stamps = [benchmark.created_at for benchmark in found.rows]
        assert stamps[1] == stamps[2] < stamps[0]
        assert [replace(b, created_at="") for b in found.rows] == [
            replace(benchmark, id=number)
            for benchmark, number in zip((later, *first), (numbers[2], *numbers[:2]), strict=True)
        ]
        assert [b.contestant for b in database.benchmarks(limit=2).rows] == ["default", "best"]
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
        (found,) = database.benchmarks().rows
        assert (found.ratio_low, found.ratio_high) == (0.0, None)


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
        found = database.benchmarks()
        assert [benchmark.contestant for benchmark in found.rows] == ["torch"]
        assert found.damaged == database.check().problems
        assert f"benchmark {first} is damaged" in found.damaged[0]
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
            row = cells.sealed("benchmarks", {**sound, chance.choice(columns): chance.choice(texts)})
            names = ", ".join(f"{name} = ?" for name in row)
            database.connection.execute(f"UPDATE benchmarks SET {names}", list(row.values()))
            found = database.benchmarks()
            assert len(found.rows) + len(found.damaged) == 1
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


# -- files that are refused


def refused(path: Path, match: str, *, write: bool = True) -> None:
    before = file_hash(path) if path.is_file() else None
    neighbours = sorted(path.parent.iterdir())
    with pytest.raises(DatabaseError, match=match) as caught:
        Database.open(path, write=write)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    assert (file_hash(path) if path.is_file() else None) == before
    assert sorted(path.parent.iterdir()) == neighbours


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
    connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
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


def test_a_file_with_a_trigger_is_refused(path: Path) -> None:
    filled(path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM runs; END")
    connection.commit()
    connection.close()
    refused(path, "trigger or view")


def test_network_filesystems_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path}/with\\040space nfs4 rw 0 0\n")
    assert schema.filesystem_of(tmp_path / "with space" / "sub" / "x.db", mounts) == "nfs4"
    assert schema.filesystem_of(tmp_path / "with spaces" / "x.db", mounts) == "ext4"
    assert schema.filesystem_of(tmp_path, tmp_path / "none") == ""
    assert schema.filesystem_of(tmp_path) not in schema.NETWORK_FILESYSTEMS
    path.parent.mkdir()
    monkeypatch.setattr(schema, "filesystem_of", lambda _: "nfs")
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
    sys.path.insert(0, "tests")
    from test_database import *
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
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    *numbers, message = result.stdout.splitlines()
    assert "disk is full" in message or "writing failed" in message
    with Database.open(path) as database:
        assert [str(trial.number) for trial in database.trials(make_run().id)] == numbers
        assert len(numbers) > 2
        assert database.check().problems == []


# -- versions


def _add_note(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE notes (text TEXT) STRICT")


def test_an_older_file_is_migrated_with_its_rows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials = filled(path)
    older = len(schema.MIGRATIONS)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _add_note))
    with Database.open(path, write=False) as database:  # reading migrates too
        assert database.select("SELECT count(*) AS n FROM notes") == [{"n": 0}]
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == older + 1
        assert database.trials(make_run().id) == trials
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-1])
    refused(path, "newer kernel-tune")


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE winners")
        connection.execute("nonsense")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _add_note, fail))
    with pytest.raises(DatabaseError, match="nonsense"):
        Database.open(path)
    monkeypatch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:-2])
    with Database.open(path) as database:
        assert database.check().problems == []
        assert len(database.best().rows) == 1


def test_a_read_only_older_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    path.chmod(0o444)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, _add_note))
    refused(path, "older schema", write=False)


VERSION_1 = (ROOT / "tests/version-1.sql").read_text()
"""What ``iterdump`` gave of a file that version 1 wrote.

Runs: a, measured and finished; b, replayed; c, interrupted, with its trial 1 altered behind the database's back; d,
altered itself; e, whose trials have the status ``untrusted``, which later became two.
"""


def version_1(path: Path, *statements: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


@pytest.mark.parametrize("write", [True, False])
def test_a_version_1_file_keeps_working(path: Path, write: bool) -> None:
    version_1(path)
    with Database.open(path, write=write) as database:
        assert database.connection.execute("PRAGMA user_version").fetchone()[0] == len(schema.MIGRATIONS)
        assert database.run("a" * 32) == replace(make_run(), calibration=None)
        noisy, good, hang = (database.trial(number) for number in (1, 2, 3))
        old = {"sm_clock_hz": 0.0, "capped_samples": 0}
        samples = (1000.0,) * 18 + (1001.0, 1200.0)
        assert noisy.trial == replace(make_trial(0), samples_ns=samples, id=1, **old)
        assert good.trial == replace(make_trial(1), id=2, **old)
        assert (noisy.metrics, noisy.outliers, good.outliers) == (Metrics(100.0, 2000.0, 0.5), 1, 0)
        assert (hang.trial.status, hang.trial.time_ns, hang.outliers) == (Status.HANG, None, 0)
        found = [(s.run.id[0], s.run.conditions, s.winner.time_ns) for s in database.winners().rows]
        assert found == [("a", Conditions(), 900.0), ("b", Conditions(), 850.0)]
        assert database.best_known(PROBLEM, GPU.name) == (make_trial(0).configuration, 900.0)
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
        database.mark_unstable(2, "came back at 2 us")
        database.retag(1, ("suspect",))
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
            found = database.select("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            tables.append({row["name"]: row["sql"] for row in found})
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
    refused(path, "trigger or view")


def test_no_flipped_bit_survives_the_migration(fast: Path) -> None:
    path = version_1(fast / "t.db")
    sound, chance, noticed = path.read_bytes(), random.Random(8), 0
    with Database.open(path) as database:
        truth = {stored.trial.id: stored for stored in database.query().rows}
        winners = {stored.id: stored for stored in database.winners().rows}
    for _ in range(300):
        data = bytearray(sound)
        data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            with Database.open(path) as database:
                assert all(stored == truth[stored.trial.id] for stored in database.query().rows)
                assert all(stored == winners[stored.id] for stored in database.winners().rows)
                noticed += len(database.check().problems) > 3
        except DatabaseError:
            noticed += 1
    assert noticed > 30


# -- several processes, and death

WRITER = """
import sys
sys.path.insert(0, "tests")
from test_database import *
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
run = make_run(name * 32)
with Database.open(path) as database:
    database.start_run(run)
    for number in range(count):
        database.attempt(run.id, number, make_trial(number).configuration)
        database.record(run.id, make_trial(number))
        print(number, flush=True)
    database.finish_run(run.id, "finished")
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def test_eight_processes_write_one_file(fast: Path) -> None:
    path = fast / "t.db"  # created by all of them at once
    writers = [start_writer(path, name, 100) for name in "abcdefgh"]
    for writer in writers:
        out, err = writer.communicate(timeout=200)
        assert writer.returncode == 0, err
        assert len(out.splitlines()) == 100
    with Database.open(path) as database:
        check = database.check()
        assert check.problems == []
        assert (check.rows["runs"], check.rows["trials"], check.rows["attempts"]) == (8, 800, 0)


def test_a_killed_writer_loses_no_recorded_trial(fast: Path) -> None:
    path, chance = fast / "t.db", random.Random(5)
    for turn in range(12):
        name = "0123456789ab"[turn]
        writer = start_writer(path, name, 100_000)
        assert writer.stdout is not None
        acknowledged = [writer.stdout.readline()]
        time.sleep(chance.uniform(0.0, 0.15))
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
    for _ in range(400):
        data = bytearray(sound)
        data[chance.randrange(100, len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            with Database.open(path) as database:
                found, winners = database.query(), database.best()
                known = database.best_known(PROBLEM, GPU.name)
                noticed += bool(database.check().problems)
        except DatabaseError:
            noticed += 1
            continue
        for stored in found.rows:
            assert stored == truth[stored.trial.id]
        for winner in winners.rows:
            assert replace(winner, id=best.id) == best
        assert known in [None, (best.winner.configuration, 900.0), *measured]
    assert noticed > 100


def test_truncated_files_are_one_clear_error(fast: Path) -> None:
    path = fast / "t.db"
    filled(path)
    sound = path.read_bytes()
    for cut in range(1, len(sound), len(sound) // 40):
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
        found = database.query()
        assert [stored.trial.number for stored in found.rows] == [1, 2]
        assert len(found.damaged) == 1
        assert f"trial {trials[0].id} is damaged" in found.damaged[0]
        assert database.best().rows == []
        assert len(database.best().damaged) == 1
        assert database.best_known(PROBLEM, GPU.name) == (trials[1].configuration, 1001.0)
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
        "configuration",
        "samples",
        "sample_count",
        "verification",
        "tags",
        "status",
        "registers",
        "variant",
    )
    texts = (
        "[]",
        "{",
        '{"a": [1]}',
        '{"a": NaN}',
        "null",
        "[" * 5000,
        '"x"',
        "{}",
        "7",
        '{"passed": 1, "x": 2}',
    )
    with Database.open(path) as database:
        sound = database.select("SELECT * FROM trials")[0]
        for _ in range(200):
            column = chance.choice(columns)
            value: object = chance.choice(texts)
            if column in ("sample_count", "registers"):
                value = (
                    chance.choice((-1, 10**12, None, 3))
                    if column == "registers"
                    else chance.choice((-1, 10**12))
                )
            elif column == "samples":
                value = chance.randbytes(20)
            row = cells.sealed("trials", {**sound, column: value})
            names = ", ".join(f"{name} = ?" for name in row)
            database.connection.execute(f"UPDATE trials SET {names}", list(row.values()))
            found = database.query()
            assert len(found.rows) + len(found.damaged) == 1
            assert isinstance(database.check().problems, list)


# -- upkeep


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


@pytest.mark.parametrize("write", [True, False])
def test_backup_is_a_whole_database(path: Path, tmp_path: Path, write: bool) -> None:
    trials = filled(path)
    target = tmp_path / "backups" / "copy.db"
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
        assert check.rows == {
            "runs": 1,
            "trials": 2,
            "sources": 3,
            "attempts": 0,
            "winners": 1,
            "benchmarks": 0,
        }
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


def test_sql_is_stopped_after_a_while(path: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from tuner import upkeep
        bomb = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
        try:
            upkeep.read_only_sql(Path(sys.argv[1]), bomb, limit_s=0.3)
        except upkeep.UsageError as error:
            print(error)
    """
    filled(path)
    command = [sys.executable, "-c", code, str(path)]  # in a process of its own: nothing else could stop it
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30, check=True)
    assert "more than 0.3 s" in result.stdout


def test_sql_is_stopped_by_its_user(path: Path) -> None:
    code = """if True:
        import signal, sys
        from pathlib import Path
        from tuner import upkeep
        bomb = "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            upkeep.read_only_sql(Path(sys.argv[1]), bomb, limit_s=20)
        except KeyboardInterrupt:
            print("stopped")
    """
    filled(path)
    command = [sys.executable, "-c", code, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=15, check=True)
    assert result.stdout == "stopped\n"


def test_sql_reads_with_functions(path: Path) -> None:
    filled(path)
    with Database.open(path, write=False) as database:
        columns, found = database.sql(
            "SELECT t.number AS n, j.value FROM trials t, json_each(t.tags) j ORDER BY 1 LIMIT 1"
        )
    assert (columns, found) == (["n", "value"], [(0, "noisy")])


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
