"""A winner is confirmed in fresh processes and at other sizes, or rejected; the next best take its place."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.faults.stub_device import good
from tests.tuning.finishes import KERNEL, PROBLEM, Track, finish, finish_and_rejected, numbers, trial
from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Configuration, Measurement, Problem, Status, Verification
from tuner.tuning import confirmation, race
from tuner.tuning.race import FinalRace


def test_winner_that_a_fresh_process_cannot_reproduce() -> None:
    device = Track()
    device.confirmed = lambda c, t: good(device.time(c) * (1.2 if c.values["number"] == 0 else 1.0))
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert ended.winner.number == 1
    assert ended.exportable
    ((rejected, reason),) = ended.unstable
    assert rejected.number == 0
    assert "fresh process" in reason


@pytest.mark.parametrize(
    ("moved", "other", "winner"), [(1.03, 1.016, 0), (1.03, 1.014, 2), (1.055, 1.036, 0), (1.055, 1.034, 2)]
)
def test_another_finalist_must_be_off_by_half_and_within_two_percent(
    moved: float, other: float, winner: int
) -> None:
    device, off = Track(), {0: moved, 1: other}
    device.confirmed = lambda c, t: good(device.time(c) * off.get(int(c.values["number"]), 1.0))
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0), trial(2, 1040.0)])
    assert (ended.winner.number == 0) == (winner == 0)


@pytest.mark.parametrize(("shift", "winner"), [(1.08, 0), (1.15, 2)])
def test_a_process_in_which_another_finalist_is_as_far_from_its_time_confirms(
    shift: float, winner: int
) -> None:
    """Where a process gets its memory moves all by some percent; by more than that it is another time."""
    device = Track()
    device.confirmed = lambda c, t: good(device.time(c) * (shift if device.time(c) < 1.03e6 else 1.0))
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0), trial(2, 1040.0)])
    assert ended.winner.number == winner


@pytest.mark.parametrize(
    ("answers", "winner"),
    [([Status.HANG], 2), ([Status.WORKER_DIED, Status.OK], 0), ([Status.WORKER_DIED] * 2, 2)],
)
def test_another_finalist_that_cannot_be_measured_confirms_nothing(
    answers: list[Status], winner: int
) -> None:
    device, turns = Track(), iter(answers)

    def confirmed(configuration: Configuration, time_ns: float) -> Measurement:
        status = Status.OK if configuration.values["number"] != 1 else next(turns, Status.HANG)
        time_ns = device.time(configuration) * (1.04 if configuration.values["number"] < 2 else 1.0)
        return good(time_ns) if status is Status.OK else Measurement(status, good(time_ns).samples_ns, "oh")

    device.confirmed = confirmed
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0), trial(2, 1040.0)])
    assert ended.winner.number == winner


def test_what_is_confirmed_is_said_and_frees_the_process() -> None:
    ended, said = list[bool](), list[str]()

    class Freed(Track):
        def end_confirmation(self) -> None:
            ended.append(True)

    device = Freed()
    one = trial(0, 1000.0).configuration
    assert not confirmation.confirm(device, KERNEL, PROBLEM, one, 1e6, said.append).reason
    assert said == ["confirming the winner in a fresh process", "verifying the winner at edge-case sizes"]
    device.confirmed = lambda c, time_ns: good(1.04 * time_ns)
    moved = confirmation.confirm(device, KERNEL, PROBLEM, one, 1e6, said.append, other=(one, 1e6))
    assert not moved.reason and "timing another finalist in a fresh process" in said
    assert ended == [True, True]


@pytest.mark.parametrize(
    ("factor", "moved", "objects"), [(1.04, 0.06, False), (1.07, 0.06, True), (1.04, 0.0, True)]
)
def test_where_no_other_finalist_can_tell_a_time_may_be_off_by_more(
    factor: float, moved: float, objects: bool
) -> None:
    device = Track()
    device.confirmed = lambda c, time_ns: good(factor * time_ns)
    one = trial(0, 1000.0).configuration
    found = confirmation.confirm(device, KERNEL, PROBLEM, one, 1e6, lambda _: None, moved=moved)
    assert bool(found.reason) == objects


def test_what_is_wrong_where_a_winner_was_is_refused_before_another_race() -> None:
    """Configurations without a bounds check cost one race, not one each; the first that is right wins."""
    device, said = Track(), list[str]()
    trials = [trial(number, 1000.0 + number) for number in range(20)]
    device.edge_case = lambda p, c: (
        good(1000.0) if c == trials[-1].configuration else Measurement(Status.WRONG_RESULT, error="y[0] is 1")
    )
    rejected = list[int]()
    race = FinalRace(
        device, KERNEL, PROBLEM, None, said.append, lambda one, why, status: rejected.append(one.number)
    )
    ended = race.run(trials)
    assert ended is not None and ended.exportable and ended.winner is trials[-1]
    assert len(device.races) == 2 and rejected == list(range(19))
    assert any("refused" in line and "y[0] is 1" in line for line in said)


@pytest.mark.parametrize(("odd", "confirmed"), [(0, True), (2, True), (3, False)])
def test_one_fresh_process_of_three_must_agree(odd: int, confirmed: bool) -> None:
    device = Track()
    turns = iter(range(100))
    device.confirmed = lambda c, t: good(device.time(c) * (0.94 if next(turns) < odd else 1.0))
    ended = finish(device, [trial(0, 1000.0)])
    assert ended.exportable is confirmed
    assert next(turns) == min(odd + 1, 3)


@pytest.mark.parametrize("status", [Status.WRONG_RESULT, Status.HANG])
def test_winner_that_fails_in_a_fresh_process(status: Status) -> None:
    device = Track()
    device.confirmed = lambda c, t: Measurement(status, error="oh")
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert not ended.exportable
    assert str(status) in ended.reason


def test_without_a_fresh_process_no_trial_is_rejected() -> None:
    """As on a GPU in exclusive-process mode, or without memory: the next best would not be confirmed either."""
    device = Track()
    confirmed: list[Configuration] = []

    def refused(configuration: Configuration, time_ns: float) -> Measurement:
        confirmed.append(configuration)
        return Measurement(Status.UNSTABLE, error="the device is busy")

    device.confirmed = refused
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert rejected == []
    assert numbers(confirmed) == [0, 0]
    assert len(device.races) == 1
    assert ended is not None
    assert (ended.winner.number, ended.exportable) == (0, False)
    assert ended.reason == "in a fresh process: unstable: the device is busy"


def test_default_that_wins_and_is_rejected_ends() -> None:
    """The default always races for comparison, but once rejected it cannot win again."""
    device = Track()
    device.edge_case = lambda p, c: (
        Measurement(Status.WRONG_RESULT, error="no") if c.values["number"] == 0 else good(1.0)
    )
    default = trial(0, 1000.0)
    ended = finish(device, [default, trial(1, 1010.0), trial(2, 1020.0)], default)
    assert ended.winner.number == 1
    assert ended.exportable
    assert len(device.races) < 10


def test_other_finalists_are_verified_for_a_limited_time_before_they_race(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes 25 s of 60: where the limit ends that, the next race goes on with what is left."""
    passed_s, limits, said = [0.0], dict[int, float](), list[str]()
    monkeypatch.setattr(race, "time", SimpleNamespace(monotonic=lambda: passed_s[0]))

    class Slow(Track):
        def verify_at(
            self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
        ) -> Measurement:
            number = int(configuration.values["number"])
            if said[-1].startswith("verifying another finalist"):
                limits[number] = limit_s
                passed_s[0] += 25.0
            return Measurement(Status.WRONG_RESULT, error="no") if number < 4 else good(1.0)

    ended, rejected = finish_and_rejected(Slow(), [trial(i, 1000.0 + i) for i in range(7)], say=said.append)
    assert limits == {1: 60.0, 2: 35.0, 3: 10.0}
    assert [trial.number for trial, _ in rejected] == [0, 1, 2, 3]
    assert ended is not None and (ended.winner.number, ended.exportable) == (4, True)


