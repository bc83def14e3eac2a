"""Which trials race: verified, close, few, and what was known before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tuning.finishes import Track, finish, finish_and_rejected, numbers, trial
from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Status
from tuner.core.stats import Verdict
from tuner.tuning.finalists import FINALISTS, finalists

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
    assert set(numbers(device.races[0])) == {0, 1}
    assert ended.winner.number == 1
    assert ended.verdict is Verdict.FASTER
    assert ended.ratio is not None
    assert ended.ratio.median == pytest.approx(3.0, rel=0.01)
    assert ended.default_ns == pytest.approx(3e6, rel=0.01)
    assert ended.exportable


@pytest.mark.parametrize("status", [Status.UNVERIFIED, Status.HANG])
def test_default_that_was_not_verified_does_not_race(status: Status) -> None:
    default = trial(0, 10.0, status)
    device = Track()
    ended = finish(device, [default, trial(1, 1000.0)], default)
    assert numbers(device.races[0]) == [1]
    assert ended.winner.number == 1
    assert ended.ratio is None
    assert ended.verdict is Verdict.AMBIGUOUS


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "racing 2 finalists"),
        ({"default": 1}, "racing 2 finalists, the default among them"),
        (
            {"default": 0, "incumbent": 1},
            "racing 2 finalists, the default and the best known before among them",
        ),
        ({"incumbent": 2}, "racing 2 finalists"),
    ],
)
def test_what_races_is_said(known: dict[str, int], said: str) -> None:
    trials = [trial(0, 1000.0), trial(1, 1010.0), trial(2, None, Status.HANG)]
    phases: list[str] = []
    finish(
        Track(),
        trials,
        say=phases.append,
        **{"default": None, **{name: trials[i] for name, i in known.items()}},
    )
    assert phases[0] == said


def test_nothing_verified() -> None:
    device = Track()
    trials = [trial(0, None, Status.HANG), trial(1, 5.0, Status.UNVERIFIED)]
    assert finish_and_rejected(device, trials)[0] is None
    assert device.races == []


# -- what the database knew


def test_incumbent_races_however_slow_and_is_compared() -> None:
    device = Track()
    before = trial(3, 1300.0)
    ended = finish(device, [trial(0, 1000.0), before], None, incumbent=before)
    assert set(numbers(device.races[0])) == {0, 3}
    assert ended.incumbent is before
    assert ended.incumbent_ns == pytest.approx(1.3e6)
    assert ended.versus_incumbent is not None
    assert ended.versus_incumbent.median == pytest.approx(1.3)
    assert ended.incumbent_verdict is Verdict.FASTER


def test_incumbent_that_wins_is_the_same_as_itself() -> None:
    before = trial(0, 1000.0)
    ended = finish(Track(), [before, trial(1, 1050.0)], None, incumbent=before)
    assert ended.winner is before
    assert ended.incumbent_verdict is Verdict.SAME


@pytest.mark.parametrize("status", [Status.INACCURATE, Status.HANG])
def test_incumbent_that_fails_today_does_not_race(status: Status) -> None:
    device = Track()
    ended = finish(device, [trial(0, 1000.0)], None, incumbent=trial(3, 900.0, status))
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


@pytest.mark.parametrize(("mode", "resolved_us"), [(Mode.COLD, 0.5), (Mode.ROTATING, 0.1)])
def test_as_far_apart_as_events_resolve(mode: Mode, resolved_us: float) -> None:
    """Where many calls share two events, a fifth of that."""
    device = Track()
    device.conditions = Conditions(mode)
    finish(device, [trial(0, 0.4), trial(1, 0.4 + 0.95 * resolved_us), trial(2, 0.4 + 1.05 * resolved_us)])
    assert sorted(numbers(device.races[0])) == [0, 1]
