"""Runs that are interrupted, killed, and taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.compiling_device import CompilingDevice
from tests.faults.stub_device import StubDevice, Watcher, stop_after, time_of
from tests.sessions import TRIALS, only_run, run, run_stopped, sequence
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.errors import DeviceError, Interrupted, TunerError
from tuner.core.model import Configuration, Measurement, Problem, Status, Trial
from tuner.database.cells import row_digest
from tuner.database.database import Database
from tuner.devices.base import RaceRequest
from tuner.kernel.spec import KernelSpec
from tuner.search.study import Search
from tuner.tuning.history import RETRIED
from tuner.tuning.state import State


@pytest.mark.parametrize(("lookahead", "sampler"), [(1, "tpe"), (8, "random"), (3, "brute-force")])
def test_resume_goes_on_and_repeats_nothing(
    database: Database, kernel: KernelSpec, lookahead: int, sampler: str
) -> None:
    done = 0
    for stop_at in (7, 1, 11):
        watcher = Watcher()
        with pytest.raises(Interrupted, match="--resume") as caught:
            run(
                kernel,
                database,
                StubDevice(lookahead, shuffle=done),
                watcher,
                sampler=sampler,
                resume=done > 0,
                stop=stop_after(watcher, stop_at),
            )
        assert caught.value.exit_code == 130
        run_id, state = only_run(database)
        done += len(watcher.numbers)
        assert state == "interrupted"
        assert len(database.trials(run_id)) == done
        assert f"{done} of {TRIALS}" in str(caught.value)
    result = run(kernel, database, StubDevice(lookahead, shuffle=9), sampler=sampler, resume=True)
    trials = database.trials(run_id)
    assert only_run(database) == (run_id, "finished")
    assert (
        len(trials)
        == len({trial.number for trial in trials})
        == len({t.configuration for t in trials})
        == TRIALS
    )
    assert result.finish is not None
    assert not database.pending_attempts(run_id)


def test_interrupted_in_the_finish(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted, match=f"{TRIALS} of {TRIALS}"):
        run(kernel, database, StubDevice(), watcher, stop=lambda: bool(watcher.phases))
    device = StubDevice()
    result = run(kernel, database, device, resume=True)
    assert device.submitted == []
    assert result.finish is not None


def test_ctrl_c_twice_says_nothing_against_what_was_under_way(database: Database, kernel: KernelSpec) -> None:
    class Twice(StubDevice):
        """Answers a question, and is stopped at the next, without waiting for what is under way."""

        def collect(self, timeout_s: float) -> list[Trial]:
            if len(self.submitted) > len(self.waiting) + 1:
                raise KeyboardInterrupt
            return super().collect(timeout_s)

    for turn in range(3):
        with pytest.raises(Interrupted, match="--resume"):
            run(kernel, database, Twice(lookahead=8), resume=turn > 0)
        run_id, state = only_run(database)
        assert state == "interrupted"
        assert not database.pending_attempts(run_id)
    result = run(kernel, database, StubDevice(lookahead=8), resume=True)
    assert result.state.failures == {}
    assert len(set(sequence(database, run_id))) == TRIALS


def unstable(database: Database) -> list[Configuration]:
    run_id, _ = only_run(database)
    return [t.configuration for t in database.trials(run_id) if t.status is Status.UNSTABLE]


def test_a_rejected_trial_stays_so_when_the_finish_is_interrupted(
    database: Database, kernel: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is told what it was timed with, as it was before: only that it would win could not be confirmed."""
    device = StubDevice()
    wrong: list[Configuration] = []

    def edge_case(problem: Problem, configuration: Configuration) -> Measurement:
        wrong.append(configuration)
        return Measurement(Status.WRONG_RESULT, error="no")

    device.edge_case = edge_case
    with pytest.raises(Interrupted):
        run(kernel, database, device, stop=lambda: len(wrong) == 2)
    assert set(unstable(database)) == set(wrong)
    told: dict[Configuration, float | None] = {}
    monkeypatch.setattr(
        Search, "recall", lambda _, configuration, time_ns: told.update({configuration: time_ns})
    )
    run(kernel, database, device, resume=True)
    run_id, _ = only_run(database)
    assert told == {trial.configuration: trial.time_ns for trial in database.trials(run_id)}
    assert None not in told.values() and len(told) == TRIALS


