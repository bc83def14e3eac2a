"""The finish: finalists, winners, and winners that are not confirmed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.stub_device import StubDevice, good
from tuner.conditions import Calibration, Conditions, Mode
from tuner.devices.base import RaceRequest, RaceRound
from tuner.model import Configuration, Measurement, Problem, Status, Trial, Verification
from tuner.space.edge_sizes import VERIFIED_PROBLEMS
from tuner.stats import Verdict
from tuner.tuning.decision import Preference
from tuner.tuning.elimination import HEATS
from tuner.tuning.finalists import FINALISTS, finalists
from tuner.tuning.finish import Finish
from tuner.tuning.race import FinalRace

PROBLEM = Problem("scale", {"n": 1000}, {"input": "float32"})


def trial(number: int, time_us: float | None, status: Status = Status.OK) -> Trial:
    time_ns = None if time_us is None else time_us * 1e3
    configuration = Configuration.of("plain", {"time": int(time_ns or 0), "number": number})
    return Trial(number, configuration, status, time_ns)


class Track(StubDevice):
    """A device on which a configuration takes the time that it is named after, or (in us) another in truth."""

    def __init__(self, truth: dict[int, float] | None = None, noise: float = 0.0) -> None:
        super().__init__()
        self.truth = truth or {}
        self.noise = noise
        self.shuffles: list[int] = []
        self.confirmed = lambda c, time_ns: good(self.time(c))

    def time(self, configuration: Configuration) -> float:
        number = int(configuration.values["number"])
        return self.truth[number] * 1e3 if number in self.truth else float(configuration.values["time"])

    def race(self, request: RaceRequest) -> RaceRound:
        self.shuffles.append(request.seed)
        answer = super().race(request)
        if answer.failed is not None:
            return answer
        draw = random.Random(request.seed)
        return RaceRound(
            [
                [
                    [self.time(c) * (1 + draw.gauss(0, self.noise)) for _ in range(request.samples)]
                    for c in self.races[-1]
                ]
                for _ in range(request.rounds)
            ]
        )


def finish(device: Track, trials: list[Trial], default: Trial | None = None, **changes: Any) -> Finish | None:
    return finish_and_rejected(device, trials, default, **changes)[0]


def finish_and_rejected(
    device: Track, trials: list[Trial], default: Trial | None = None, **changes: Any
) -> tuple[Finish | None, list[tuple[Trial, str]]]:
    rejected: list[tuple[Trial, str]] = []

    def reject(trial: Trial, reason: str) -> None:
        rejected.append((trial, reason))

    ended = FinalRace(device, PROBLEM, default, lambda what: None, reject, **changes).run(trials)
    assert ended is None or ended.unstable == rejected
    return ended, rejected


def numbers(configurations: Sequence[Configuration]) -> list[int]:
    return [int(configuration.values["number"]) for configuration in configurations]


# -- what races


def test_finalists_are_verified_close_and_few() -> None:
    close = [trial(i, 1000.0 + i) for i in range(10)]
    others = [
        trial(20, 900.0, Status.UNVERIFIED),
        trial(21, 800.0, Status.TOO_FAST),
        trial(22, 950.0, Status.SLOW),
        trial(23, None, Status.HANG),
        trial(24, 1.0, Status.UNSTABLE),
        trial(25, 5000.0),
    ]
    assert finalists([*reversed(others), *reversed(close)]) == close[:FINALISTS]
    assert finalists([trial(0, 1000.0), trial(1, 1200.0)]) == [trial(0, 1000.0)]
    assert finalists(others[:2] + others[3:5]) == []
    assert finalists([]) == []


def test_default_races_too() -> None:
    default = trial(0, 3000.0)
    device = Track()
    ended = finish(device, [default, trial(1, 1000.0)], default)
    assert ended is not None
    assert set(numbers(device.races[0])) == {0, 1}
    assert ended.winner.number == 1
    assert ended.verdict is Verdict.FASTER
    assert ended.ratio is not None
    assert ended.ratio.median == pytest.approx(3.0, rel=0.01)
    assert ended.default_ns == pytest.approx(3e6, rel=0.01)
    assert ended.exportable


@pytest.mark.parametrize("status", [Status.UNVERIFIED, Status.TOO_FAST, Status.WRONG_RESULT, Status.HANG])
def test_default_that_was_not_verified_does_not_race(status: Status) -> None:
    default = trial(0, 10.0, status)
    device = Track()
    ended = finish(device, [default, trial(1, 1000.0)], default)
    assert ended is not None
    assert numbers(device.races[0]) == [1]
    assert ended.winner.number == 1
    assert ended.ratio is None
    assert ended.verdict is Verdict.AMBIGUOUS


def test_nothing_verified() -> None:
    device = Track()
    assert finish(device, [trial(0, None, Status.HANG), trial(1, 5.0, Status.UNVERIFIED)]) is None
    assert device.races == []


# -- the winner


def test_race_overrules_the_search() -> None:
    device = Track(truth={0: 1050.0, 1: 1000.0})
    ended = finish(device, [trial(0, 990.0), trial(1, 1010.0)])
    assert ended is not None
    assert ended.winner.number == 1
    assert ended.time_ns == pytest.approx(1e6)


def by_number(*numbers: int) -> Preference:
    """Prefer these, in this order."""
    return lambda c: numbers.index(n) if (n := int(c.values["number"])) in numbers else len(numbers)


def test_the_preferred_of_the_equal_wins() -> None:
    device = Track(truth={0: 1000.0, 1: 1000.4, 2: 1000.2}, noise=1e-4)
    trials = [trial(0, 1000.0), trial(1, 1001.0), trial(2, 1001.0)]
    ended = finish(device, trials, prefer=by_number(1, 2, 0))
    assert ended is not None
    assert (ended.winner.number, ended.tied) == (1, 3)
    assert finish(device, trials).winner.number == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(("slower", "winner"), [(0.006, 1), (0.009, 0)])
def test_a_preferred_one_wins_that_is_surely_slower_but_within_the_margin(slower: float, winner: int) -> None:
    """Another run may not have seen the faster one; the margin is 0.75 %, or the noise floor where that is higher."""
    device = Track(truth={0: 1000.0, 1: 1000.0 * (1 + slower)}, noise=1e-4)
    trials = [trial(0, 1000.0), trial(1, 1001.0)]
    ended = finish(device, trials, prefer=by_number(1, 0))
    assert ended is not None
    assert ended.winner.number == winner
    assert ended.behind == pytest.approx(1 + slower if winner else 1.0, abs=5e-4)
    device.calibration = Calibration({str(Conditions()): 0.01})
    ended = finish(device, trials, prefer=by_number(1, 0))
    assert ended is not None
    assert ended.winner.number == 1
    device.calibration = Calibration({str(Conditions()): 0.0})
    ended = finish(device, trials, prefer=by_number(1, 0))
    assert ended is not None
    assert ended.winner.number == 0, "without a noise floor only equal times are equal"


def test_what_another_run_would_choose_races_behind_eight_that_are_faster() -> None:
    device = Track()
    trials = [trial(i, 1000.0 + i / 10) for i in range(20)]
    named = {"initial": [trials[12].configuration], "known_winners": [trials[13].configuration]}
    finish(device, trials, prefer=by_number(15), **named)
    raced = set(numbers(device.races[0]))
    assert {*range(FINALISTS), 12, 13, 15} <= raced
    assert 19 not in raced
    slow = trial(30, 1100.0)
    finish(device, [*trials, slow], known_winners=[slow.configuration])
    assert 30 not in numbers(device.races[-1]), "it could not be chosen"


@pytest.mark.parametrize(
    ("launch_us", "default_us", "winner"),
    [(1.0, 1.6, 0), (1.0, 1.7, 1), (0.5, 1.6, 1), (0.0, 1.57, 1)],
)
def test_where_the_launch_decides_the_default_wins_unless_it_is_beaten(
    launch_us: float, default_us: float, winner: int
) -> None:
    device = Track(noise=1e-4)
    device.conditions = Conditions(Mode.ROTATING)
    device.calibration = Calibration({}, {}, launch_ns={"rotating": launch_us * 1e3})
    default = trial(0, default_us)
    ended = finish(device, [default, trial(1, 1.55)], default, prefer=by_number(0))
    assert ended is not None
    assert ended.winner.number == winner


@pytest.mark.parametrize(
    ("factor", "wanted"), [(1.0005, Verdict.SAME), (1.02, Verdict.FASTER), (1.0, Verdict.SAME)]
)
def test_no_speed_up_below_the_noise_is_claimed(factor: float, wanted: Verdict) -> None:
    default = trial(0, 1000.0 * factor)
    ended = finish(Track(noise=5e-4), [default, trial(1, 1000.0)], default)
    assert ended is not None
    assert ended.winner.number == 1
    assert ended.verdict is wanted


def test_noise_is_ambiguous() -> None:
    default = trial(0, 1008.0)
    ended = finish(Track(noise=0.2), [default, trial(1, 1000.0)], default)
    assert ended is not None
    assert ended.verdict in (Verdict.AMBIGUOUS, Verdict.SAME)


def test_default_may_win() -> None:
    default = trial(0, 1000.0)
    ended = finish(Track(), [default, trial(1, 1050.0)], default)
    assert ended is not None
    assert ended.winner is default
    assert ended.verdict is Verdict.SAME
    assert ended.exportable


# -- rejected trials


def test_contestant_that_fails_drops_out() -> None:
    device = Track()
    device.fail_in_race = lambda contestants: next(
        (i for i, c in enumerate(device.races[-1]) if c.values["number"] == 0), None
    )
    ended = finish(device, [trial(0, 1000.0), trial(1, 1010.0)])
    assert ended is not None
    assert ended.winner.number == 1
    assert [(t.number, reason) for t, reason in ended.unstable] == [(0, "it failed in the race")]


def test_all_contestants_fail() -> None:
    device = Track()
    device.fail_in_race = lambda contestants: 0
    default = trial(5, 1090.0)
    assert finish(device, [trial(0, 1000.0), trial(1, 1010.0), default], default) is None


def test_a_trial_eliminated_by_one_that_failed_later_races_again() -> None:
    """Number 2 leaves after the first heat, and then 0 fails, which eliminated it: 2 may be the fastest left."""
    device = Track(truth={0: 1000.0, 1: 1001.0, 2: 1025.0}, noise=6e-3)
    device.fail_in_race = lambda contestants: (
        next((i for i, c in enumerate(device.races[-1]) if c.values["number"] == 0), None)
        if len(device.races) > 1
        else None
    )
    ended = finish(device, [trial(0, 1000.0), trial(1, 1001.0), trial(2, 1020.0)])
    assert [set(numbers(contestants)) for contestants in device.races[:4]] == [{0, 1, 2}, {0, 1}, {1}, {1, 2}]
    assert ended is not None
    assert ended.winner.number == 1
    assert [t.number for t, _ in ended.unstable] == [0]


def test_winner_that_a_fresh_process_cannot_reproduce() -> None:
    device = Track()
    device.confirmed = lambda c, t: good(device.time(c) * (1.2 if c.values["number"] == 0 else 1.0))
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert ended is not None
    assert ended.winner.number == 1
    assert ended.exportable
    ((rejected, reason),) = ended.unstable
    assert rejected.number == 0
    assert "fresh process" in reason


def test_a_winner_is_verified_around_its_tile_below_its_size_and_beside_it() -> None:
    class Even(Track):
        def fits(self, problem: Problem, configuration: Configuration) -> bool:
            return problem.sizes["n"] % 2 == 0

    device, seen = Even(), list[int]()
    device.edge_case = lambda p, c: seen.append(p.sizes["n"]) or good(1000.0)  # type: ignore[func-returns-value]
    ended = finish(device, [trial(0, 100.0)])
    assert ended is not None and ended.exportable
    assert len(set(seen)) == len(seen) == VERIFIED_PROBLEMS and not any(n % 2 for n in seen)
    assert {992, 1008} <= set(seen), "a vector off the own size"
    assert sum(125 <= n < 992 for n in seen) >= 2


@pytest.mark.parametrize(("odd", "confirmed"), [(0, True), (2, True), (3, False)])
def test_one_fresh_process_of_three_must_agree(odd: int, confirmed: bool) -> None:
    device = Track()
    turns = iter(range(100))
    device.confirmed = lambda c, t: good(device.time(c) * (0.94 if next(turns) < odd else 1.0))
    ended = finish(device, [trial(0, 1000.0)])
    assert ended is not None
    assert ended.exportable is confirmed
    assert next(turns) == min(odd + 1, 3)


@pytest.mark.parametrize(
    "status", [Status.WRONG_RESULT, Status.MEMORY_FAULT, Status.HANG, Status.WORKER_DIED]
)
def test_winner_that_fails_in_a_fresh_process(status: Status) -> None:
    device = Track()
    device.confirmed = lambda c, t: Measurement(status, error="oh")
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert ended is not None
    assert not ended.exportable
    assert str(status) in ended.reason


@pytest.mark.parametrize("status", [Status.WORKER_DIED, Status.UNSTABLE])
def test_without_a_fresh_process_no_trial_is_rejected(status: Status) -> None:
    """As on a GPU in exclusive-process mode, or without memory: the next best would not be confirmed either."""
    device = Track()
    confirmed: list[Configuration] = []

    def refused(configuration: Configuration, time_ns: float) -> Measurement:
        confirmed.append(configuration)
        return Measurement(status, error="the device is busy")

    device.confirmed = refused
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert rejected == []
    assert numbers(confirmed) == [0, 0]
    assert len(device.races) == 1
    assert ended is not None
    assert (ended.winner.number, ended.exportable) == (0, False)
    assert ended.reason == f"in a fresh process: {status}: the device is busy"


def test_without_a_process_for_other_sizes_no_trial_is_rejected() -> None:
    device = Track()
    device.edge_case = lambda p, c: (
        good(1.0) if p.sizes["n"] == 1 else Measurement(Status.UNVERIFIED, error="the device is busy")
    )
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert rejected == []
    assert len(device.races) == 1
    assert ended is not None
    assert (ended.winner.number, ended.exportable) == (0, False)
    assert "unverified: the device is busy" in ended.reason


def test_a_wrong_result_at_one_size_rejects_although_another_size_could_not_be_verified() -> None:
    device = Track()

    def edge_case(problem: Problem, configuration: Configuration) -> Measurement:
        if configuration.values["number"] == 1:
            return good(1.0)
        alone = problem.sizes["n"] == 1
        return Measurement(Status.UNVERIFIED if alone else Status.WRONG_RESULT, error="oh")

    device.edge_case = edge_case
    ended, rejected = finish_and_rejected(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert ended is not None
    assert (ended.winner.number, ended.exportable) == (1, True)
    ((_, reason),) = rejected
    assert "wrong_result: oh" in reason


def test_winner_that_is_wrong_at_other_sizes() -> None:
    device = Track()
    device.edge_case = lambda p, c: (
        Measurement(Status.WRONG_RESULT, error="y[0] is 2")
        if c.values["number"] == 0 and p.sizes["n"] == 1
        else good(1.0)
    )
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)])
    assert ended is not None
    assert ended.winner.number == 1
    assert ended.exportable
    assert "n=1 " in ended.unstable[0][1]


def test_default_that_wins_and_is_rejected_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default always races for comparison, but once rejected it cannot win again."""
    device = Track()
    device.edge_case = lambda p, c: (
        Measurement(Status.WRONG_RESULT, error="no") if c.values["number"] == 0 else good(1.0)
    )
    default = trial(0, 1000.0)
    ended = finish(device, [default, trial(1, 1010.0), trial(2, 1020.0)], default)
    assert ended is not None
    assert ended.winner.number == 1
    assert ended.exportable
    assert len(device.races) < 10


