"""Where launch latency decides, every report says so, and no other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.faults.bench_device import BenchDevice, kernel_with_baselines, remember
from tests.faults.kernels import configuration, scale_kernel
from tests.faults.stub_device import StubDevice, Watcher, good, time_of
from tuner.core.conditions import ABOUT_A_LAUNCH, TIED_AT_LAUNCH, Calibration, Conditions, Mode
from tuner.core.model import Configuration, Measurement, RunOptions
from tuner.database.database import Database
from tuner.gpu.buffers import Helpers
from tuner.gpu.calibration import LEAST_NS, Calibrator
from tuner.gpu.driver import Graph
from tuner.gpu.problem import ProblemSession
from tuner.kernel.batching import Batch
from tuner.kernel.spec import KernelSpec
from tuner.report.configurations import launch_note
from tuner.report.result_record import result_as_json
from tuner.report.summary import summary
from tuner.studies.bench import bench, choose_against, stored_winners, targets_of
from tuner.studies.bench_report import bench_as_json, show_bench
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import Result

LAUNCHES = {"cold": 4000.0, "rotating": 1200.0}
CALIBRATION = Calibration({"cold, rested": 0.002}, launch_ns=LAUNCHES)
COLD, ROTATING, WARM = (Conditions(mode) for mode in (Mode.COLD, Mode.ROTATING, Mode.WARM))


@pytest.mark.parametrize(
    ("conditions", "times", "tied", "decides"),
    [
        (COLD, ABOUT_A_LAUNCH, False, True),
        (COLD, 1.001 * ABOUT_A_LAUNCH, False, False),
        (COLD, 0.9, False, True),  # the next calibration may find a few percent more or less
        (COLD, TIED_AT_LAUNCH, True, True),
        (COLD, 1.001 * TIED_AT_LAUNCH, True, False),
        (ROTATING, ABOUT_A_LAUNCH, False, True),
    ],
)
def test_how_near_to_a_launch(conditions: Conditions, times: float, tied: bool, decides: bool) -> None:
    time_ns = times * LAUNCHES[str(conditions.mode)]
    assert CALIBRATION.launch_decides(conditions, time_ns, tied=tied) is decides
    note = launch_note(CALIBRATION, conditions, time_ns, tied=tied)
    assert bool(note) is decides
    assert ("are tied" in note) is (decides and tied)


def test_mode_that_was_not_calibrated_says_nothing() -> None:
    assert not CALIBRATION.launch_decides(WARM, 1.0)
    assert launch_note(CALIBRATION, WARM, 1.0) == ""
    assert launch_note(None, COLD, 1.0) == ""
    assert launch_note(Calibration({}), COLD, 1.0) == ""


def test_calibration_of_before_says_nothing() -> None:
    data = CALIBRATION.to_json()
    del data["launch_ns"]
    old = Calibration.from_json(json.loads(json.dumps(data)))
    assert old == replace(CALIBRATION, launch_ns={})


# -- the calibration


@pytest.mark.parametrize(("mode", "calls"), [(Mode.COLD, 1), (Mode.ROTATING, 60), (Mode.WARM, 1)])
def test_least_kernel_finds_its_bytes_as_the_mode_says(mode: Mode, calls: int) -> None:
    """In rotation no call of a batch moves what another has moved; else all move the same."""
    copies, size_bytes = 30, 1 << 22
    moved: list[tuple[int, int]] = []

    def kernel(entry: str, grid: int, block: int, arguments: Sequence[tuple[str, int]]) -> SimpleNamespace:
        (_, x), (_, y), (_, vectors) = arguments
        assert (entry, grid, block, vectors) == ("copy_sweep", 1, 32, 32)
        return SimpleNamespace(pair=(x, y))

    def address(name: str, copy: int) -> int:
        return ((name == "y") * copies + copy) * size_bytes

    calibrator = Calibrator.__new__(Calibrator)
    calibrator._ceilings = cast(Helpers, SimpleNamespace(kernel=kernel))
    batch = Batch(1, 1) if mode is Mode.COLD else Batch(60, 30)
    data = SimpleNamespace(copies=batch.copies, address=address)
    session = SimpleNamespace(data=data, batch=batch, conditions=Conditions(mode))
    least = calibrator._least(cast(ProblemSession, session))
    graph = cast(Graph, SimpleNamespace(kernel=lambda kernel: moved.append(kernel.pair)))
    for call in range(2 * batch.calls_for(LEAST_NS)):
        least.add_to(graph, call % batch.copies)
    assert len(set(moved)) == calls
    assert moved[:calls] == moved[calls : 2 * calls]
    ends = sorted({end for pair in moved for end in pair})
    assert all(b - a >= 512 for a, b in pairwise(ends))
    assert all(end % size_bytes <= size_bytes - 512 for end in ends)


# -- tune run


def run_of(database: Database, tmp_path: Path, scale: float) -> Result:
    """Tune on a device whose kernels take so many times what they usually do."""

    def answer(found: Configuration) -> Measurement:
        return good(scale * time_of(found))

    class Device(StubDevice):
        def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
            return scale * time_of(configuration)

    device = Device(answer=answer)
    device.calibration = CALIBRATION
    device.confirmed = lambda found, _: answer(found)
    kernel = scale_kernel(tmp_path / "kernel")
    result = tune(
        Request(kernel, kernel.problem(), RunOptions(trials=8, sampler="random")), device, database, Watcher()
    )
    assert result.finish is not None
    return result


@pytest.mark.parametrize(("scale", "decides"), [(0.04, True), (1.0, False)])
def test_summary(database: Database, tmp_path: Path, scale: float, decides: bool) -> None:
    result = run_of(database, tmp_path, scale)
    text = summary(result, database.path)
    assert ("launch latency decides: 4." in text) is decides
    assert result_as_json(result)["winner"]["launch_decides"] is decides


# -- tune bench


BEST, DEFAULT = configuration("ok", 256, 2), configuration("ok", 32, 1)


@pytest.mark.parametrize(
    ("best", "default", "decides"),
    [(4500.0, 9000.0, True), (5500.0, 9000.0, False), (6000.0, 6001.0, True), (7000.0, 7001.0, False)],
)
def test_bench(
    database: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    best: float,
    default: float,
    decides: bool,
) -> None:
    kernel: KernelSpec = kernel_with_baselines(tmp_path / "kernel")
    remember(database, kernel, kernel.problem(), BEST, best)
    device = BenchDevice({BEST: best, DEFAULT: default}, noise=0.0001)
    device.calibration = CALIBRATION
    (target,) = targets_of(device, kernel, kernel.problem(), stored_winners(database, device.gpu).rows)
    found = bench(device, target, choose_against(kernel, ["default"]), 20, 0)
    show_bench(found)
    assert ("launch latency decides" in capsys.readouterr().out) is decides
    assert bench_as_json(found, None)["launch_decides"] is decides
