"""Trials that were timed while the GPU was slower: doubted, timed again, and not raced as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tests.sessions import TRIALS, only_run, plain, run
from tuner.core.errors import DeviceError, Interrupted
from tuner.core.model import Configuration, Measurement, Status, Trial
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.report.summary import summary
from tuner.tuning.drift import DriftCheck


class Drifting(StubDevice):
    """Answers fast times from one trial to another, and says after the latter that the GPU has changed."""

    def __init__(self, since: int, until: int, factor: float = 0.97, lookahead: int = 1) -> None:
        super().__init__(lookahead)
        self.since, self.until, self.factor = since, until, factor
        self.count = 0
        self.answer = self.drifting

    def drifting(self, configuration: Configuration) -> Measurement:
        self.count += 1
        lucky = self.since <= self.count <= self.until
        time_ns = 100_000 + time_of(configuration) / 100  # all within a percent
        return replace(good(time_ns * (self.factor if lucky else 1.0)), drifted=self.count == self.until)


def test_what_a_drifting_gpu_timed_is_timed_again(database: Database, kernel: KernelSpec) -> None:
    device = Drifting(11, 20, lookahead=7)
    result = run(kernel, database, device)
    trials = database.trials(result.state.run.id)
    suspect = [trial for trial in trials if trial.suspect]
    assert {trial.number for trial in suspect} >= set(range(10, 20))
    assert len(suspect) <= 16, "no more than can have been since the look before"
    again = [
        trial
        for trial in trials
        if trial.number >= 20 and trial.configuration in {s.configuration for s in suspect}
    ]
    assert {trial.configuration for trial in again} == {trial.configuration for trial in suspect}
    assert len(again) == len(suspect) == result.state.retimed == result.stats["retimed"]
    assert len(trials) == TRIALS + len(again) == len(device.submitted), "beyond the budget"
    assert result.finish is not None
    assert not result.finish.winner.suspect
    assert not (result.state.incumbent or result.finish.winner).suspect
    assert (result.state.incumbent or suspect[0]).time_ns > 100_000
    assert device.incumbent() == (result.state.incumbent or suspect[0]).time_ns
    assert f"{len(again)} timed again after the GPU had drifted" in " ".join(
        summary(result, Path("x.db"), full=True).split()
    )
    assert not database.pending_attempts(result.state.run.id)


def test_nothing_is_timed_again_after_ctrl_c_but_on_resume(database: Database, kernel: KernelSpec) -> None:
    device, watcher, stopped_at = Drifting(11, 20, lookahead=7), Watcher(), list[int]()

    def stop() -> bool:
        if watcher.now and any(trial.suspect for trial in watcher.now.trials):
            stopped_at.append(len(device.submitted))
        return bool(stopped_at)

    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, stop=stop)
    assert len(device.submitted) == stopped_at[0]
    result = run(kernel, database, StubDevice(lookahead=7, answer=device.drifting), resume=True)
    suspect = {trial.configuration for trial in result.state.trials if trial.suspect}
    assert suspect <= {trial.configuration for trial in result.state.trials if not trial.suspect}


def test_drift_at_the_very_end_is_mended(database: Database, kernel: KernelSpec) -> None:
    """Also when the time is over: a suspect one could not be the winner otherwise."""
    device = Drifting(1, TRIALS)
    result = run(kernel, database, device)
    assert len(device.submitted) == TRIALS + 16
    assert result.finish is not None
    small = run(
        kernel, database, Drifting(1, 3), fixed={"block_size": ("32",), "items": ("1", "2", "3")}, trials=3
    )
    assert small.finish is not None
    assert small.state.retimed == 3


def test_far_and_failed_are_not_timed_again(database: Database, kernel: KernelSpec) -> None:
    device = Drifting(1, 12)
    slow = device.drifting

    def answer(configuration: Configuration) -> Measurement:
        measurement = slow(configuration)
        if device.count == 3:
            return good(200_000)
        return Measurement(Status.HANG, error="oh") if device.count == 5 else measurement

    device.answer = answer
    result = run(kernel, database, device)
    suspect = [t.number for t in result.state.trials if t.suspect]
    assert suspect == [0, 1, 3, *range(5, 12)]


def test_gpu_that_drifts_all_the_time_comes_to_an_end_after_a_pause(
    database: Database, kernel: KernelSpec
) -> None:
    """Each is timed at most twice again."""
    watcher, device = (
        Watcher(),
        StubDevice(answer=lambda c: replace(good(100_000 + time_of(c) / 100), drifted=True)),
    )
    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, trials=16, stop=stop_after(watcher, 20))
    result = run(kernel, database, device, resume=True)
    assert len(database.trials(result.state.run.id)) == 48
    assert result.finish is not None


def test_answer_that_was_not_timed_says_nothing_about_drift(database: Database, kernel: KernelSpec) -> None:
    """A configuration with the source of another gets its answer, whatever the GPU did since."""
    device = StubDevice(answer=lambda c: replace(good(100_000), drifted=True, measure_s=0.0))
    assert run(kernel, database, device).state.retimed == 0


def test_failures_do_not_push_the_doubtful_out(database: Database, kernel: KernelSpec) -> None:
    """After a kernel that could not be launched there is no look: any number of them can come between two."""
    device = Drifting(1, 10)
    timed = device.drifting
    turn = iter(range(10_000))

    def answer(configuration: Configuration) -> Measurement:
        now = next(turn)
        if now < 60 and now % 4:
            return Measurement(Status.LAUNCH_ERROR, error="no", measure_s=1e-3)
        return timed(configuration)

    device.answer = answer
    result = run(kernel, database, device, trials=60)
    lucky = [t for t in result.state.trials if t.suspect]
    assert len(lucky) == 10
    assert result.finish is not None
    assert (result.state.incumbent or lucky[0]).time_ns > 100_000


@pytest.mark.parametrize("when", ["before", "after"])
def test_answer_of_a_doubtful_equal_is_doubtful(database: Database, kernel: KernelSpec, when: str) -> None:
    """A trial with the samples of an equal source is timed again like that one, if the GPU drifted around it."""
    last = 5 if when == "before" else 9
    count = iter(range(1, 1000))
    lucky = good(90_000)

    def answer(configuration: Configuration) -> Measurement:
        now = next(count)
        if now == 4:
            return lucky
        if now == last:
            return replace(lucky, measure_s=0.0)
        return replace(good(100_000 + now), drifted=now == 8)

    result = run(kernel, database, StubDevice(lookahead=4, answer=answer))
    suspect = {t.number: t.configuration for t in result.state.trials if t.suspect}
    assert {3, last - 1} <= set(suspect)
    assert last == 5 or 10 not in suspect
    assert result.finish is not None
    assert (result.state.incumbent or result.finish.winner).time_ns == pytest.approx(100_001, rel=1e-3)
    steady = {t.configuration for t in result.state.trials if not t.suspect}
    assert set(suspect.values()) <= steady


def test_answer_of_a_steady_equal_counts() -> None:
    """Between the equal source's timing and now there was a look at which all was well."""
    drift = DriftCheck()

    def ended(number: int, time_ns: float, *, timed: bool = True, drifted: bool = False) -> list[int]:
        trial = Trial(
            number, plain(32 * (number + 1)), Status.OK, time_ns, samples_ns=(time_ns,) * 6, measure_s=1e-3
        )
        return [t.number for t in drift.add(trial, timed=timed, drifted=drifted, best_ns=100.0)]

    for number in range(17):
        assert ended(number, 100.0 + number / 10) == []
    assert ended(17, 100.0, timed=False) == []  # of number 0, which is not suspect any more
    assert ended(18, 101.6, timed=False) == []  # of number 16
    assert ended(19, 102.0, timed=False, drifted=True) == [], "the drift of another"
    assert ended(20, 103.0, drifted=True) == [*range(2, 17), 18, 20]