def test_all_are_rejected() -> None:
    device = Track()
    device.edge_case = lambda p, c: Measurement(Status.WRONG_RESULT, error="no")
    default = trial(0, 1000.0)
    ended = finish(device, [default, *(trial(i, 1000.0 + i) for i in range(1, 6))], default)
    assert ended is not None
    assert not ended.exportable
    assert "wrong_result" in ended.reason


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


def test_a_clearly_slower_trial_leaves_after_the_first_heat() -> None:
    """The default, too: its ratio rests on the rounds that it ran."""
    device = Track(noise=5e-3)
    default = trial(9, 30000.0)
    ended = finish(device, [default, trial(0, 1000.0), trial(1, 1002.0), trial(2, 1090.0)], default)
    assert set(numbers(device.races[0])) == {0, 1, 2, 9}
    assert set(numbers(device.races[1])) == {0, 1}
    assert len(set(device.shuffles)) == len(device.races), "each heat has an order of its own"
    assert ended is not None
    assert ended.ratio is not None
    assert ended.ratio.median == pytest.approx(30.0, rel=0.01)
    assert ended.verdict is Verdict.FASTER
    assert (ended.heats, ended.rounds) == (len(device.races), sum(HEATS[: len(device.races)]))
    assert {int(configuration.values["number"]) for configuration, _ in ended.medians_ns} == {0, 1, 2, 9}


