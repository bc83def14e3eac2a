"""The same winner from another run, another seed and another card: the order of choice, and what earlier runs chose."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import StubDevice, good
from tests.sessions import plain, run
from tests.tuning.finishes import MARGIN
from tuner.core.conditions import Mode
from tuner.core.model import Configuration
from tuner.database.database import Database
from tuner.kernel.default import simplicity
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.summary import summary
from tuner.tuning.decision import preference
from tuner.tuning.state import Result


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    """32 configurations, which a run may try all."""
    return scale_kernel(tmp_path / "kernel", blocks=range(128, 1025, 128), items=range(1, 5))


class Card(StubDevice):
    """A GPU that runs each configuration in the time that a function says."""

    def __init__(self, time_ns: Callable[[Configuration], float]) -> None:
        super().__init__(answer=lambda c: good(time_ns(c)))
        self.time_ns = time_ns
        self.confirmed = lambda c, _: good(time_ns(c))

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        return self.time_ns(configuration)


def tuned(
    kernel: KernelSpec,
    database: Database,
    card: Card,
    seed: int,
    *,
    again: bool = False,
    margin: float | None = MARGIN,
) -> Result:
    return run(
        kernel, database, card, seed=seed, sampler="random", trials=10, from_scratch=not again, margin=margin
    )


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
    first = run(kernel, database, Card(lambda c: times.get(c, 120e3)), sampler="brute-force", trials=32)
    assert first.finish is not None
    assert first.finish.winner.configuration == chosen
    default = first.state.space.default
    on_second = {chosen: 103.5e3, default: 103e3}
    second = tuned(kernel, database, Card(lambda c: on_second.get(c, 125e3)), 50, again=True)
    assert second.finish is not None
    assert second.finish.winner.configuration == chosen
    assert list(second.state.known_winners) == [chosen]
    assert "the known winner was kept: 0.49 % behind" in summary(second, Path("x.db"))
    narrow = tuned(kernel, database, Card(lambda c: on_second.get(c, 125e3)), 50, again=True, margin=None)
    assert narrow.finish is not None
    assert narrow.finish.winner.configuration == default, "without a margin nothing that is slower wins"
    assert "fastest finalist" not in summary(narrow, Path("x.db"))
    tied = tuned(kernel, database, Card(lambda c: 103e3 if c == default else 102.8e3), 50, margin=None)
    assert tied.finish is not None
    assert tied.finish.winner.configuration == default
    assert "tied with the fastest finalist, 0.19 % apart: the simplest is kept" in summary(tied, Path("x.db"))
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
    assert ordered[:2] == [plain(256, 4), plain(32, 1)], "the initial ones before the default"
    both_differ = [plain(64, 2), plain(128, 2)]
    assert ordered[-2:] == both_differ


def test_a_variant_without_initial_configurations_is_one_value_away() -> None:
    kernel = load_kernel("vector_add")
    default = Configuration.of("vectorized", kernel.variants["vectorized"].defaults)
    bulk = Configuration.of("bulk", kernel.variants["bulk"].defaults)
    two_differ = Configuration.of("vectorized", {**default.values, "block_size": 64, "load_hint": "nc"})
    one_differs = Configuration.of("vectorized", {**default.values, "block_size": 64})
    ordered = sorted([two_differ, bulk, one_differs, default], key=simplicity(kernel, default))
    assert ordered == [default, one_differs, bulk, two_differ]


def test_an_earlier_win_is_worth_a_margin_and_the_second_another(tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path / "kernel", blocks=[32, 64, 128, 256], items=[1, 2, 4])
    default, far = plain(32, 1), plain(256, 4)
    margins = [preference(simplicity(kernel, default), {far: won})(far)[0] for won in range(4)]
    assert margins == [2, -1, -2, -2]
    assert preference(simplicity(kernel, default), {far: 1})(default)[0] == 0
    near = plain(64, 1)
    among = preference(simplicity(kernel, default), {far: 1, near: 1})
    assert [among(one)[0] for one in (near, far)] == [-1, -0.75], (
        "of equally fast ones the simpler wins again"
    )


def test_an_earlier_winner_that_the_kernel_no_longer_has_is_passed_over(
    database: Database, tmp_path: Path
) -> None:
    """Its value, its parameter or its variant is gone, and what is computed is the same."""
    folder = tmp_path / "kernel"
    kernel = scale_kernel(folder, blocks=[64, 128], items=[1, 2])
    run(kernel, database, Card(lambda c: 100e3 if c == plain(64, 2) else 120e3), sampler="random", trials=4)
    texts = {file: file.read_text() for file in folder.iterdir()}
    for change in ((r"\[64, 128\]", "[128, 256]"), (r"\bitems\b", "per_thread"), (r"\bplain\b", "simple")):
        for file, text in texts.items():
            file.write_text(re.sub(*change, text))
        changed = load_kernel(str(kernel.file))
        finish = run(
            changed, database, Card(lambda _: 100e3), sampler="random", trials=2, from_scratch=False
        ).finish
        assert finish is not None


def test_of_equally_fast_earlier_winners_the_simplest_wins_again(
    database: Database, kernel: KernelSpec
) -> None:
    """Two runs chose another one each; which is faster on a third card by a thousandth is chance."""
    first, second = plain(512, 3), plain(1024, 3)
    for chosen in (first, second):
        finish = run(
            *(kernel, database, Card(lambda c, chosen=chosen: 100e3 if c == chosen else 120e3)),
            sampler="brute-force", trials=32, from_scratch=True,
        ).finish  # fmt: skip
        assert finish is not None and finish.winner.configuration == chosen
    for seed, faster in enumerate((first, second)):
        known = {first: 100e3, second: 100e3} | {faster: 99.9e3}
        again = tuned(kernel, database, Card(lambda c, known=known: known.get(c, 125e3)), seed, again=True)
        assert again.finish is not None
        assert again.finish.winner.configuration == first
        database.delete_run(again.state.run.id)


def test_what_differs_in_several_values_wins_if_it_is_worth_it(database: Database, tmp_path: Path) -> None:
    """Two values differ: no margin, two margins of 0.75 %, or of 2 %."""
    kernel = scale_kernel(tmp_path / "kernel", blocks=[32, 64, 128, 256], items=[1, 2, 4])
    far, default = plain(256, 4), plain(32, 1)
    for margin, time_ns, winner in (
        (None, 99e3, far),
        (MARGIN, 99e3, default),
        (MARGIN, 98e3, far),
        (0.02, 98e3, default),
    ):
        times = {far: time_ns, default: 100e3}
        finish = run(
            *(kernel, database, Card(lambda c, times=times: times.get(c, 150e3))), sampler="random", trials=12,
            margin=margin, from_scratch=True,
        ).finish  # fmt: skip
        assert finish is not None
        assert finish.winner.configuration == winner
