"""Elimination, and the end of a race: by simulation, equal kernels stay together and different ones do not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import pytest

from tests.sessions import plain
from tuner.core.model import Configuration, Status, Trial
from tuner.core.stats import UNDECIDED, Verdict, fewest_samples
from tuner.tuning.decision import choose, undecided
from tuner.tuning.elimination import HEATS, Groups, Measure, Standing, eliminate

NOISE, OFFSET, DRIFT = 0.002, 0.0005, 0.001
"""Standard deviations of a group's median, of the systematic difference between two copies of a kernel, and of what the
clock does from one round to the next, which all contestants share."""
FLOOR = 0.002


class Track:
    """Contestants with known times; remembers which ran how many rounds."""

    def __init__(self, times: Sequence[float], seed: int = 0, noise: float = NOISE, offset: float = OFFSET):
        self.draw = np.random.default_rng(seed)
        self.times = np.array(times) * (1 + self.draw.normal(0, offset / np.sqrt(2), len(times)))
        self.noise = noise
        self.clock = 1.0
        self.heats: list[tuple[list[int], int]] = []

    def __call__(self, left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        assert heat == len(self.heats)
        self.heats.append((sorted(left), rounds))
        samples: dict[int, list[list[float]]] = {i: [] for i in left}
        for _ in range(rounds):
            self.clock *= 1 + self.draw.normal(0, DRIFT)
            for i in left:
                samples[i].append([self.times[i] * self.clock * (1 + self.draw.normal(0, self.noise))])
        return samples


def race(times: Sequence[float], seed: int = 0, **changes: float) -> Standing:
    return eliminate(len(times), Track(times, seed, **changes), FLOOR)


# -- what comes out, by simulation


def test_equal_kernels_are_seldom_called_different() -> None:
    """At most 2 %, and two standard deviations, although all are compared after each heat."""
    standings = [race([1.0, 1.0], seed) for seed in range(100)]
    assert sum(len(standing.left) < 2 for standing in standings) <= 4
    assert sum(standing.verdict is Verdict.SAME for standing in standings) >= 84


@pytest.mark.parametrize(("factor", "times", "fewest"), [(1.01, 50, 49), (1.005, 50, 45)])
def test_slower_twin_is_told_and_never_wins(factor: float, times: int, fewest: int) -> None:
    verdicts = []
    for seed in range(times):
        standing = race([1.0, factor] if seed % 2 else [factor, 1.0], seed)
        slow = 1 if seed % 2 else 0
        verdicts.append(standing.compare(slow, 1 - slow))
        assert standing.left[0] != slow
    assert verdicts.count(Verdict.SLOWER) >= fewest
    assert Verdict.FASTER not in verdicts


def test_no_crowd_hides_or_invents_a_difference() -> None:
    """Eight finalists: seven equal ones stay, but for one in a hundred; the eighth, 0.5 % slower, goes."""
    standings = [race([1.0] * 7 + [1.005], seed) for seed in range(6)]
    assert all(7 not in standing.left for standing in standings)
    assert sum(7 - len(standing.left) for standing in standings) <= 2


def test_a_leader_chosen_from_the_samples_eliminates_few_equals() -> None:
    """The leader by luck is compared with the others: each of equals drops out in at most 2.5 % of races."""
    races, count, dropped = 15, 6, 0
    for seed in range(races):
        standing = eliminate(count, Track([1.0] * count, seed, offset=0.0), 0.0)
        dropped += count - len(standing.left)
        assert standing.verdict is not Verdict.FASTER
    assert dropped <= 5  # 2.5 % of 90, and two standard deviations


# -- how long each runs


def constant(times: Sequence[float]) -> Callable[[Sequence[int], int, int], Mapping[int, Groups]]:
    return lambda left, rounds, heat: {i: [[times[i]] * 3 for _ in range(rounds)] for i in left}


def test_clear_case_ends_after_the_first_heat() -> None:
    track = Track([1.0, 1.05, 1.1])
    standing = eliminate(3, track, FLOOR)
    assert track.heats == [([0, 1, 2], HEATS[0])]
    assert standing.left == (0,)
    assert standing.verdict is Verdict.FASTER
    assert (standing.heats, standing.rounds) == (1, HEATS[0])


def test_a_surely_slower_one_leaves_and_the_others_go_on() -> None:
    track = Track([1.0, 1.0005, 1.05])
    standing = eliminate(3, track, 0.0005)
    assert [ran for ran, _ in track.heats] == [[0, 1, 2], [0, 1], [0, 1]]
    assert [rounds for _, rounds in track.heats] == list(HEATS)
    assert len(standing.groups[0]) == sum(HEATS)
    assert len(standing.groups[2]) == HEATS[0]
    assert standing.verdict is Verdict.AMBIGUOUS
    assert standing.tied_with(standing.left[0]) == [standing.left[1]]


def test_equal_ones_end_as_a_tie() -> None:
    standing = eliminate(3, constant([1.0, 1.0004, 0.9998]), FLOOR)
    assert standing.heats == 1
    assert standing.verdict is Verdict.SAME
    assert standing.left == (2, 0, 1)
    assert standing.tied_with(2) == [0, 1]


def test_one_that_is_undecided_keeps_equal_ones_racing() -> None:
    def measure(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        return {i: [[1.0 + (i == 2) * (-1) ** turn * 0.1] for turn in range(rounds)] for i in left}

    standing = eliminate(3, measure, FLOOR)
    assert (standing.compare(1, 0), standing.compare(2, 0)) == (Verdict.SAME, Verdict.AMBIGUOUS)
    assert (standing.verdict, standing.heats) == (Verdict.AMBIGUOUS, len(HEATS))


@pytest.mark.parametrize(
    ("slower", "heats", "expected"),
    [
        ([0.003, 0.0, 0.0], 3, Verdict.SAME),  # one load was off: no other heat repeats it
        ([0.003, 0.001], 2, Verdict.AMBIGUOUS),
        ([-0.003, 0.001, 0.003], 3, Verdict.AMBIGUOUS),  # nor does the first say the contrary
        ([0.003], 1, Verdict.AMBIGUOUS),
        ([0.003, 0.003], 2, Verdict.SLOWER),
        ([0.004, 0.001, 0.003], 3, Verdict.SLOWER),
        ([0.006], 1, Verdict.SLOWER),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_difference_must_be_seen_in_two_heats(
    slower: Sequence[float], heats: int, expected: Verdict, sign: int
) -> None:
    """Each heat loads the kernels anew, and one load in a thousand is off by a little more than the noise floor."""

    def measure(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        return {i: [[1.0 + i * sign * slower[heat]]] * rounds for i in left}

    standing = eliminate(2, measure, FLOOR, heats=HEATS[: len(slower)])
    if expected is Verdict.SLOWER and sign < 0:
        expected = Verdict.FASTER
    assert (standing.compare(1, 0), standing.heats) == (expected, heats)
    assert (len(standing.left) == 2) == (expected in UNDECIDED)


def test_one_contestant_is_timed_all_the_same() -> None:
    standing = eliminate(1, constant([7.0]), FLOOR)
    assert (standing.left, standing.heats, standing.time_ns(0)) == ((0,), 1, 7.0)
    assert standing.verdict is Verdict.FASTER
    assert standing.ratio(0, 0).high == 1.0


def test_first_heat_can_decide_among_nine() -> None:
    """Its rounds are enough for the confidence that so many comparisons ask for."""
    for count in range(1, 11):
        each = eliminate(count, constant([1.0] * count), FLOOR).confidence
        assert fewest_samples(each) <= HEATS[0]
    assert eliminate(1, constant([1.0]), FLOOR, heats=(4,)).confidence == pytest.approx(0.95)
    assert eliminate(9, constant([1.0] * 9), FLOOR).confidence == pytest.approx(1 - 0.05 / 24)


def test_ratios_rest_on_shared_rounds_only() -> None:
    """A contestant that left early is compared within the rounds that it ran, whatever the clock did later."""

    def slowing(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        draw = np.random.default_rng(heat)
        times = [1.0, 1.0, 1.3]
        return {
            i: [[times[i] * (1 + heat) * (1 + draw.normal(0, 0.01))] for _ in range(rounds)] for i in left
        }

    standing = eliminate(3, slowing, 0.0001)
    assert standing.heats == 3
    assert standing.ratio(2, 0).median == pytest.approx(1.3, rel=0.02)


# -- what goes wrong


def failing(measure: Measure, failed: int, heat: int) -> Measure:
    def instead(left: Sequence[int], rounds: int, number: int) -> Mapping[int, Groups]:
        samples = measure(left, rounds, number)
        return {i: groups for i, groups in samples.items() if number < heat or i != failed}

    return instead


@pytest.mark.parametrize("heat", [0, 1])
def test_a_failed_one_is_out(heat: int) -> None:
    standing = eliminate(3, failing(Track([1.0, 1.0002, 1.0001]), 0, heat), 0.0001)
    assert set(standing.left) == {1, 2}
    assert set(standing.groups) == {1, 2}


def test_all_fail() -> None:
    standing = eliminate(2, lambda left, rounds, heat: {}, FLOOR)
    assert standing.left == ()
    assert standing.groups == {}


# -- how long it may take


@pytest.mark.parametrize(
    ("group_s", "heats"),
    [
        (0.001, [12, 24, 48]),  # all there is time for: 84 rounds of two
        (0.05, [12, 24, 13]),  # the last heat is shortened to what is left of 5 s
        (0.07, [12, 23]),
        (0.16, [12]),  # three more rounds would not change much
        (9.0, [12]),  # the first heat is never shortened
    ],
)
def test_time_is_kept_to(group_s: float, heats: list[int]) -> None:
    track = Track([1.0, 1.0])
    now = [0.0]

    def measure(left: Sequence[int], rounds: int, heat: int) -> Mapping[int, Groups]:
        now[0] += group_s * rounds * len(left)
        return track(left, rounds, heat)

    standing = eliminate(2, measure, 1e-6, clock=lambda: now[0])
    ran = [rounds for _, rounds in track.heats]
    assert [abs(a - b) <= 1 for a, b in zip(ran, heats, strict=True)] == [True] * len(heats)
    assert standing.seconds == pytest.approx(now[0])
    assert standing.seconds <= 5.0 or len(heats) == 1


@pytest.mark.parametrize(("simplest", "went_on"), [(0, []), (2, [0, 2])])
def test_only_those_go_on_that_may_still_win(simplest: int, went_on: list[int]) -> None:
    """The third is slower by about the noise floor, which rounds can hardly tell: that matters if it is simpler."""
    times, trials = [1.0, 1.0003, 1.0016], [Trial(i, plain(32 * i), Status.OK, 1.0) for i in range(3)]
    tracks = [Track(times, 3, noise=0.0012, offset=0.0) for _ in range(2)]

    def prefer(configuration: Configuration) -> tuple[float, int]:
        return (0.0, int(configuration.values["block_size"] != 32 * simplest))

    def may_win(standing: Standing) -> Collection[int]:
        return undecided(trials, standing, prefer)

    ended, whole = eliminate(3, tracks[0], FLOOR, undecided=may_win), eliminate(3, tracks[1], FLOOR)
    assert [left for left, _ in tracks[0].heats[2:]] == [went_on] * bool(went_on)
    assert [left for left, _ in tracks[1].heats[2:]] == [[0, 1, 2]]
    assert {0, 1} <= set(ended.left)
    assert choose(trials, [ended], prefer) == choose(trials, [whole], prefer)