# -- what the database knew


def test_incumbent_races_however_slow_and_is_compared() -> None:
    device = Track()
    before = trial(3, 1300.0)
    ended = finish(device, [trial(0, 1000.0), before], None, incumbent=before)
    assert ended is not None
    assert set(numbers(device.races[0])) == {0, 3}
    assert ended.incumbent is before
    assert ended.incumbent_ns == pytest.approx(1.3e6)
    assert ended.versus_incumbent is not None
    assert ended.versus_incumbent.median == pytest.approx(1.3)
    assert ended.incumbent_verdict is Verdict.FASTER


def test_incumbent_that_wins_is_the_same_as_itself() -> None:
    before = trial(0, 1000.0)
    ended = finish(Track(), [before, trial(1, 1050.0)], None, incumbent=before)
    assert ended is not None
    assert ended.winner is before
    assert ended.incumbent_verdict is Verdict.SAME


@pytest.mark.parametrize("status", [Status.INACCURATE, Status.HANG])
def test_incumbent_that_fails_today_does_not_race(status: Status) -> None:
    device = Track()
    ended = finish(device, [trial(0, 1000.0)], None, incumbent=trial(3, 900.0, status))
    assert ended is not None
    assert numbers(device.races[0]) == [0]
    assert ended.versus_incumbent is None


