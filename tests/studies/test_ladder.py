"""A ladder run: what can go wrong, what is compared, and what the comparisons mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.ladder_device import BEST, LAUNCH_NS, LadderDevice, Recorder, kernel_with_ladder
from tests.faults.stub_device import good, time_of
from tests.studies.sweeps import sweep, up
from tuner.core.conditions import ABOUT_A_LAUNCH, TIED_AT_LAUNCH
from tuner.core.errors import Interrupted
from tuner.core.model import Configuration, Measurement, Status
from tuner.core.stats import Verdict
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.studies.ladder import STOPPED, StepComparison, choose_steps
from tuner.studies.ladder_run import COMPARISON_NS, LadderRun

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_ladder(tmp_path / "kernel")


@pytest.fixture
def device() -> LadderDevice:
    return LadderDevice()


# -- what can go wrong


def test_step_of_which_nothing_is_right(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    def answer(found: Configuration) -> Measurement:
        if found.values["block_size"] == 32:
            return Measurement(Status.WRONG_RESULT, (1.0,), "y[5] is 1, expected 2\nand more")
        return good(time_of(found))

    device.answer = answer
    (level,) = up(sweep(kernel), device, database)
    absence = level.absent["one warp"]
    assert absence.failed
    assert "no configuration could be verified; 4 of 4 ended as wrong_result: y[5] is 1" in absence.reason
    assert level.first(kernel.steps) == "more"
    assert level.find("more") is not None and level.find("half") is not None


def test_size_that_does_not_fit(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    device.full = 1024
    fits, too_large = up(sweep(kernel, 1024, 2048), device, database)
    assert fits.comparisons
    assert too_large.comparisons == []
    assert {name for name, absence in too_large.absent.items() if absence.failed} == {
        "one warp",
        "more",
        "half",
    }
    assert "does not fit" in too_large.absent["more"].reason
    assert sum(problem.sizes["n"] == 2048 for problem in device.prepared) == 2  # asked once a problem


def test_winner_that_fails_in_the_comparison(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.absent = {BEST["more"]: "an illegal address"}
    (level,) = up(sweep(kernel), device, database)
    assert "an illegal address" in level.absent["more"].reason
    found = level.find("one warp")
    assert found is not None
    assert [timing.name for timing in found[0].timings] == ["one warp", "torch", "cupy"]


def test_library_that_is_not_installed_is_asked_once(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.absent = {"torch": "torch is not installed", "cupy": "it does not capture"}
    levels = up(sweep(kernel, 1024, 2048), device, database)
    for level in levels:
        for comparison in level.comparisons:
            assert comparison.baselines == []
            assert [failure.name for failure in comparison.failures] == ["cupy"]
    assert sum("torch" in field for field in device.fields) == 1
    what = sweep(kernel)
    what = replace(what, against=replace(what.against, named=True))
    (level,) = up(what, device, database)
    assert {failure.name for failure in level.comparisons[0].failures} == {"torch", "cupy"}


def test_stop_keeps_what_was_timed(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    stop = lambda: len(device.fields) >= 3  # noqa: E731
    running = LadderRun(sweep(kernel, 1024, 2048), device, database, Recorder(), stop).levels()
    whole, part = next(running), next(running)
    with pytest.raises(Interrupted):
        next(running)
    assert STOPPED not in whole.absent.values()
    assert [comparison.problem.dtype for comparison in part.comparisons] == ["float32"]
    assert part.absent["half"] == STOPPED
    assert part.absent["tomorrow"] != STOPPED


def test_long_kernels_get_fewer_rounds(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    slow = COMPARISON_NS / 10
    device.answer = lambda found: good(slow)
    (level,) = up(sweep(kernel, steps=choose_steps(kernel, ["more"])), device, database)
    found = level.find("more")
    assert found is not None
    assert len(found[1].medians_ns) == 10


# -- what it means


def comparison_of(
    kernel: KernelSpec, device: LadderDevice, database: Database, times_ns: dict[str, float]
) -> StepComparison:
    """Return the comparison of the float32 steps with these times."""
    for name, time_ns in times_ns.items():
        device.times_ns[BEST.get(name, name)] = time_ns
    (level,) = up(sweep(kernel), device, database)
    found = level.find("one warp")
    assert found is not None
    return found[0]


def test_comparison_with_the_best_baseline(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    times = {"one warp": 2e5, "more": 1e5, "torch": 1.5e5, "cupy": 1.2e5}
    device.wrong = {"torch"}
    comparison = comparison_of(kernel, device, database, {**times, "torch": 1e4})
    assert comparison.best_baseline is not None and comparison.best_baseline.name == "cupy"
    device.wrong = set()
    comparison = comparison_of(kernel, device, database, times)
    one, more, *_ = comparison.timings
    assert comparison.fastest is more
    assert comparison.best_baseline is not None and comparison.best_baseline.name == "cupy"
    found = comparison.against(more, comparison.best_baseline)
    assert found.verdict is Verdict.FASTER
    assert found.ratio.median == pytest.approx(1.2, rel=0.01)
    assert comparison.against(one, comparison.best_baseline).verdict is Verdict.SLOWER
    assert comparison.tied == []


def test_speed_up_over_the_first_step(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    device.times_ns[BEST["one warp"]], device.times_ns[BEST["more"]] = 3e5, 1e5
    (level,) = up(sweep(kernel), device, database)
    first = level.first(kernel.steps)
    assert first == "one warp"

    def speed_up(name: str) -> tuple[float, bool]:
        found = level.find(name)
        assert found is not None
        over = level.speed_up(*found, first)
        assert over is not None
        return over[0].median, over[1]

    assert speed_up("one warp") == (pytest.approx(1.0), True)
    assert speed_up("more") == (pytest.approx(3.0, rel=0.01), True)
    half = level.find("half")
    assert half is not None
    assert speed_up("half") == (pytest.approx(3e5 / half[1].time_ns, rel=0.01), False)


@pytest.mark.parametrize(
    ("one", "more", "tied", "decides"),
    [
        (2.9, 0.99 * ABOUT_A_LAUNCH, False, True),
        (2.9, 1.01 * ABOUT_A_LAUNCH, False, False),
        (1.0002 * 1.01 * TIED_AT_LAUNCH, 1.01 * TIED_AT_LAUNCH, True, False),
    ],
)
def test_where_launch_latency_decides(
    kernel: KernelSpec,
    device: LadderDevice,
    database: Database,
    one: float,
    more: float,
    tied: bool,
    decides: bool,
) -> None:
    comparison = comparison_of(
        kernel, device, database, {"one warp": one * LAUNCH_NS, "more": more * LAUNCH_NS}
    )
    assert bool(comparison.tied) is tied
    assert comparison.launch_decides is decides
    assert comparison.fastest is not None
    assert comparison.by_launch(comparison.fastest) is decides


def test_unknown_launch_latency(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    device.calibration = None
    comparison = comparison_of(kernel, device, database, {"more": 1.0})
    assert not comparison.launch_decides


def test_comparisons_are_stored(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    up(sweep(kernel), device, database)
    rows = database.benchmarks().rows
    assert len(rows) == 7
    assert len({row.bench for row in rows}) == 1
    singles = {row.contestant: row for row in rows if row.problem.dtype == "float32"}
    assert set(singles) == {"rung:one warp", "rung:more", "torch", "cupy"}
    fastest = min(("rung:one warp", "rung:more"), key=lambda name: singles[name].time_ns)
    other = "rung:one warp" if fastest == "rung:more" else "rung:more"
    assert singles[fastest].ratio is None
    assert singles[fastest].configuration == min(BEST.values(), key=time_of)
    ratio = singles[other].ratio
    assert ratio is not None and ratio > 1
    assert singles[other].verdict == "faster"
    assert singles["torch"].ratio == pytest.approx(2.5e5 / singles[fastest].time_ns, rel=0.01)
    assert all("ladder" in row.tags for row in rows)
    assert not database.check().problems
