"""What portfolios make of times: comparisons put together, and decisions for sizes that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.simulated_gpu import SimulatedGpu
from tests.stored import make_benchmark
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration
from tuner.database.database import Database
from tuner.database.records import Benchmark
from tuner.devices.base import RaceRequest
from tuner.kernel.load import load_kernel
from tuner.studies.portfolio_races import PortfolioRequest, Races
from tuner.winners.fitting import fit
from tuner.winners.portfolios import timings_of

GEMM = load_kernel("gemm")
ROW = GEMM.problem({"m": 16, "n": 512, "k": 512}, {"": "bfloat16"}, {"layout": "nt"})
A, B, C = (Configuration.of("wgmma", {**GEMM.variants["wgmma"].defaults, "stages": n}) for n in (2, 3, 4))


def comparison(bench: str, times: dict[Configuration, float], mode: Mode = Mode.COLD) -> list[Benchmark]:
    return [
        make_benchmark(bench=bench, configuration=one, time_ns=time_ns, conditions=Conditions(mode))
        for one, time_ns in times.items()
    ]


def slowdowns(*comparisons: list[Benchmark]) -> dict[Configuration, float]:
    timings = timings_of(row for rows in comparisons for row in rows)
    return timings.of(timings.problems[0])


def test_a_later_comparison_is_brought_to_the_level_of_the_earlier() -> None:
    first = comparison("1", {A: 100.0, B: 200.0})
    assert slowdowns(first, comparison("2", {A: 200.0, C: 100.0})) == pytest.approx({A: 1.0, B: 2.0, C: 0.0})
    assert slowdowns(first, comparison("2", {C: 100.0})) == pytest.approx({A: 0.0, B: 1.0}), (
        "nothing is shared"
    )
    warm = comparison("2", {A: 50.0, C: 100.0}, Mode.WARM)
    assert slowdowns(first, warm) == pytest.approx({A: 0.0, C: 1.0}), "the last conditions count"


class Scripted(SimulatedGpu):
    """Takes given times in each round, by configuration; configurations without any fail."""

    rounds: Sequence[dict[Configuration, float]] = ()

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        running = request.configurations
        self.races.append(running)
        for number, one in enumerate(running):
            if one not in self.rounds[0]:
                return RaceFailed("no", number)
        return Raced([[[times[one]] * request.samples for one in running] for times in self.rounds])


def test_comparisons_are_by_rounds_and_leave_out_what_failed(tmp_path: Path) -> None:
    device, asked = Scripted(), PortfolioRequest(GEMM, (ROW,))
    device.rounds = [{A: 10.0, B: 11.0}, {A: 10.0, B: 33.0}, {A: 30.0, B: 33.0}]
    with Database.open(tmp_path / "p.db") as database:
        races = Races(asked, device, database)
        times = races.run(ROW, [A, C, B], 3, 1, "first")
        assert times == pytest.approx({A: 10.0, B: 11.0}), "the ratio within rounds"
        races.run(replace(ROW, sizes={"m": 32, "n": 512, "k": 512}), [C, A, B], 3, 1, "second")
        assert device.races == [[A, C, B], [A, B], [A, B]], "what failed is not tried again"
        assert races.failed == {C}
        again = Races(asked, device, database)
        assert len(again.all_timings().problems) == 2 and again.done("first") == {ROW.key}
        assert not Races(replace(asked, regime=Regime.SUSTAINED), device, database).all_timings().problems
        assert not Races(replace(asked, mode=Mode.WARM), device, database).all_timings().problems
        device.gpu = replace(device.gpu, name="NVIDIA H20")
        assert not Races(asked, device, database).all_timings().problems


def test_what_is_left_out_is_decided_by_the_others() -> None:
    sizes = [[2**i] for i in range(4, 14)]
    times = np.array([[0.0, 0.5]] * 10)
    times[5] = 0.5, 0.0
    found = fit(sizes, times, np.ones(times.shape, dtype=np.int64))
    assert found.chosen == pytest.approx([0.5 if i == 5 else 0.0 for i in range(10)])
    assert (found.said >= 0).all()
    assert found.kept == pytest.approx(np.ones(10))


def test_costs_that_say_everything_leave_no_residual() -> None:
    sizes, times = [[2**i] for i in range(4, 14)], np.array([[0.0, 1.0], [2.0, 0.0]] * 5)
    found = fit(sizes, times, (100 * 2**times).astype(np.int64))
    assert found.cost_weight == 1024
    assert set(found.residuals) == {(0, 0)}
    assert found.chosen == pytest.approx(np.zeros(10))