def test_a_rejected_trial_stays_so_when_the_device_fails(database: Database, kernel: KernelSpec) -> None:
    class Failing(StubDevice):
        def _race(self, request: RaceRequest) -> Raced | RaceFailed:
            if self.races:
                raise DeviceError("the measuring process ended twice in a race")
            return super()._race(request)

    device = Failing()
    device.fail_in_race = lambda contestants: 0
    with pytest.raises(DeviceError):
        run(kernel, database, device)
    assert unstable(database) == device.races[0][:1]


def test_resume_keeps_sampler_seed_budget_and_narrowing(database: Database, kernel: KernelSpec) -> None:
    run_stopped(kernel, database, 5, StubDevice(), seed=4, trials=20, fixed={"items": ("1", "2")})
    device = StubDevice()
    result = run(kernel, database, device, seed=77, trials=500, sampler="tpe", resume=True)
    assert {c.values["items"] for c in device.submitted} == {1, 2}
    options = result.state.run.options
    assert (options.seed, options.sampler, len(result.state.trials)) == (4, "random", 20)


@pytest.mark.parametrize("done", [0, 3])
def test_resumed_run_tries_the_best_of_earlier_runs_once(
    database: Database, kernel: KernelSpec, done: int
) -> None:
    """Times of another day cannot race: the best not yet tried again are tried after the interruption."""
    first = run(kernel, database, StubDevice(), from_scratch=False)
    assert first.finish is not None
    best = sorted(sequence(database, first.state.run.id), key=time_of)[:RETRIED]
    watcher = Watcher()
    stop = stop_after(watcher, max(0, done - 1))  # what is under way when Ctrl-C is pressed comes to its end
    with pytest.raises(Interrupted, match=f"after {done} of 20" if done else "before its first trial"):
        run(kernel, database, StubDevice(), watcher, from_scratch=False, seed=3, trials=20, stop=stop)
    device = StubDevice()
    result = run(kernel, database, device, from_scratch=False, resume=True)
    tried = sequence(database, result.state.run.id)
    assert tried[0] == result.state.space.default
    assert set(best) <= set(tried[: 2 + RETRIED])
    assert len(tried) == len(set(tried)) == 20
    assert len(device.submitted) == 20 - done
    assert result.finish is not None
    assert result.finish.incumbent is not None
    assert result.finish.incumbent.configuration == first.finish.winner.configuration
    assert result.finish.time_ns <= first.finish.time_ns * 1.001


def test_changed_kernel_is_not_resumed(database: Database, kernel: KernelSpec) -> None:
    run_stopped(kernel, database, 5, StubDevice())
    template = kernel.variants["plain"].launches[0].template
    template.write_text(template.read_text().replace("= ", "= 0 + ", 1))
    with pytest.raises(TunerError, match="has changed"):
        run(kernel, database, StubDevice(), resume=True)


def test_nothing_to_resume(database: Database, kernel: KernelSpec) -> None:
    with pytest.raises(TunerError, match=r"no interrupted run of scale n=1024 .*; leave out --resume"):
        run(kernel, database, StubDevice(), resume=True)
    assert database.select("SELECT * FROM runs") == []


class Deadly(StubDevice):
    """Takes the tuner with it while it has a configuration; which others it has then is counted."""

    def __init__(self, killer: Configuration | None, lookahead: int = 6, shuffle: int = 3) -> None:
        super().__init__(lookahead, shuffle)
        self.killer = killer
        self.beside: list[int] = []

    def collect(self, timeout_s: float) -> list[Trial]:
        if self.killer in [configuration for _, configuration in self.waiting]:
            self.beside.append(len(self.waiting) - 1)
            if len(self.beside) > 1 or len(self.waiting) == 1:
                raise DeviceError("killed")
        return super().collect(timeout_s)


def unbroken(kernel: KernelSpec, folder: Path, **changes: Any) -> list[Configuration]:
    """Return what a run tries that nothing interrupts."""
    with Database.open(folder / "unbroken.db") as database:
        run(kernel, database, StubDevice(lookahead=6), **changes)
        return sequence(database, only_run(database)[0])


def killed(kernel: KernelSpec, database: Database, killer: Configuration, times: int) -> list[Deadly]:
    """Have a configuration kill a run and its resumptions; return the devices."""
    devices = [Deadly(killer) for _ in range(times)]
    for device in devices:
        with pytest.raises(DeviceError):
            run(kernel, database, device, resume=device is not devices[0])
    return devices


