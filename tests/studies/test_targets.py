"""What is timed again, and against what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.bench_device import GPU, BenchDevice, kernel_with_baselines, remember
from tests.faults.kernels import configuration
from tests.studies.stored_bests import BEST, HOT, ONLY_BEST, WARM, default_of, only, sized, winners
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import UsageError
from tuner.core.model import Configuration
from tuner.core.stats import Verdict
from tuner.database.database import Database
from tuner.kernel.functions import BaselineKind
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.studies.bench import Against, bench, check, choose_against, records_of, targets_of


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_baselines(tmp_path / "kernel")


# -- what is timed


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
    assert [entry.name for entry in found.timings] == ["default", "torch", "cupy"]
    compared = found.compared(found.timings[1])
    assert compared is not None and compared.verdict is Verdict.FASTER
    assert [row.ratio for row in records_of(found, device, "b")] == [
        None
    ] * 3  # there is no best to compare with


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
    against = choose_against(kernel, ("cupy", "torch"))
    assert (against.default, against.named) == (False, True)
    assert [b.kind for b in against.baselines] == [BaselineKind.CALL, BaselineKind.CALL]
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