def test_the_next_best_replace_the_rejected() -> None:
    """A whole family that is wrong must not leave the slow default as the winner."""
    device = Track()
    device.edge_case = lambda p, c: (
        Measurement(Status.WRONG_RESULT, error="no") if c.values["number"] < 5 else good(1.0)
    )
    default = trial(99, 30000.0)
    trials = [
        *(trial(i, 1000.0 + i) for i in range(5)),
        *(trial(i, 1150.0 + i) for i in range(5, 25)),
        default,
    ]
    ended, rejected = finish_and_rejected(device, trials, default)
    assert ended is not None
    assert ended.winner.number == 5
    assert ended.exportable
    assert sorted(t.number for t, _ in rejected) == [0, 1, 2, 3, 4]


def test_rejected_are_named_when_none_is_left() -> None:
    device = Track()
    device.fail_in_race = lambda contestants: 0
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1010.0)])
    assert ended is None
    assert sorted(t.number for t, _ in rejected) == [0, 1]
    device = Track()
    device.edge_case = lambda p, c: Measurement(Status.WRONG_RESULT, error="no")
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0)])
    assert ended is not None
    assert not ended.exportable
    assert [t.number for t, _ in rejected] == [0]


@pytest.mark.parametrize(
    ("factor", "mode", "us", "confirmed"),
    [
        (1.019, Mode.COLD, 1000.0, True),
        (1.021, Mode.COLD, 1000.0, False),
        (0.979, Mode.COLD, 1000.0, False),
        (1.03, Mode.COLD, 25.0, False),
        (1.24, Mode.COLD, 2.0, True),  # half a microsecond is what events resolve
        (1.26, Mode.COLD, 2.0, False),
        (1.045, Mode.ROTATING, 2.0, True),  # a tenth of one where many calls share them
        (1.055, Mode.ROTATING, 2.0, False),
        (0.87, Mode.ROTATING, 20.0, True),  # alone, without eight others in turn
        (0.84, Mode.ROTATING, 20.0, False),
        (1.03, Mode.ROTATING, 20.0, False),
    ],
)
def test_how_far_a_fresh_process_may_be(factor: float, mode: Mode, us: float, confirmed: bool) -> None:
    device = Track()
    device.conditions = Conditions(mode)
    device.confirmed = lambda c, t: good(factor * device.time(c))
    ended = finish(device, [trial(0, us)])
    assert ended.exportable is confirmed


def test_winner_that_is_too_inaccurate_on_other_inputs() -> None:
    device = Track()
    device.confirmed = lambda c, t: replace(
        good(device.time(c)),
        verification=Verification(True, true_error=2e-3 if numbers([c]) == [0] else 1e-3),
    )
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)], None, max_error=1.5e-3)
    assert ended.winner.number == 1
    assert ended.exportable
    assert "its error is 0.002, above 0.0015" in ended.unstable[0][1]
