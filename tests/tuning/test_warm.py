"""Which of a short problem's finalists win in the run's mode and warm, back to back; what is timed warm for that."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.stub_device import StubDevice, good
from tests.tuning.finishes import KERNEL, PROBLEM
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Problem, Resources, RunOptions, Status, Trial
from tuner.core.stats import Verdict
from tuner.devices.base import RaceRequest
from tuner.tuning.finalists import FINALISTS, TIMED_WARM, time_warm, warm_matters
from tuner.tuning.race import FinalRace
from tuner.tuning.state import Finish


def trial(number: int, us: float, variant: str = "plain") -> Trial:
    configuration = Configuration.of(variant, {"number": number})
    return Trial(number, configuration, Status.OK, us * 1e3, resources=Resources(32 + number))


class TwoModes(StubDevice):
    """A device on which configurations take given times, in us, in its own mode and warm.

    Args:
        times: by number, in its mode and warm.
        noise: standard deviation of a sample, relative.
    """

    def __init__(self, times: dict[int, tuple[float, float]], noise: float = 1e-4) -> None:
        super().__init__()
        self.times, self.race_noise = times, noise
        self.modes: list[Mode | None] = []
        self.warm_races: list[list[int]] = []
        self.conditions = Conditions(Mode.ROTATING)
        self.confirmed = lambda c, time_ns: good(self.raced_ns(c, None))

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        return self.times[number_of(configuration)][mode is Mode.WARM] * 1e3

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        self.modes.append(request.mode)
        warm = request.mode is Mode.WARM
        if warm:
            self.warm_races.append([number_of(one) for one in request.configurations])
        return super()._race(replace(request, seed=request.seed + warm))


def number_of(configuration: Configuration) -> int:
    return int(configuration.values["number"])


def finish(
    device: TwoModes, trials: list[Trial] | None = None, rejected: list[str] | None = None, **changes: Any
) -> Finish:
    if trials is None:
        trials = [trial(number, times[0]) for number, times in device.times.items()]

    def reject(trial: Trial, reason: str, status: Status) -> None:
        if rejected is not None:
            rejected.append(f"{trial.number}: {reason}")

    changes = {"warm": True, **changes}
    ended = FinalRace(
        device, KERNEL, PROBLEM, changes.pop("default", None), lambda what: None, reject, **changes
    ).run(trials)
    assert ended is not None
    return ended


# -- the choice


def test_the_fastest_in_the_runs_mode_stays_where_it_is_as_fast_warm() -> None:
    ended = finish(TwoModes({0: (10.0, 8.0), 1: (10.5, 8.0), 2: (10.2, 8.3)}))
    assert ended.winner.number == 0
    assert ended.race_verdict is Verdict.FASTER
    assert ended.warm is not None and ended.warm.passed_over is None
    assert ended.warm.time_ns == pytest.approx(8e3, rel=1e-3)
    assert ended.warm.behind == pytest.approx(1.0, abs=2e-3)


def test_the_winner_is_the_one_with_the_least_mean_of_both_modes() -> None:
    """0 loses 12 % warm, 1 is the best warm and loses 9 % otherwise; 2 loses 3 % in each."""
    ended = finish(TwoModes({0: (10.0, 9.0), 1: (10.9, 8.0), 2: (10.3, 8.24), 3: (10.4, 9.5)}))
    assert ended.winner.number == 2
    assert ended.time_ns == pytest.approx(10.3e3, rel=1e-3)
    assert ended.race_verdict is Verdict.SLOWER  # than the fastest in that mode, which is said
    assert ended.warm is not None and ended.warm.passed_over is not None
    assert ended.warm.passed_over.number == 0
    assert ended.warm.passed_over_behind == pytest.approx(1.125, rel=1e-2)
    assert (ended.warm.behind, ended.warm.behind_in_mode) == pytest.approx((1.03, 1.03), rel=1e-2)
    assert ended.tied == 1


def test_both_modes_count_the_same() -> None:
    assert finish(TwoModes({0: (10.0, 9.0), 1: (10.3, 8.0), 2: (10.6, 8.24)})).winner.number == 1
    assert finish(TwoModes({0: (10.0, 8.2), 1: (10.5, 8.0)})).winner.number == 0


def test_a_third_changes_nothing_between_two() -> None:
    """However much faster it is in one mode: from how far behind one counts is no matter."""
    two = {0: (10.0, 9.0), 1: (10.3, 8.9)}
    assert finish(TwoModes(two)).winner.number == 0
    assert finish(TwoModes({**two, 2: (12.4, 7.5)})).winner.number == 0


def test_the_best_of_both_races_where_it_leads_in_neither() -> None:
    extremes = {i: (10.0 + i / 100, 12.4) for i in range(4)} | {
        i: (12.4, 10.0 + i / 100) for i in range(4, 8)
    }
    assert finish(TwoModes({**extremes, 8: (11.1, 11.1)})).winner.number == 8


def test_a_preferred_one_has_to_be_equally_fast_in_both_modes() -> None:
    def prefer(configuration: Configuration) -> tuple[float]:
        return (float(number_of(configuration) != 1),)

    assert finish(TwoModes({0: (10.0, 8.0), 1: (10.2, 8.0)}), prefer=prefer).winner.number == 0
    assert finish(TwoModes({0: (10.0, 8.0), 1: (10.0, 8.2)}), prefer=prefer).winner.number == 0
    assert finish(TwoModes({0: (10.0, 8.0), 1: (10.03, 8.02)}), prefer=prefer).winner.number == 1


def test_a_difference_within_the_noise_of_the_samples_changes_nothing() -> None:
    ended = finish(TwoModes({0: (10.0, 8.04), 1: (10.3, 8.0)}, noise=0.03))
    assert ended.winner.number == 0


def test_one_that_is_no_finalist_by_the_search_alone_can_win() -> None:
    """Beyond the ten percent within which candidates race, and with eight others before it."""
    times = {number: (10.0 + 0.05 * number, 9.6) for number in range(12)}
    ended = finish(TwoModes({**times, 20: (11.2, 8.0)}))
    assert ended.winner.number == 20


def test_the_default_is_compared_in_both_modes() -> None:
    device = TwoModes({0: (20.0, 24.0), 1: (10.0, 8.0)})
    ended = finish(device, default=trial(0, 20.0))
    assert ended.ratio is not None and ended.ratio.median == pytest.approx(2.0, rel=1e-2)
    assert ended.warm is not None and ended.warm.ratio is not None
    assert ended.warm.ratio.median == pytest.approx(3.0, rel=1e-2)
    assert ended.warm.verdict is Verdict.FASTER
    assert 0 not in device.warm_races[0]  # so slow that it need not be timed to choose finalists


# -- what is timed warm


@pytest.mark.parametrize(
    ("changes", "matters"),
    [
        ({}, True),
        ({"conditions": Conditions(Mode.COLD)}, True),
        ({"best_ns": 99e3}, True),
        ({"best_ns": 101e3}, False),
        ({"recorded": True}, False),
        ({"options": RunOptions(one_mode=True)}, False),
        ({"options": RunOptions(max_error=1e-3)}, False),
        ({"conditions": Conditions(Mode.WARM)}, False),
        ({"conditions": Conditions(Mode.ROTATING, Regime.SUSTAINED)}, False),
    ],
)
def test_which_problems_are_timed_warm_as_well(changes: dict[str, Any], matters: bool) -> None:
    device = TwoModes({})
    device.recorded = changes.get("recorded", False)
    dtypes = {"input": "float32", "output": "float32"}
    problem = Problem("scale", {"n": changes.get("n", 1000)}, dtypes)
    run = SimpleNamespace(
        problem=problem,
        options=changes.get("options", RunOptions()),
        conditions=changes.get("conditions", device.conditions),
    )
    best_ns = changes.get("best_ns", 10e3)
    assert warm_matters(run, device, best_ns) is matters  # type: ignore[arg-type]


def test_few_are_timed_warm_and_fewer_race() -> None:
    """The fastest, two of each variant, and what was tried first; the fastest of each mode is among the last."""
    device = TwoModes({number: (10.0 + 0.02 * number, 9.0 - 0.001 * number) for number in range(60)})
    trials = [trial(number, times[0]) for number, times in device.times.items()]
    for number in (40, 42, 44):
        trials[number] = trial(number, device.times[number][0], "other")
    finish(device, trials, initial={trials[50].configuration})
    assert sorted(device.warm_races[0]) == [*range(TIMED_WARM), 40, 42, 50]
    raced = set(numbers(device.races[1]))
    assert {0, 50} <= raced
    assert len(raced) <= FINALISTS + 2
    assert device.modes[:3] == [Mode.WARM, None, None] or device.modes[:3] == [Mode.WARM, None, Mode.WARM]


def test_what_disturbs_a_round_or_a_sample_of_each_changes_no_time_by_which_finalists_are_chosen() -> None:
    class Disturbed(TwoModes):
        def _race(self, request: RaceRequest) -> Raced | RaceFailed:
            raced = super()._race(request)
            assert isinstance(raced, Raced)
            whole, *others = raced.rounds
            slower = [[[2 * sample for sample in group] for group in whole]]
            return Raced(slower + [[[2 * first, *rest] for first, *rest in groups] for groups in others])

    device = Disturbed({0: (10.0, 8.0), 1: (10.1, 9.0)})
    trials = [trial(number, times[0]) for number, times in device.times.items()]
    found = time_warm(device, trials, seed=0)
    assert [found[one.configuration] for one in trials] == pytest.approx([8e3, 9e3], rel=1e-3)


def test_an_initial_configuration_races_if_it_is_near_the_best_in_both_modes_together() -> None:
    """Eight have a smaller mean, and it leads in neither mode; with cold data it is 5 % behind."""
    times = {number: (10.0 + 0.01 * number, 8.0) for number in range(8)} | {20: (10.5, 7.7), 30: (12.0, 7.6)}
    device = TwoModes(times)
    trials = [trial(number, both[0]) for number, both in times.items()]
    finish(device, trials, initial={trials[8].configuration})
    assert 20 in numbers(device.races[1])
    device = TwoModes(times)
    finish(device, trials)
    assert 20 not in numbers(device.races[1])


def test_of_a_hundred_the_winner_is_nearly_the_best_in_both_modes() -> None:
    """The search is off by a percent, samples by half a percent, and the ratio of both modes varies by 7 %."""
    behind = []
    for seed in range(8):
        draw = random.Random(seed)
        times = {}
        for number in range(100):
            us = 10 * (1 + abs(draw.gauss(0, 0.25)))
            times[number] = us, us * draw.gauss(0.85, 0.07)
        trials = [trial(number, us * (1 + draw.gauss(0, 0.01))) for number, (us, _) in times.items()]
        means = {number: (us * warm) ** 0.5 for number, (us, warm) in times.items()}
        winner = finish(TwoModes(times, noise=5e-3), trials).winner
        behind.append(means[winner.number] / min(means.values()))
    assert max(behind) < 1.02 and sum(behind) / len(behind) < 1.005, behind


def numbers(configurations: Sequence[Configuration]) -> list[int]:
    return [number_of(configuration) for configuration in configurations]


def test_one_that_fails_warm_is_rejected_if_it_is_a_finalist() -> None:
    """What cannot be called again and again is no winner, whatever its time with cold data."""
    device = TwoModes({0: (10.0, 8.0), 1: (10.2, 8.1)})
    device.fail_in_race = lambda contestants: next(
        (
            i
            for i, c in enumerate(device.races[-1])
            if number_of(c) == 0 and device.modes[-1] is Mode.WARM and len(device.modes) > 1
        ),
        None,
    )
    rejected: list[str] = []
    ended = finish(device, rejected=rejected)
    assert ended.winner.number == 1
    assert ended.warm is not None
    assert rejected == ["0: warm, back to back: it failed in the race"]


def test_one_that_fails_while_finalists_are_chosen_is_no_finalist_but_not_rejected() -> None:
    device = TwoModes({0: (10.0, 9.0), 1: (10.5, 8.0), 2: (10.1, 8.5)})
    device.fail_in_race = lambda contestants: (
        next((i for i, c in enumerate(device.races[-1]) if number_of(c) == 1), None)
        if device.modes[-1] is Mode.WARM and len(device.races) < 3
        else None
    )
    rejected: list[str] = []
    ended = finish(device, rejected=rejected)
    assert rejected == []
    assert ended.winner.number == 2
    assert all(1 not in numbers(race) for race in device.races[1:])


def test_where_nothing_can_be_timed_warm_the_runs_mode_decides() -> None:
    device = TwoModes({0: (10.0, 9.0), 1: (10.3, 8.0)})
    device.fail_in_race = lambda contestants: 0 if device.modes[-1] is Mode.WARM else None
    ended = finish(device)
    assert ended.winner.number == 0
    assert ended.warm is None