def test_default_that_is_the_incumbent_races_once() -> None:
    device = Track()
    default = trial(3, 1300.0)
    finish(device, [trial(0, 1000.0), default], default, incumbent=default)
    assert sorted(numbers(device.races[0])) == [0, 3]


# -- suspect and imprecise times


def test_suspect_times_are_no_finalists() -> None:
    lucky = replace(trial(0, 900.0), tags=("power_cap", "suspect"))
    again = replace(lucky, number=7, time_ns=1050e3, tags=())
    assert finalists([lucky, trial(1, 1000.0), again]) == [trial(1, 1000.0), again]
    assert finalists([lucky]) == []


def test_one_finalist_for_each_configuration() -> None:
    first = trial(0, 1000.0)
    assert finalists([replace(first, number=5, time_ns=1010e3), first]) == [first]


def test_short_kernels_may_be_further_apart() -> None:
    """Events do not resolve 10 % of a microsecond."""
    trials = [trial(0, 2.0), trial(1, 2.4), trial(2, 2.6)]
    assert numbers([t.configuration for t in finalists(trials, 500.0)]) == [0, 1]
    assert finalists(trials) == trials[:1]


@pytest.mark.parametrize(
    ("factor", "mode", "us", "confirmed"),
    [
        (1.019, Mode.COLD, 1000.0, True),
        (1.021, Mode.COLD, 1000.0, False),
        (0.979, Mode.COLD, 1000.0, False),
        (1.03, Mode.COLD, 25.0, False),
        (1.2, Mode.COLD, 2.0, True),  # half a microsecond is what events resolve
        (1.2, Mode.ROTATING, 2.0, False),  # but not where many calls share them
        (1.04, Mode.ROTATING, 2.0, True),
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
    assert ended is not None
    assert ended.exportable is confirmed


def test_winner_that_is_too_inaccurate_on_other_inputs() -> None:
    device = Track()
    device.confirmed = lambda c, t: replace(
        good(device.time(c)),
        verification=Verification(True, true_error=2e-3 if numbers([c]) == [0] else 1e-3),
    )
    ended = finish(device, [trial(0, 1000.0), trial(1, 1020.0)], None, max_error=1.5e-3)
    assert ended is not None
    assert ended.winner.number == 1
    assert ended.exportable
    assert "its error is 0.002, above 0.0015" in ended.unstable[0][1]


# -- how much the device measures


@pytest.mark.parametrize(("us", "samples"), [(5.0, 8), (600.0, 8), (1000.0, 5), (20000.0, 3)])
def test_long_kernels_get_fewer_samples_a_round(us: float, samples: int) -> None:
    class Counting(Track):
        samples = 0

        def race(self, request: RaceRequest) -> RaceRound:
            self.samples = request.samples
            return super().race(request)

    device = Counting()
    finish(device, [trial(0, us)])
    assert device.samples == samples


def test_recorded_samples_are_drawn_in_one_heat() -> None:
    device = Track(truth={0: 1000.0, 1: 1001.0}, noise=5e-3)
    device.recorded = True
    ended = finish(device, [trial(0, 1000.0), trial(1, 1001.0)])
    assert ended is not None
    assert (len(device.races), ended.rounds) == (1, 16)
    assert ended.confirmed is None
