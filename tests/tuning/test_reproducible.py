"""The same winner from another run, another seed and another card: the order of choice, and what earlier runs chose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import StubDevice, good
from tests.sessions import plain, run
from tuner.conditions import Mode
from tuner.database.database import Database
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration
from tuner.space.simplicity import simplicity
from tuner.space.space import SearchSpace
from tuner.tuning.simpler import simpler_configurations
from tuner.tuning.state import Result


class Card(StubDevice):
    """A GPU that runs each configuration in the time that a function says."""

    def __init__(self, time_ns: Callable[[Configuration], float]) -> None:
        super().__init__(answer=lambda c: good(time_ns(c)))
        self.time_ns = time_ns
        self.confirmed = lambda c, _: good(time_ns(c))

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        return self.time_ns(configuration)


@pytest.fixture
def space(tmp_path: Path) -> SearchSpace:
    kernel = scale_kernel(tmp_path / "kernel", blocks=[32, 256], items=[1, 4])
    return SearchSpace.from_kernel(kernel, kernel.problem(), ARCHITECTURES[90])


def tuned(kernel: KernelSpec, database: Database, card: Card, seed: int, *, again: bool = False) -> Result:
    return run(kernel, database, card, seed=seed, sampler="random", trials=30, from_scratch=not again)


def test_the_simplest_has_the_fewest_values_that_are_not_the_defaults(tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path / "kernel", blocks=[32, 64, 128, 256], items=[1, 2, 4])
    key = simplicity(kernel, plain(64, 2))
    ordered = sorted((plain(b, i) for b, i in itertools.product((32, 64, 128, 256), (1, 2, 4))), key=key)
    assert ordered[:6] == [
        plain(64, 2), plain(32, 2), plain(64, 1), plain(64, 4), plain(128, 2), plain(256, 2),
    ]  # fmt: skip
    assert ordered[-1] == plain(256, 4)
    assert len({key(configuration) for configuration in ordered}) == 12
    far, two = plain(256, 1), plain(64, 2)
    assert sorted([two, far], key=simplicity(kernel, plain(32, 1))) == [far, two]


def test_two_searches_on_two_cards_choose_the_same_of_the_equally_fast(
    database: Database, kernel: KernelSpec
) -> None:
    """Many are within half a percent; one card is 3 % slower, and each has its own order among them."""

    def card(offset: float, salt: int) -> Card:
        def time_ns(configuration: Configuration) -> float:
            block, items = (int(configuration.values[name]) for name in ("block_size", "items"))
            best = 100e3 if items <= 2 else 150e3
            return offset * best * (1 + 0.005 * ((block * 7 + items * 13 + salt) % 11) / 11)

        return Card(time_ns)

    first = tuned(kernel, database, card(1.0, 0), 1)
    second = tuned(kernel, database, card(1.03, 5), 2)
    assert first.finish is not None and second.finish is not None
    assert first.finish.winner.configuration == second.finish.winner.configuration
    assert first.finish.winner.configuration == first.state.space.default


def test_what_an_earlier_run_chose_wins_again_where_it_is_within_the_margin(
    database: Database, kernel: KernelSpec
) -> None:
    """Whatever it is: the default is as fast on the second card, and the third has a faster one."""
    chosen = plain(512, 3)
    times = {chosen: 100e3}
    first = run(kernel, database, Card(lambda c: times.get(c, 120e3)), sampler="brute-force", trials=256)
    assert first.finish is not None
    assert first.finish.winner.configuration == chosen
    default = first.state.space.default
    on_second = {chosen: 103.5e3, default: 103e3}
    second = tuned(kernel, database, Card(lambda c: on_second.get(c, 125e3)), 50, again=True)
    assert second.finish is not None
    assert second.finish.winner.configuration == chosen
    assert list(second.state.known_winners) == [chosen]
    closer = {chosen: 103.7e3, default: 103e3}
    narrow = run(
        *(kernel, database, Card(lambda c: closer.get(c, 125e3))), seed=50, sampler="random", trials=30,
        from_scratch=False, margin=0.0,
    )  # fmt: skip
    assert narrow.finish is not None
    assert narrow.finish.winner.configuration == default, "within 0.75 %, beyond its own margin"
    scratch = tuned(kernel, database, Card(lambda c: on_second.get(c, 125e3)), 50)
    assert scratch.finish is not None
    assert scratch.finish.winner.configuration == default, "--from-scratch knows of no winner"
    on_third = {chosen: 104e3, default: 100e3}
    third = tuned(kernel, database, Card(lambda c: on_third.get(c, 125e3)), 51, again=True)
    assert third.finish is not None
    assert third.finish.winner.configuration == default, "beyond the margin the faster one wins"
    assert third.state.known_winners[chosen] == 2


def test_the_nearest_to_an_initial_configuration_is_simplest(tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path / "kernel", blocks=[32, 64, 128, 256], items=[1, 2, 4])
    key = simplicity(kernel, plain(32, 1), (plain(256, 4),))
    ordered = sorted((plain(b, i) for b, i in itertools.product((32, 64, 128, 256), (1, 2, 4))), key=key)
    assert ordered[:2] == [plain(32, 1), plain(256, 4)]
    both_differ = [plain(64, 2), plain(128, 2)]
    assert ordered[-2:] == both_differ


def test_the_last_trials_are_initial_configurations_with_one_value_of_the_best(space: SearchSpace) -> None:
    start, fastest = plain(32, 1), plain(256, 4)
    times = {start: 150e3, fastest: 100e3}
    ask = partial(simpler_configurations, space, known=[start], simplicity=lambda one: str(one))
    assert set(ask(times)) == {plain(256, 1), plain(32, 4)}
    assert ask({**times, plain(256, 1): math.inf}) == [plain(32, 4)], "the other one failed"
    assert ask({**times, start: 100.5e3}) == [], "the initial configuration is fast enough"
    assert ask({start: math.inf}) == []


@pytest.mark.parametrize("lookahead", [1, 24])
def test_a_run_tries_what_lies_between_an_initial_configuration_and_the_best(
    database: Database, tmp_path: Path, lookahead: int
) -> None:
    """Only the block size matters: every run ends at the default with the best one, however far it plans ahead."""
    kernel = scale_kernel(tmp_path / "kernel", blocks=[32, 64, 128, 256, 512], items=[1, 2, 3, 4, 5, 6, 7, 8])

    def time_ns(configuration: Configuration) -> float:
        return 100e3 if configuration.values["block_size"] == 256 else 150e3

    for seed in range(3):
        card = Card(time_ns)
        card.lookahead = lookahead
        finish = tuned(kernel, database, card, seed).finish
        assert finish is not None
        assert finish.winner.configuration == plain(256, 1)


def test_the_last_trials_go_to_simpler_neighbours_of_the_best(database: Database, kernel: KernelSpec) -> None:
    """All with 3 items are the best, whatever the block size: the search ends at the default's, wherever it began."""

    def time_ns(configuration: Configuration) -> float:
        return 100e3 if configuration.values["items"] == 3 else 150e3

    winners = {tuned(kernel, database, Card(time_ns), seed).finish.winner.configuration for seed in range(4)}  # type: ignore[union-attr]
    assert winners == {plain(32, 3)}
    alone = run(kernel, database, Card(time_ns), trials=9, sampler="random")
    assert len(alone.state.trials) == 9, "a small budget has none to spare"
