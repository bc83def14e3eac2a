"""How contestants race, what follows from their times, and when a winner is no longer as fast as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.bench_device import GPU, BenchDevice, kernel_with_baselines, remember
from tests.studies.stored_bests import BEST, ONLY_BEST, WARM, checked, default_of, only, sized, winners
from tuner.core.conditions import Calibration, Conditions
from tuner.core.stats import Verdict
from tuner.database.database import Database
from tuner.kernel.spec import KernelSpec
from tuner.studies.bench import Bench, Target, bench, check, choose_against, records_of, targets_of


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_baselines(tmp_path / "kernel")


# -- the race


def target_of(database: Database, kernel: KernelSpec, time_ns: float = 1e5) -> Target:
    remember(database, kernel, kernel.problem(), BEST, time_ns)
    return only(targets_of(BenchDevice(), kernel, kernel.problem(), winners(database)))


def run(device: BenchDevice, target: Target, *asked: str) -> Bench:
    return bench(device, target, choose_against(target.kernel, asked), 20, 0)


def verdict_of(found: Bench) -> Verdict:
    """Return that of the reference against the second contestant."""
    compared = found.compared(found.timings[1])
    assert compared is not None
    return compared.verdict


def test_contestants_race_together_and_are_compared(database: Database, kernel: KernelSpec) -> None:
    default = default_of(kernel)
    device = BenchDevice({BEST: 1e5, default: 1.25e5, "torch": 0.9e5, "cupy": 1.0005e5})
    device.drift = 2.0  # far more than the differences
    found = run(device, target_of(database, kernel))
    assert device.fields == [[BEST, default, "torch", "cupy"]]
    assert device.timed == [(kernel.problem(), Conditions())]
    by_name = {entry.name: entry for entry in found.timings}
    assert [entry.name for entry in found.timings] == ["best", "torch", "cupy", "default"]
    assert found.reference == "best"
    assert found.compared(by_name["best"]) is None
    for name, ratio, verdict in (
        ("default", 1.25, Verdict.FASTER),
        ("torch", 0.9, Verdict.SLOWER),
        ("cupy", 1.0005, Verdict.SAME),
    ):
        compared = found.compared(by_name[name])
        assert compared is not None
        assert compared.ratio.median == pytest.approx(ratio, rel=2e-3)
        assert compared.ratio.low <= compared.ratio.median <= compared.ratio.high
        assert compared.verdict is verdict, name
    assert found.tags == ("power_cap",)
    assert all(low <= entry.time_ns <= high for entry in found.timings for low, high in [entry.interval_ns])
    assert len(by_name["torch"].samples_ns) == 20 * 8


def test_noise_decides_nothing(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5, "torch": 1.004e5}, noise=0.02)
    found = run(device, target_of(database, kernel), "torch")
    assert verdict_of(found) is Verdict.AMBIGUOUS


@pytest.mark.parametrize(
    "calibration",
    [Calibration({"cold, rested": 0.05}), Calibration({"cold, rested": 0.001}, {"cold": 5000.0})],
)
def test_difference_below_the_noise_floor_is_none(
    database: Database, kernel: KernelSpec, calibration: Calibration
) -> None:
    device = BenchDevice({BEST: 1e5, "torch": 1.03e5}, noise=1e-4)
    device.calibration = calibration
    found = run(device, target_of(database, kernel), "torch")
    assert found.reference_noise == pytest.approx(0.05, rel=1e-3)
    assert verdict_of(found) is Verdict.SAME


def test_absent_library_matters_only_where_it_is_named(database: Database, kernel: KernelSpec) -> None:
    target = target_of(database, kernel)
    device = BenchDevice({BEST: 1e5, default_of(kernel): 2e5, "cupy": 3e5})
    device.absent = {"torch": "torch is not installed"}
    found = run(device, target)
    assert [entry.name for entry in found.timings] == ["best", "default", "cupy"]
    assert found.failures == ()
    found = run(device, target, "torch", "cupy")
    assert [(failure.name, failure.error) for failure in found.failures] == [
        ("torch", "torch is not installed")
    ]
    assert [entry.name for entry in found.timings] == ["best", "cupy"]


def test_best_that_fails_gives_its_place_to_the_default(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({default_of(kernel): 2e5, "torch": 4e5, "cupy": 3e5})
    device.absent = {BEST: "y[0] is 2, expected 1"}
    target = target_of(database, kernel)
    found = run(device, target)
    assert found.reference == "default"
    assert found.best is None
    found = run(device, target, "torch")
    assert found.reference == ""
    assert [found.compared(entry) for entry in found.timings] == [None]


def test_default_that_is_the_best_races_once(database: Database, kernel: KernelSpec) -> None:
    default = default_of(kernel)
    remember(database, kernel, kernel.problem(), default, 1e5)
    device = BenchDevice({default: 1e5})
    found = run(device, only(targets_of(device, kernel, kernel.problem(), winners(database))), "default")
    assert device.fields == [[default]]
    assert "the default configuration is the best" in found.notes


def test_wrong_output_is_kept_as_such(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5, "torch": 2e5})
    device.wrong = {"torch"}
    found = run(device, target_of(database, kernel), "torch")
    assert [entry.verified for entry in found.timings] == [True, False]
    assert ["unverified" in row.tags for row in records_of(found, device, "b")] == [False, True]


def test_what_is_known_is_passed_on(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5})
    target = target_of(database, kernel, 1.2e5)
    run(device, target, "none")
    run(device, replace(target, conditions=WARM), "none")
    assert [field[0].time_ns for field in device.contestants] == [1.2e5, 0.0]


@pytest.mark.parametrize(
    ("time_ns", "noise", "once", "slower", "races"),
    [
        (1.005e5, None, 1.0, False, 1),
        (1.02e5, None, 1.0, True, 2),
        (1e5, None, 1.5, False, 2),  # slower once
        (0.5e5, None, 1.0, False, 1),  # faster is no reason to complain
        (1.03e5, 0.02, 1.0, False, 1),  # a noisy card is not blamed
    ],
)
def test_slower_twice_is_slower(
    database: Database,
    kernel: KernelSpec,
    time_ns: float,
    noise: float | None,
    once: float,
    slower: bool,
    races: int,
) -> None:
    device = BenchDevice({BEST: time_ns})
    device.slower_once = once
    if noise:
        device.calibration = Calibration({"cold, rested": noise})
    assert checked(device, target_of(database, kernel)) == (slower, 2 * noise if noise else 0.01)
    assert len(device.fields) == races


@pytest.mark.parametrize("changes", [{"uuid": "GPU-2"}, {"driver": "590.1"}, {"uuid": ""}])
def test_another_card_or_driver_may_differ_more(
    database: Database, kernel: KernelSpec, changes: dict[str, str]
) -> None:
    device = BenchDevice({BEST: 1.02e5})
    device.gpu = replace(GPU, **changes)  # type: ignore[arg-type]
    assert checked(device, target_of(database, kernel)) == (False, 0.03)


def test_other_conditions_are_not_compared(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 2e5})
    target = target_of(database, kernel)
    assert checked(device, replace(target, conditions=WARM)) is None
    assert checked(device, replace(target, problem=sized(kernel, 64))) is None


def test_best_that_cannot_be_run_is_not_as_fast_as_it_was(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice()
    device.absent = {BEST: "CUDA_ERROR_LAUNCH_FAILED"}
    target = target_of(database, kernel)
    found = check(device, bench(device, target, ONLY_BEST, 20, 0), 20, 0)
    assert found is not None
    assert found.slower
    assert "LAUNCH_FAILED" in found.reason


# -- what is kept


def test_records_are_read_back(database: Database, kernel: KernelSpec) -> None:
    default = default_of(kernel)
    device = BenchDevice({BEST: 1e5, default: 1.25e5, "torch": 0.9e5, "cupy": 1e5})
    target = target_of(database, kernel)
    device.versions = {"torch": "2.9"}
    rows = records_of(run(device, target), device, "bench-1")
    database.record_benchmark(rows)
    later = records_of(run(device, target, "none"), device, "bench-2")
    database.record_benchmark(later)
    found = database.benchmarks()
    assert found.damaged == []
    assert [row.contestant for row in found.rows if row.bench == "bench-2"] == ["best"]
    stored = [row for row in found.rows if row.bench == "bench-1"]
    for row, written in zip(stored, rows, strict=True):  # samples are kept in single precision
        assert row.samples_ns == pytest.approx(written.samples_ns, rel=1e-6)
        assert replace(row, id=None, created_at="", samples_ns=written.samples_ns) == written
    best, *others = stored
    assert (best.ratio, best.verdict) == (None, "")
    assert target.winner is not None
    assert best.winner_id == target.winner.id
    assert {row.contestant: row.verdict for row in others} == {
        "torch": "slower", "cupy": "same", "default": "faster"
    }  # fmt: skip
