"""One knob over trials, races and stopping; what is given beside it wins."""

from __future__ import annotations

import pytest

from tests.commands import Tune, assert_one_line
from tests.tuning.finishes import Track, finish, trial
from tuner.core.errors import UsageError
from tuner.core.model import RunOptions
from tuner.tuning.request import EFFORTS, effort_options

pytestmark = pytest.mark.usefixtures("forked_children")


def test_more_effort_is_more_of_everything() -> None:
    quick, normal, thorough = (RunOptions(**effort_options(name)) for name in EFFORTS)
    assert normal == RunOptions()
    assert quick.trials < normal.trials < thorough.trials
    assert quick.stop_early and not thorough.stop_early
    for less, more in (("quick", "normal"), ("normal", "thorough")):
        assert sum(EFFORTS[less].heats) < sum(EFFORTS[more].heats)
    with pytest.raises(UsageError, match="did you mean quick"):
        effort_options("quik")


def test_what_is_given_wins() -> None:
    given = RunOptions(**effort_options("quick", trials=7, stop_early=False))
    assert (given.trials, given.stop_early) == (7, False)
    assert not effort_options("quick", "random")["stop_early"]  # which says nothing that could stop it
    assert effort_options("quick", "random", stop_early=True)["stop_early"]


def test_only_another_effort_is_kept_with_a_run() -> None:
    assert "effort" not in RunOptions().to_json()
    quick = RunOptions(effort="quick")
    assert RunOptions.from_json(quick.to_json()) == quick


def test_a_race_is_as_long_as_the_effort() -> None:
    """Of finalists that no number of rounds tells apart."""
    trials = [trial(i, 1000.0 + i / 2) for i in range(3)]
    rounds = {}
    for name, effort in EFFORTS.items():
        ended = finish(Track(noise=0.1), trials, effort=effort)
        rounds[name] = ended.rounds
    assert rounds == {name: sum(effort.heats) for name, effort in EFFORTS.items()}


def test_the_option(tune: Tune) -> None:
    words = ("vector_add", "--size", "n=2**20", "--json")
    assert '"trials": 9' in tune(*words, "--effort", "quick", "--trials", "9").out
    stopped = tune(*words, "--effort", "quick", "--stop", "auto", "--sampler", "random")
    assert_one_line(stopped, "--stop auto")
    assert tune(*words, "--effort", "quick", "--sampler", "random", "--trials", "3").code == 0
    assert_one_line(tune(*words, "--effort", "most"), "--effort")
