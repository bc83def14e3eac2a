"""The race of a run's finalists: which wins, and what becomes of those that fail."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.tuning.finishes import MARGIN, Track, finish, numbers, trial
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.stats import Verdict
from tuner.devices.base import RaceRequest
from tuner.tuning.decision import Preference, choose
from tuner.tuning.elimination import HEATS, Groups, Standing, eliminate
from tuner.tuning.finalists import FINALISTS

# -- the winner


def test_race_overrules_the_search() -> None:
    device = Track(truth={0: 1050.0, 1: 1000.0})
    ended = finish(device, [trial(0, 990.0), trial(1, 1010.0)])
    assert ended.winner.number == 1
    assert ended.time_ns == pytest.approx(1e6)


def by_number(*numbers: int) -> Preference:
    """Prefer these, in this order: each has to be faster by one margin more than the one before it."""
    return lambda c: (numbers.index(n) if (n := int(c.values["number"])) in numbers else len(numbers),)


def test_the_preferred_of_the_equal_wins() -> None:
    device = Track(truth={0: 1000.0, 1: 1000.4, 2: 1000.2}, noise=1e-4)
    trials = [trial(0, 1000.0), trial(1, 1001.0), trial(2, 1001.0)]
    ended = finish(device, trials, prefer=by_number(1, 2, 0))
    assert (ended.winner.number, ended.tied) == (1, 3)
    assert finish(device, trials).winner.number == 0


@pytest.mark.parametrize(("slower", "winner"), [(0.003, 1), (0.007, 0)])
def test_the_preferred_wins_a_tie_and_nothing_else(slower: float, winner: int) -> None:
    """The noise floor is 0.5 %."""
    device = Track(truth={0: 1000.0, 1: 1000.0 * (1 + slower)}, noise=1e-4)
    ended = finish(device, [trial(0, 1000.0), trial(1, 1001.0)], prefer=by_number(1, 0))
    assert ended.winner.number == winner
    assert ended.race_verdict is (Verdict.SAME if winner else Verdict.FASTER)
    assert ended.behind == pytest.approx(1 + slower if winner else 1.0, abs=5e-4)


def raced(draw: random.Random, times: Sequence[float], noise: float, floor: float) -> Standing:
    """Race kernels, whose times a load moves by half of the noise floor."""
    loaded = [time * (1 + draw.gauss(0, floor / 2)) for time in times]

    def measure(left: Sequence[int], rounds: int, _: int) -> Mapping[int, Groups]:
        return {i: [[loaded[i] * (1 + draw.gauss(0, noise))] * 3 for _ in range(rounds)] for i in left}

    return eliminate(len(times), measure, floor, heats=(12, 24))


@pytest.mark.parametrize("modes", [1, 2])
def test_no_finalist_is_faster_than_the_winner_beyond_the_noise(modes: int) -> None:
    """Whatever is preferred, however close they are, and however much it is worth in a mode."""
    not_the_fastest = 0
    for seed in range(30):
        draw = random.Random(seed)
        spread, floor = draw.choice([0.001, 0.005, 0.02]), draw.choice([0.0, 0.002, 0.01])
        noise = draw.choice([1e-4, 2e-3, 1e-2])
        times = [[100 * (1 + abs(draw.gauss(0, spread))) for _ in range(6)] for _ in range(modes)]
        standings = [raced(draw, in_mode, noise, floor) for in_mode in times]
        order = draw.sample(range(6), 6)
        trials = [trial(i, 100.0) for i in range(6)]
        winner = choose(trials, standings, by_number(*order))
        if modes == 1:
            assert all(standings[0].compare(winner, i) is not Verdict.SLOWER for i in range(6) if i != winner)
        ratios = [[standing.ratio(winner, i) for standing in standings] for i in range(6)]
        for ratio in ratios:
            assert math.prod(one.median for one in ratio) ** (1 / modes) <= 1 + floor or any(
                one.low <= 1 for one in ratio
            )
        means = [math.prod(in_mode[i] for in_mode in times) ** (1 / modes) for i in range(6)]
        assert means[winner] <= min(means) * (1 + 3 * floor + noise), seed
        not_the_fastest += means[winner] > min(means)
    assert not_the_fastest > 5, "ties are settled by preference"


@pytest.mark.parametrize(("slower", "winner"), [(0.006, 1), (0.009, 0)])
def test_with_a_margin_a_preferred_one_wins_that_is_surely_slower(slower: float, winner: int) -> None:
    """Another run may not have seen the faster one; the margin is 0.75 %, or the noise floor where that is higher."""
    device = Track(truth={0: 1000.0, 1: 1000.0 * (1 + slower)}, noise=1e-4)
    trials = [trial(0, 1000.0), trial(1, 1001.0)]
    ended = finish(device, trials, prefer=by_number(1, 0), margin=MARGIN)
    assert ended.winner.number == winner
    assert ended.behind == pytest.approx(1 + slower if winner else 1.0, abs=5e-4)
    device.calibration = Calibration({str(Conditions()): 0.01})
    ended = finish(device, trials, prefer=by_number(1, 0), margin=MARGIN)
    assert ended.winner.number == 1
    device.calibration = Calibration({str(Conditions()): 0.0})
    ended = finish(device, trials, prefer=by_number(1, 0), margin=MARGIN)
    assert ended.winner.number == 0, "without a noise floor only the time counts"


def test_with_a_margin_a_third_contestant_changes_nothing_between_two() -> None:
    """Without it, and with one that is faster, but has to be faster by more."""
    truth = {0: 1000.0, 1: 1003.0}
    for times in (truth, {**truth, 2: 998.0}):
        device = Track(truth=times, noise=1e-4)
        ended = finish(
            device, [trial(i, time) for i, time in times.items()], prefer=by_number(1, 0), margin=MARGIN
        )
        assert ended.winner.number == 1


def test_what_was_eliminated_does_not_win_by_the_few_rounds_that_it_had_with_the_fastest() -> None:
    """In the first heat 2 is slower than 0, and as fast as 1, whose times vary; later 1 is the fastest."""

    def measure(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        varying = [99.0] * rounds if heat else [99.5, 101.5] * (rounds // 2)
        times = {0: [100.0] * rounds, 1: varying, 2: [100.6] * rounds}
        return {i: [[time] for time in times[i]] for i in left}

    standing = eliminate(3, measure, 0.002, heats=(12, 24))
    assert standing.left == (1,)
    assert standing.ratio(2, 1).median < 1.002 and standing.compare(2, 0) is Verdict.SLOWER
    assert choose([trial(i, 100.0) for i in range(3)], [standing], by_number(2, 0, 1)) == 1


def test_with_a_margin_a_preference_decides_on_ties_and_on_little_more() -> None:
    """Both have to gain as much, and are as fast; however much one is preferred, it may not be much slower."""
    for slower_us, prefer, winner in (
        (0.0, lambda c: (1.0, c.values["number"] != 1), 1),
        (28.0, lambda c: (20 * (1 - int(c.values["number"])),), 1),
        (32.0, lambda c: (20 * (1 - int(c.values["number"])),), 0),
    ):
        device = Track(truth={0: 1000.0, 1: 1000.0 + slower_us}, noise=1e-4 if slower_us else 0.0)
        ended = finish(device, [trial(0, 1000.0), trial(1, 1001.0)], prefer=prefer, margin=MARGIN)
        assert ended.winner.number == winner


@pytest.mark.parametrize("floors", [(0.002, 0.02), (0.02, 0.002), (0.002, 0.002)])
def test_with_a_margin_of_two_modes_the_larger_noise_counts(floors: tuple[float, float]) -> None:
    draw = random.Random(0)
    standings = [replace(raced(draw, [100.0, 101.0], 1e-5, 1e-9), noise_floor=floor) for floor in floors]
    winner = choose([trial(0, 100.0), trial(1, 101.0)], standings, by_number(1, 0), margin=0.003)
    assert winner == (1 if max(floors) > 0.01 else 0)


def test_what_another_run_would_choose_races_behind_eight_that_are_faster() -> None:
    device = Track()
    trials = [trial(i, 1000.0 + i / 10) for i in range(20)]
    named = {"initial": [trials[12].configuration], "known_winners": [trials[13].configuration]}
    finish(device, trials, prefer=by_number(15), margin=MARGIN, **named)
    raced = set(numbers(device.races[0]))
    assert {*range(FINALISTS), 12, 13, 15} <= raced
    assert 19 not in raced
    finish(device, trials, prefer=by_number(15), **named)
    assert set(numbers(device.races[-1])) == {*range(FINALISTS), 12, 13}, (
        "without a margin only what is known"
    )
    slow = trial(30, 1100.0)
    finish(device, [*trials, slow], known_winners=[slow.configuration])
    assert 30 not in numbers(device.races[-1]), "it could not be chosen"


@pytest.mark.parametrize(
    ("launch_us", "default_us", "winner"),
    [(1.0, 1.555, 0), (1.0, 1.56, 1), (0.0, 1.57, 1)],
)
def test_where_the_launch_decides_the_default_wins_if_it_loses_no_more_than_half_a_percent(
    launch_us: float, default_us: float, winner: int
) -> None:
    device = Track(noise=1e-4)
    device.conditions = Conditions(Mode.ROTATING)
    device.calibration = Calibration({}, {}, launch_ns={"rotating": launch_us * 1e3})
    default = trial(0, default_us)
    ended = finish(device, [default, trial(1, 1.55)], default, prefer=by_number(0))
    assert ended.winner.number == winner


@pytest.mark.parametrize(
    ("factor", "wanted"), [(1.0005, Verdict.SAME), (1.02, Verdict.FASTER), (1.0, Verdict.SAME)]
)
def test_no_speed_up_below_the_noise_is_claimed(factor: float, wanted: Verdict) -> None:
    default = trial(0, 1000.0 * factor)
    ended = finish(Track(noise=5e-4), [default, trial(1, 1000.0)], default)
    assert ended.winner.number == 1
    assert ended.verdict is wanted


# -- rejected trials


def test_contestant_that_fails_drops_out() -> None:
    device = Track()
    device.fail_in_race = lambda contestants: next(
        (i for i, c in enumerate(device.races[-1]) if c.values["number"] == 0), None
    )
    ended = finish(device, [trial(0, 1000.0), trial(1, 1010.0)])
    assert ended.winner.number == 1
    assert [(t.number, reason) for t, reason in ended.unstable] == [(0, "it failed in the race")]


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
    assert ended.winner.number == 1
    assert [t.number for t, _ in ended.unstable] == [0]


def test_a_clearly_slower_trial_leaves_after_the_first_heat() -> None:
    """The default, too: its ratio rests on the rounds that it ran."""
    device = Track(noise=5e-3)
    default = trial(9, 30000.0)
    ended = finish(device, [default, trial(0, 1000.0), trial(1, 1002.0), trial(2, 1090.0)], default)
    assert set(numbers(device.races[0])) == {0, 1, 2, 9}
    assert set(numbers(device.races[1])) == {0, 1}
    assert len(set(device.shuffles)) == len(device.races), "each heat has an order of its own"
    assert ended.ratio is not None
    assert ended.ratio.median == pytest.approx(30.0, rel=0.01)
    assert ended.verdict is Verdict.FASTER
    assert (ended.heats, ended.rounds) == (len(device.races), sum(HEATS[: len(device.races)]))
    assert {int(configuration.values["number"]) for configuration, _ in ended.medians_ns} == {0, 1, 2, 9}


# -- how much the device measures


@pytest.mark.parametrize(("us", "samples"), [(5.0, 8), (600.0, 8), (1000.0, 5), (20000.0, 3)])
def test_long_kernels_get_fewer_samples_a_round(us: float, samples: int) -> None:
    class Counting(Track):
        samples = 0

        def _race(self, request: RaceRequest) -> Raced | RaceFailed:
            self.samples = request.samples
            return super()._race(request)

    device = Counting()
    finish(device, [trial(0, us)])
    assert device.samples == samples


def test_recorded_samples_are_drawn_in_one_heat() -> None:
    device = Track(truth={0: 1000.0, 1: 1001.0}, noise=5e-3)
    device.recorded = True
    ended = finish(device, [trial(0, 1000.0), trial(1, 1001.0)])
    assert (len(device.races), ended.rounds) == (1, 16)
    assert ended.confirmed is None