@pytest.mark.parametrize("stop_at", [20, 24])
def test_resumed_run_times_again_what_was_suspect(
    database: Database, kernel: KernelSpec, stop_at: int
) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, Drifting(11, 20), watcher, stop=stop_after(watcher, stop_at))
    device = StubDevice(answer=lambda c: good(100_000 + time_of(c) / 100))
    result = run(kernel, database, device, resume=True)
    trials = database.trials(result.state.run.id)
    suspect = {trial.configuration for trial in trials if trial.suspect}
    steady = [trial.configuration for trial in trials if not trial.suspect]
    assert len(suspect) == 16
    assert suspect < set(steady)
    assert len(steady) == len(set(steady)) == TRIALS
    assert len(trials) == TRIALS + 16
    assert result.state.retimed == 16


def killed_while_timing_again(kernel: KernelSpec, database: Database) -> str:
    """Leave a run that ended while it timed a suspect trial once more; give its id."""

    class Dying(Drifting):
        def collect(self, timeout_s: float) -> list[Trial]:
            if self.count > 22:
                raise DeviceError("killed")
            return super().collect(timeout_s)

    with pytest.raises(DeviceError):
        run(kernel, database, Dying(11, 20))
    return str(only_run(database)[0])


def test_killed_while_timing_again(database: Database, kernel: KernelSpec) -> None:
    """The attempt that is left is of a configuration that the run has tried already."""
    run_id = killed_while_timing_again(kernel, database)
    assert len(database.pending_attempts(run_id)) == 1
    device = StubDevice(answer=lambda c: good(100_000 + time_of(c) / 100))
    result = run(kernel, database, device, resume=True)
    trials = database.trials(run_id)
    assert len(trials) == len({trial.number for trial in trials}) == TRIALS + 16
    assert result.state.retimed == 16
    assert not database.pending_attempts(run_id)


def test_what_kills_the_tuner_while_timed_again_costs_no_other_trial(
    database: Database, kernel: KernelSpec
) -> None:
    run_id = killed_while_timing_again(kernel, database)
    ((number, killer, _),) = database.pending_attempts(run_id)
    for later in (number + 1, number + 2):
        database.attempt(run_id, later, killer)
    device = StubDevice(answer=lambda c: good(100_000 + time_of(c) / 100))
    result = run(kernel, database, device, resume=True)
    trials = database.trials(run_id)
    assert [trial.configuration for trial in trials if trial.status is Status.CRASHED] == [killer]
    assert len({trial.configuration for trial in trials}) == TRIALS
    assert result.state.retimed == 16
