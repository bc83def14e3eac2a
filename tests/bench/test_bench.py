"""What is timed again, against what, and what follows from the times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.bench_device import GPU, BenchDevice, kernel_with_baselines, remember
from tests.faults.kernels import configuration
from tuner.bench.bench import Bench, bench, check, records_of
from tuner.bench.targets import Against, Target, choose_against, stored_winners, targets_of
from tuner.conditions import Calibration, Conditions, Mode, Regime
from tuner.database.database import Database
from tuner.database.records import StoredWinner
from tuner.errors import UsageError
from tuner.kernel.baselines import BaselineKind
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Problem
from tuner.space.space import SearchSpace
from tuner.stats import Verdict

WARM = Conditions(Mode.WARM)
HOT = Conditions(Mode.COLD, Regime.SUSTAINED)
BEST = configuration("ok", 256, 2)
ONLY_BEST = Against(default=False, baselines=(), named=True)


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_baselines(tmp_path / "kernel")


def default_of(kernel: KernelSpec) -> Configuration:
    return SearchSpace.from_kernel(kernel, kernel.problem(), GPU).default


def winners(database: Database) -> list[StoredWinner]:
    return stored_winners(database, GPU).rows


def only(targets: list[Target]) -> Target:
    (target,) = targets
    return target


# -- what is timed


def test_tuned_problem_is_timed_as_it_was_tuned(database: Database, kernel: KernelSpec) -> None:
    remember(database, kernel, kernel.problem(), BEST, 1e5, HOT)
    target = only(targets_of(BenchDevice(), kernel, kernel.problem(), winners(database)))
    assert target.conditions == HOT
    assert target.winner is not None
    assert target.winner.winner.configuration == BEST
    assert target.comparable
    assert target.notes == ()


def test_each_way_of_timing_is_a_target_of_its_own(database: Database, kernel: KernelSpec) -> None:
    for conditions in (Conditions(), WARM):
        remember(database, kernel, kernel.problem(), BEST, 1e5, conditions)
    device = BenchDevice()
    found = targets_of(device, kernel, kernel.problem(), winners(database))
    assert {target.conditions for target in found} == {Conditions(), WARM}
    assert only(targets_of(device, kernel, kernel.problem(), winners(database), Mode.WARM)).conditions == WARM
    hot = only(targets_of(device, kernel, kernel.problem(), winners(database), None, Regime.SUSTAINED))
    assert hot.conditions == HOT
    assert hot.winner is not None
    assert not hot.comparable
    assert "tuned" in " ".join(hot.notes)


def test_winners_of_other_cards_and_of_recordings_do_not_count(
    database: Database, kernel: KernelSpec
) -> None:
    remember(database, kernel, kernel.problem(), BEST, 1e5, gpu=replace(GPU, name="NVIDIA H200 NVL"))
    remember(database, kernel, kernel.problem(), BEST, 1e5, exportable=False, reason="unstable")
    assert winners(database) == []


def sized(kernel: KernelSpec, n: int, dtype: str = "float32") -> Problem:
    return kernel.problem({"n": n}, {"": dtype})


def test_nearest_size_of_the_same_kind(database: Database, kernel: KernelSpec) -> None:
    near, far = configuration("ok", 64, 1), configuration("ok", 128, 1)
    remember(database, kernel, sized(kernel, 1000), near, 1e5)
    remember(database, kernel, sized(kernel, 100_000), far, 1e5)
    remember(database, kernel, sized(kernel, 9000, "float16"), BEST, 1e5)
    device = BenchDevice()

    def chosen(n: int) -> Configuration:
        target = only(targets_of(device, kernel, sized(kernel, n), winners(database)))
        assert target.winner is not None
        assert not target.comparable
        assert str(target.winner.run.problem.sizes["n"]) in " ".join(target.notes)
        return target.winner.winner.configuration

    assert chosen(9000) == near  # 9 times larger, against 11 times smaller
    assert chosen(12_000) == far


def test_nearest_size_whose_configuration_is_valid_here(database: Database, tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"no tail" = "n % (block_size * items) == 0"\n'
    kernel = kernel_with_baselines(tmp_path / "strict", extra)
    remember(database, kernel, sized(kernel, 1024), configuration("ok", 256, 4), 1e5)
    remember(database, kernel, sized(kernel, 65536), configuration("ok", 32, 1), 1e5)
    target = only(targets_of(BenchDevice(), kernel, sized(kernel, 1056), winners(database)))
    assert target.winner is not None
    assert target.winner.winner.configuration == configuration("ok", 32, 1)
    assert "no tail" in " ".join(target.notes)


def test_nothing_tuned_leaves_the_default(database: Database, kernel: KernelSpec) -> None:
    remember(database, kernel, sized(kernel, 1024), BEST, 1e5)
    target = only(targets_of(BenchDevice(), kernel, sized(kernel, 1024, "float16"), winners(database)))
    assert target.winner is None
    assert "default" in " ".join(target.notes)
    device = BenchDevice({default_of(kernel): 1e5, "torch": 2e5, "cupy": 3e5})
    found = bench(device, target, choose_against(kernel, ()), 20, 0)
    assert found.reference == "default"
    assert [entry.contestant.name for entry in found.entries] == ["default", "torch", "cupy"]
    assert found.entries[1].verdict is Verdict.FASTER
    assert [row.ratio for row in records_of(found, "b", {})] == [None] * 3  # there is no best to compare with


def test_changed_kernel_is_said(database: Database, kernel: KernelSpec) -> None:
    remember(database, kernel, kernel.problem(), BEST, 1e5)
    kernel.file.write_text(kernel.file.read_text().replace('"2 * x"', '"x * 2"') + "\n# later\n")
    target = only(targets_of(BenchDevice(), read_kernel(kernel.file), kernel.problem(), winners(database)))
    assert "changed" in " ".join(target.notes)
    assert not target.broken


def test_configuration_that_is_gone(database: Database, tmp_path: Path) -> None:
    kernel = kernel_with_baselines(tmp_path / "kernel", blocks=(32, 64, 128, 256))
    remember(database, kernel, kernel.problem(), BEST, 1e5)
    kernel = kernel_with_baselines(tmp_path / "kernel", blocks=(32, 64, 128))
    device = BenchDevice({default_of(kernel): 1e5})
    target = only(targets_of(device, kernel, kernel.problem(), winners(database)))
    assert "changed" in target.broken
    found = bench(device, target, Against(True, (), named=False), 20, 0)
    assert [failure.name for failure in found.failures] == ["best"]
    assert found.reference == "default"
    checked = check(device, found, 20, 0)
    assert checked is not None
    assert checked.slower
    assert "changed" in checked.reason


# -- against what


def test_libraries_of_the_kernels_file_by_default(kernel: KernelSpec) -> None:
    against = choose_against(kernel, ())
    assert against.default
    assert [baseline.name for baseline in against.baselines] == ["torch", "cupy"]
    assert not against.named


def test_what_is_named_replaces_the_default(kernel: KernelSpec, tmp_path: Path) -> None:
    against = choose_against(kernel, ("numpy", "torch"))
    assert (against.default, against.named) == (False, True)
    assert [b.kind for b in against.baselines] == [BaselineKind.NUMPY, BaselineKind.CALL]
    assert choose_against(kernel, ("default",)) == Against(True, (), named=True)
    assert choose_against(kernel, ("none",)) == ONLY_BEST
    source = tmp_path / "torch"
    source.mkdir()
    mine = source / "mine.cu"
    mine.write_text("// tune: add<<<ceil_div(n, 256), 256>>>(x, y, n)\n")
    also = tmp_path / "mine.cu"
    also.write_text(mine.read_text())
    found = choose_against(kernel, (str(mine), str(also))).baselines
    assert len({baseline.name for baseline in found}) == 2
    assert found[0].file == mine


@pytest.mark.parametrize("asked", [("toch",), ("none", "torch"), ("nowhere/mine.cu",), ("1 + 1",)])
def test_what_cannot_be_compared_with(kernel: KernelSpec, asked: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        choose_against(kernel, asked)


# -- the race


def target_of(database: Database, kernel: KernelSpec, time_ns: float = 1e5) -> Target:
    remember(database, kernel, kernel.problem(), BEST, time_ns)
    return only(targets_of(BenchDevice(), kernel, kernel.problem(), winners(database)))


def run(device: BenchDevice, target: Target, *asked: str) -> Bench:
    return bench(device, target, choose_against(target.kernel, asked), 20, 0)


def test_contestants_race_together_and_are_compared(database: Database, kernel: KernelSpec) -> None:
    default = default_of(kernel)
    device = BenchDevice({BEST: 1e5, default: 1.25e5, "torch": 0.9e5, "cupy": 1.0005e5})
    device.drift = 2.0  # far more than the differences
    found = run(device, target_of(database, kernel))
    assert device.fields == [[BEST, default, "torch", "cupy"]]
    assert device.timed == [(kernel.problem(), Conditions())]
    by_name = {entry.contestant.name: entry for entry in found.entries}
    assert [entry.contestant.name for entry in found.entries] == ["best", "torch", "cupy", "default"]
    assert found.reference == "best"
    assert by_name["best"].ratio is None
    for name, ratio, verdict in (
        ("default", 1.25, Verdict.FASTER),
        ("torch", 0.9, Verdict.SLOWER),
        ("cupy", 1.0005, Verdict.SAME),
    ):
        entry = by_name[name]
        assert entry.ratio is not None
        assert entry.ratio.median == pytest.approx(ratio, rel=2e-3)
        assert entry.ratio.low <= entry.ratio.median <= entry.ratio.high
        assert entry.verdict is verdict, name
    assert found.tags == ("power_cap",)
    assert all(low <= entry.time_ns <= high for entry in found.entries for low, high in [entry.interval_ns])
    assert len(by_name["torch"].samples_ns) == 20 * 8


def test_noise_decides_nothing(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5, "torch": 1.004e5}, noise=0.02)
    found = run(device, target_of(database, kernel), "torch")
    assert found.entries[1].verdict is Verdict.AMBIGUOUS


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
    assert found.noise_floor == pytest.approx(0.05, rel=1e-3)
    assert found.entries[1].verdict is Verdict.SAME


def test_absent_library_matters_only_where_it_is_named(database: Database, kernel: KernelSpec) -> None:
    target = target_of(database, kernel)
    device = BenchDevice({BEST: 1e5, default_of(kernel): 2e5, "cupy": 3e5})
    device.absent = {"torch": "torch is not installed"}
    found = run(device, target)
    assert [entry.contestant.name for entry in found.entries] == ["best", "default", "cupy"]
    assert found.failures == ()
    found = run(device, target, "torch", "cupy")
    assert [(failure.name, failure.error) for failure in found.failures] == [
        ("torch", "torch is not installed")
    ]
    assert [entry.contestant.name for entry in found.entries] == ["best", "cupy"]


def test_failing_library_is_said_and_the_others_race_again(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5, default_of(kernel): 2e5, "cupy": 3e5})
    device.absent = {"torch": "it does not capture"}
    found = run(device, target_of(database, kernel))
    assert [failure.name for failure in found.failures] == ["torch"]
    assert len(found.entries) == 3


def test_best_that_fails_gives_its_place_to_the_default(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({default_of(kernel): 2e5, "torch": 4e5, "cupy": 3e5})
    device.absent = {BEST: "y[0] is 2, expected 1"}
    target = target_of(database, kernel)
    found = run(device, target)
    assert found.reference == "default"
    assert found.best is None
    found = run(device, target, "torch")
    assert found.reference == ""
    assert [entry.ratio for entry in found.entries] == [None]


def test_all_may_fail(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice()
    device.absent = dict.fromkeys([BEST, default_of(kernel), "torch", "cupy"], "no")
    found = run(device, target_of(database, kernel))
    assert found.entries == ()
    assert len(found.failures) == 4


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
    assert [entry.verified for entry in found.entries] == [True, False]
    assert ["unverified" in row.tags for row in records_of(found, "b", {})] == [False, True]


def test_numpy_is_not_paired(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5, "numpy": 1e8})
    found = run(device, target_of(database, kernel), "numpy")
    host = found.entries[1]
    assert host.samples_ns == pytest.approx((0.9e8, 1e8, 1.3e8))
    assert host.ratio is not None
    assert host.ratio.median == pytest.approx(1000.0, rel=0.01)
    assert host.ratio.low == pytest.approx(900.0, rel=0.01)
    assert host.ratio.high == pytest.approx(1300.0, rel=0.01)
    assert host.verdict is Verdict.FASTER


def test_what_is_known_is_passed_on(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5})
    target = target_of(database, kernel, 1.2e5)
    run(device, target, "none")
    run(device, replace(target, conditions=WARM), "none")
    assert [field[0].time_ns for field in device.contestants] == [1.2e5, 0.0]


# -- the check


def checked(device: BenchDevice, target: Target) -> tuple[bool, float] | None:
    found = check(device, bench(device, target, ONLY_BEST, 20, 0), 20, 0)
    return None if found is None else (found.slower, found.tolerance)


def test_as_fast_as_it_was(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1.005e5})
    assert checked(device, target_of(database, kernel)) == (False, 0.01)
    assert len(device.fields) == 1


def test_slower_twice_is_slower(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1.02e5})
    assert checked(device, target_of(database, kernel)) == (True, 0.01)
    assert len(device.fields) == 2


def test_slower_once_is_not_slower(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1e5})
    device.slower_once = 1.5
    assert checked(device, target_of(database, kernel)) == (False, 0.01)
    assert len(device.fields) == 2


def test_faster_is_no_reason_to_complain(database: Database, kernel: KernelSpec) -> None:
    assert checked(BenchDevice({BEST: 0.5e5}), target_of(database, kernel)) == (False, 0.01)


@pytest.mark.parametrize("changes", [{"uuid": "GPU-2"}, {"driver": "590.1"}, {"uuid": ""}])
def test_another_card_or_driver_may_differ_more(
    database: Database, kernel: KernelSpec, changes: dict[str, str]
) -> None:
    device = BenchDevice({BEST: 1.02e5})
    device.gpu = replace(GPU, **changes)  # type: ignore[arg-type]
    assert checked(device, target_of(database, kernel)) == (False, 0.03)


def test_noisy_card_is_not_blamed(database: Database, kernel: KernelSpec) -> None:
    device = BenchDevice({BEST: 1.03e5})
    device.calibration = Calibration({"cold, rested": 0.02})
    assert checked(device, target_of(database, kernel)) == (False, 0.04)


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
    rows = records_of(run(device, target), "bench-1", {"torch": "2.9"})
    database.record_benchmark(rows)
    later = records_of(run(device, target, "none"), "bench-2", {})
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
