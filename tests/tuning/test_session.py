"""The loop of a run: random seeds, failures, requests, conditions, and what is in the database afterwards."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tests.sessions import TRIALS, replay, run, sequence
from tuner.core.errors import Interrupted, SpaceError, UsageError
from tuner.core.model import Configuration, Measurement, Status
from tuner.database.cells import row_digest
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.report.progress import heading
from tuner.report.summary import summary
from tuner.tuning import loop
from tuner.tuning.history import RETRIED
from tuner.tuning.state import SEARCHED, SEARCHING, State

# -- one run


def test_the_seed_alone_decides_on_the_sequence(database: Database, kernel: KernelSpec) -> None:
    """Not the order in which answers come."""
    sequences = []
    for seed, shuffle in ((3, None), (3, 1), (4, None)):
        device = StubDevice(lookahead=6, shuffle=shuffle)
        run(kernel, database, device, sampler="tpe", seed=seed, trials=20)
        sequences.append(device.submitted)
    assert sequences[0] == sequences[1] != sequences[2]
    assert len(set(sequences[0])) == 20


def test_at_its_end_a_run_looks_for_all_rows_that_it_has_recorded(
    database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for: list[tuple[object, ...]] = []
    monkeypatch.setattr(database, "require_rows", lambda *given: looked_for.append(given))
    result = run(kernel, database, StubDevice())
    rows = [trial.id for trial in database.trials(result.state.run.id)]
    assert looked_for == [(result.state.run.id, rows, result.winner_id)]
    assert len(rows) == TRIALS and result.winner_id is not None


def test_an_observer_is_told_of_how_many_trials_the_search_may_have(
    database: Database, kernel: KernelSpec
) -> None:
    told: list[tuple[str, float]] = []

    class Told(Watcher):
        def phase(self, what: str, steps: float = 0) -> None:
            told.append((what, steps))

        def step(self, now: State, done: float | None = None) -> None:
            super().step(now, done)
            told.append(("", done or 0))

    run(kernel, database, StubDevice(), Told(), trials=12)
    assert [one for one in told if one[0]][:2] == [(SEARCHING, 12), (SEARCHED, 0)]
    assert told[:2] == [(SEARCHING, 12), ("", 0)] and ("", 12) in told
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), stopping := Told(), trials=12, stop=stop_after(stopping, 5))
    told.clear()
    run(kernel, database, StubDevice(), Told(), trials=12, resume=True)
    assert told[:2] == [(SEARCHING, 12), ("", len(stopping.now.trials))]


@pytest.mark.parametrize(
    ("expected_ms", "best_ms", "ahead"),
    [(None, 60.0, 6), (50.0, 1.0, 2), (49.0, 49.0, 6), (1.0, 51.0, 2)],
)
def test_few_long_kernels_are_begun_ahead_where_the_time_is_short(
    database: Database, kernel: KernelSpec, expected_ms: float | None, best_ms: float, ahead: int
) -> None:
    """Each that was begun is waited for; with none known to be long there are as many as keep the device busy."""
    pending: list[int] = []

    class Counting(StubDevice):
        def submit(self, number: int, configuration: Configuration, *incumbent: Any) -> None:
            super().submit(number, configuration, *incumbent)
            pending.append(len(self.waiting))

    device = Counting(lookahead=6, answer=lambda _: good(best_ms * 1e6))
    run(kernel, database, device, trials=16, expected_ns=expected_ms and expected_ms * 1e6)
    assert max(pending[10:]) == ahead


def test_every_status_is_one_trial(database: Database, kernel: KernelSpec) -> None:
    statuses = itertools.cycle(Status)

    def answer(configuration: Configuration) -> Measurement:
        status = next(statuses)
        return good(time_of(configuration)) if status is Status.OK else Measurement(status, error="why")

    result = run(
        kernel, database, StubDevice(lookahead=4, shuffle=0, answer=answer), trials=60, sampler="tpe"
    )
    trials = database.trials(result.state.run.id)
    assert [trial.number for trial in trials] == list(range(60))
    failed = [trial for trial in trials if trial.status in (Status.WRONG_RESULT, Status.HANG)]
    assert failed and all(trial.time_ns is None and trial.error for trial in failed)
    assert {trial.status for trial in trials} == set(Status)
    assert result.finish is not None


def test_first_failures_do_not_stop_the_search(database: Database, kernel: KernelSpec) -> None:
    count = iter(range(1000))

    def answer(configuration: Configuration) -> Measurement:
        return (
            good(time_of(configuration))
            if next(count) > 14
            else Measurement(Status.COMPILE_ERROR, error="no")
        )

    result = run(kernel, database, StubDevice(answer=answer), sampler="tpe")
    assert result.state.failures == {"compile_error": 15}
    assert result.finish is not None
    assert result.finish.default is not None
    assert result.finish.default_ns is None


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.TOO_FAST])
def test_nothing_verified_means_no_winner(database: Database, kernel: KernelSpec, status: Status) -> None:
    device = StubDevice(answer=lambda c: Measurement(status, (5.0,) * 12, "why"))
    result = run(kernel, database, device, trials=10)
    assert result.finish is None
    assert result.winner_id is None
    assert device.races == []
    assert database.run_state(result.state.run.id)["state"] == "finished"
    assert database.winners(Filters()).rows == []


def test_narrowing(recording: Path, database: Database) -> None:
    fixed = {"block_size": ("128", "256")}
    result = replay(recording, database, variants=("vectorized",), fixed=fixed, trials=20)
    tried = sequence(database, result.state.run.id)
    assert {c.variant for c in tried} == {"vectorized"}
    assert {c.values["block_size"] for c in tried} == {128, 256}
    assert database.run(result.state.run.id).options.variants == ("vectorized",)


def test_space_that_ends_before_the_budget(database: Database, kernel: KernelSpec) -> None:
    for lookahead in (1, 100):
        device = StubDevice(lookahead=lookahead, shuffle=1)
        result = run(
            kernel,
            database,
            device,
            fixed={"block_size": ("32", "64"), "items": ("1", "2", "3")},
            sampler="tpe",
        )
        assert len(device.submitted) == len(set(device.submitted)) == 6
        assert len(result.state.trials) == 6
        assert result.finish is not None


def test_time_budget(database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    device = StubDevice()
    clock = SimpleNamespace(monotonic=lambda: 0.02 * len(device.submitted))
    monkeypatch.setattr(loop, "time", clock)
    result = run(kernel, database, device, trials=10_000, time_s=0.5)
    assert len(result.state.trials) == 25
    assert result.finish is not None
    assert database.run_state(result.state.run.id)["state"] == "finished"


def test_time_counts_from_the_beginning_and_is_told(database: Database, kernel: KernelSpec) -> None:
    class Watched(Watcher):
        def step(self, now: State, done: float | None = None) -> None:
            if self.now is None:
                said.extend(heading(now))
            super().step(now, done)

    said: list[str] = []
    began = time.monotonic() - 30.0
    result = run(kernel, database, StubDevice(), Watched(), time_s=30.0, began=began)
    assert len(result.state.trials) == 1
    assert "no configuration begins after 30 s; the race and the confirmation then take up to 13 s" in said
    assert f"time ended the search after 1 of {TRIALS} trials" in " ".join(
        summary(result, Path("x.db")).split()
    )


@pytest.mark.parametrize(("calibrated_s", "trials"), [(110.0, TRIALS), (5.0, 1)])
def test_a_calibration_is_not_of_the_time(
    database: Database, kernel: KernelSpec, calibrated_s: float, trials: int
) -> None:
    class New(StubDevice):
        def _prepare(self, *arguments: Any) -> None:
            super()._prepare(*arguments)
            self.phases.note("calibration", time.monotonic() - calibrated_s)

    began = time.monotonic() - 120.0
    result = run(kernel, database, New(), time_s=100.0, began=began)
    assert len(result.state.trials) == trials


def test_time_is_worth_what_the_model_expects(
    database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = StubDevice()
    clock = SimpleNamespace(monotonic=lambda: 2.0 if len(device.submitted) > 20 else 0.5)
    monkeypatch.setattr(loop, "time", clock)
    result = run(kernel, database, device, sampler="gp-ei", trials=200, time_s=1.0, began=0.0)
    gain = result.stats["expected_gain"]
    assert 0.0 < gain < 0.5
    assert f"is expected to save {100 * gain:.1f} % of the time" in " ".join(
        summary(result, Path("x.db")).split()
    )


# -- several runs


def test_tuning_again_tries_new_ground(database: Database, kernel: KernelSpec) -> None:
    first = run(kernel, database, StubDevice(), from_scratch=False)
    device = StubDevice()
    second = run(kernel, database, device, from_scratch=False, seed=9)
    assert first.finish is not None
    assert second.finish is not None
    again = set(sequence(database, first.state.run.id)) & set(device.submitted)
    best = sorted(sequence(database, first.state.run.id), key=time_of)[:RETRIED]
    assert again == {first.state.space.default, *best, first.finish.winner.configuration}
    assert second.finish.time_ns <= first.finish.time_ns * 1.001
    assert second.state.known_before == TRIALS - len(again)


def test_a_run_learns_from_runs_of_before_kernels_were_identified(
    database: Database, kernel: KernelSpec
) -> None:
    """They have one digest, of another text."""
    first = run(kernel, database, StubDevice(), from_scratch=False).state.run
    as_before = {"computation": "", "kernel_digest": KernelIdentity(kernel).legacy}
    database.connection.execute(
        "UPDATE runs SET computation = :computation, kernel_digest = :kernel_digest", as_before
    )
    (row,) = database.select("SELECT * FROM runs")
    with database.transaction():
        database.update_run(first.id, digest=row_digest("runs", row))
    database.forget_runs()
    second = run(kernel, database, StubDevice(), from_scratch=False, seed=9).state
    assert second.known_before > 16
    assert database.run(first.id).computation == second.run.computation


def test_tuning_until_everything_is_known(database: Database, kernel: KernelSpec) -> None:
    fixed = {"block_size": ("32", "64"), "items": ("1", "2", "3")}
    for _ in range(3):
        result = run(kernel, database, StubDevice(lookahead=3), from_scratch=False, fixed=fixed)
        assert result.finish is not None
    assert len(result.state.trials) <= 1 + RETRIED < 6


# -- bad requests


def test_unknown_names_leave_nothing_behind(database: Database, kernel: KernelSpec) -> None:
    for changes, said in [
        ({"sampler": "annealing"}, "no sampler named 'annealing'"),
        ({"variants": ("vectorised",)}, "no variant 'vectorised'"),
        ({"fixed": {"blocksize": ("1",)}}, "no parameter 'blocksize'.*block_size"),
        ({"fixed": {"block_size": ("33",)}}, "never '33'"),
    ]:
        with pytest.raises(UsageError, match=said):
            run(kernel, database, StubDevice(), **changes)
    assert database.select("SELECT * FROM runs") == []


def test_constraint_that_nothing_meets(database: Database, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"blocks are large" = "block_size > 2048"\n'
    with pytest.raises(SpaceError, match="blocks are large"):
        run(scale_kernel(tmp_path / "kernel", extra=extra), database, StubDevice())


# -- on the device with the fake worker


def test_faults_do_not_disturb_a_run(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.devices.guard.GRACE_S", 0.1)
    kernel = scale_kernel(
        tmp_path / "kernel", faults=("ok", "die", "wrong", "sticky700", "hang"), blocks=(32,), items=(1, 2)
    )
    device = LocalDevice(Processes(0, 2, tmp_path / "cache", "tests.faults.fake_worker"))
    try:
        result = run(kernel, database, device, sampler="tpe", trials=10)
        assert device._guard.restarts >= 6
    finally:
        device.close()
    trials = database.trials(result.state.run.id)
    wanted = {"die": "worker_died", "wrong": "wrong_result", "sticky700": "memory_fault", "hang": "hang"}
    assert len(trials) == 10
    assert {str(trial.configuration.values["fault"]) for trial in trials} == {"ok", *wanted}
    for trial in trials:
        fault = str(trial.configuration.values["fault"])
        assert trial.status == wanted.get(fault, "ok"), trial
    assert result.finish is not None
    assert result.finish.exportable, result.finish.reason
    assert result.finish.edge_cases


def test_the_default_of_a_narrowed_space_is_called_that(database: Database, kernel: KernelSpec) -> None:
    fixed = {"block_size": ("64",), "items": ("1",), "fault": ("ok",)}
    said = summary(run(kernel, database, StubDevice(), fixed=fixed), Path("x.db"))
    assert "speedup    none: the default configuration of what was searched is the winner" in said