def test_what_was_begun_is_tried_again_first(database: Database, kernel: KernelSpec, tmp_path: Path) -> None:
    killed(kernel, database, unbroken(kernel, tmp_path)[12], 1)
    run_id, _ = only_run(database)
    begun = [configuration for _, configuration, _ in database.pending_attempts(run_id)]
    assert len(begun) > 1
    device = StubDevice(lookahead=6)
    run(kernel, database, device, resume=True)
    assert device.submitted[: len(begun)] == begun
    assert len(set(sequence(database, run_id))) == len(sequence(database, run_id)) == TRIALS
    assert {trial.status for trial in database.trials(run_id)} == {Status.OK}


def test_what_kills_the_tuner_is_given_up(database: Database, kernel: KernelSpec, tmp_path: Path) -> None:
    """Begun twice without a result, it may be innocent: it gets one more chance, with nothing beside it."""
    expected = unbroken(kernel, tmp_path)
    first, second, third = killed(kernel, database, expected[12], 3)
    assert min(*first.beside, *second.beside) > 0
    assert third.beside == [0]
    device = StubDevice(lookahead=6)
    result = run(kernel, database, device, resume=True)
    run_id, _ = only_run(database)
    assert expected[12] not in device.submitted
    (crashed,) = [trial for trial in database.trials(run_id) if trial.status is Status.CRASHED]
    assert crashed.configuration == expected[12]
    assert "3 times" in crashed.error
    assert len(set(sequence(database, run_id))) == len(sequence(database, run_id)) == TRIALS
    assert result.state.failures == {"crashed": 1}
    assert not database.pending_attempts(run_id)


def test_a_stop_begins_nothing_that_was_held_back(
    database: Database, kernel: KernelSpec, tmp_path: Path
) -> None:
    """Each that may have killed the tuner waits until it is alone: what waits when Ctrl-C is pressed stays so."""
    killed(kernel, database, unbroken(kernel, tmp_path)[12], 2)
    watcher, device = Watcher(), StubDevice(lookahead=6)
    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, resume=True, stop=stop_after(watcher, 1))
    assert len(device.submitted) == len(watcher.numbers) == 2


def test_where_the_search_departs_all_results_stay(database: Database, kernel: KernelSpec) -> None:
    """With another device than then: what is known is told, and not measured again."""
    run_stopped(kernel, database, 12, StubDevice(lookahead=8), sampler="gp-ei")
    run_id, _ = only_run(database)
    before = database.trials(run_id)
    database.connection.execute("UPDATE runs SET seed = seed + 1")  # so that it asks for others
    (row,) = database.select("SELECT * FROM runs")
    with database.transaction():
        database.update_run(run_id, digest=row_digest("runs", row))
    database.forget_runs()
    device = CompilingDevice()
    result = run(kernel, database, device, sampler="gp-ei", resume=True)
    assert database.trials(run_id)[: len(before)] == before
    assert len(device.submitted) == TRIALS - len(before)
    assert len(set(sequence(database, run_id))) == len(result.state.trials) == TRIALS
    assert not {trial.configuration for trial in before} & set(device.submitted)


def test_device_that_fails(database: Database, kernel: KernelSpec) -> None:
    class Failing(StubDevice):
        def collect(self, timeout_s: float) -> list[Trial]:
            if len(self.submitted) > 12:
                raise DeviceError("the measuring process cannot be started: no GPU")
            return super().collect(timeout_s)

    with pytest.raises(DeviceError):
        run(kernel, database, Failing(lookahead=3))
    run_id, state = only_run(database)
    assert state == "failed"
    done = len(database.trials(run_id))
    assert done == 10
    device = StubDevice(lookahead=3)
    run(kernel, database, device, resume=True)
    assert len(device.submitted) == TRIALS - done
    assert len(set(sequence(database, run_id))) == TRIALS


def test_second_tuner_does_not_take_over_a_living_run(database: Database, kernel: KernelSpec) -> None:
    first = StubDevice()
    seen: list[str] = []

    class Nosy(Watcher):
        def step(self, now: State, done: float | None = None) -> None:
            super().step(now, done)
            if len(self.numbers) >= 3 and not seen:
                with pytest.raises(TunerError, match="no interrupted run"):
                    run(kernel, database, StubDevice(), resume=True)
                seen.append("refused")

    run(kernel, database, first, Nosy())
    assert seen == ["refused"]
