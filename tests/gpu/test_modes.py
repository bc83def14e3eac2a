"""Modes, regimes, clocks, calibration, baselines and true errors on a real GPU."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Problem, Status, Trial
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.baselines import Baseline, baselines_of, parse_baseline
from tuner.kernel.default import default_configuration
from tuner.kernel.functions import BaselineKind
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec

RESTED = Regime.RESTED


def measured(device: LocalDevice, configuration: Configuration) -> Trial:
    device.submit(0, configuration)
    while not (trials := device.collect(1.0)):
        pass
    return trials[0]


def default(kernel: KernelSpec, variant: str = "") -> Configuration:
    chosen = kernel.variants[variant] if variant else next(iter(kernel.variants.values()))
    return Configuration.of(chosen.name, chosen.defaults)


def addition(size: int) -> tuple[KernelSpec, Problem]:
    kernel = load_kernel("vector_add")
    return kernel, kernel.problem({"n": size})


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("name", "sizes", "dtype"),
    [
        ("vector_add", {"n": 1}, "float32"),
        ("vector_add", {"n": 100_003}, "float16"),
        ("vector_add", {"n": 2**20}, "float32"),
        ("saxpy", {"n": 54_321}, "float32"),
        ("saxpy", {"n": 2**20 + 3}, "bfloat16"),
        ("gemm", {"m": 129, "n": 65, "k": 77}, "float16"),
        ("gemm", {"m": 1024, "n": 1024, "k": 1024}, "bfloat16"),
    ],
)
def test_right_in_every_mode(
    device: LocalDevice, name: str, sizes: dict[str, int], dtype: str, mode: Mode
) -> None:
    kernel = load_kernel(name)
    problem = kernel.problem(sizes, {"": dtype})
    configuration = default_configuration(kernel, problem, device.gpu)
    assert configuration is not None
    device.prepare(kernel, problem, 1, Conditions(mode, RESTED))
    found = measured(device, configuration)
    assert found.status is Status.OK, found.error
    assert len(found.samples_ns) >= 12
    assert 0.3 * device.gpu.clock_hz < found.sm_clock_hz < 1.02 * device.gpu.clock_hz


def test_modes_are_in_order(device: LocalDevice) -> None:
    kernel, problem = addition(2**20)
    times = {}
    for mode in Mode:
        device.prepare(kernel, problem, 1, Conditions(mode, RESTED))
        times[mode] = median(measured(device, default(kernel)).samples_ns)
    # From memory it takes longer than from the L2, and a pair of events around each call longer still.
    assert 1.3 * times[Mode.WARM] < times[Mode.ROTATING] < 0.95 * times[Mode.COLD]


def test_a_race_may_be_warm_whatever_the_search_was(device: LocalDevice) -> None:
    """On the data of a search with cold ones: a call warms the caches for the next, on one copy of the tensors."""
    kernel, problem = addition(2**20)
    device.prepare(kernel, problem, 1, Conditions(Mode.WARM, RESTED))
    warm_ns = median(measured(device, default(kernel)).samples_ns)
    for mode in (Mode.ROTATING, Mode.COLD):
        device.prepare(kernel, problem, 1, Conditions(mode, RESTED))
        found = device.race(RaceRequest([Contestant(default(kernel), warm_ns)] * 2, 4, 8, 0, Mode.WARM))
        assert [one.verified for one in found.timed.values()] == [True, True], found.failures
        raced_ns = median([sample for one in found.timed.values() for sample in one.samples_ns])
        assert 0.85 * warm_ns < raced_ns < 1.15 * warm_ns
        assert measured(device, default(kernel)).status is Status.OK


def test_a_short_problem_is_timed_in_rotation(device: LocalDevice) -> None:
    short, long = addition(2**16), addition(2**28)
    assert device.choose_conditions(*short, None, RESTED)[0].mode is Mode.ROTATING
    assert device.choose_conditions(*long, None, RESTED)[0].mode is Mode.COLD


def test_sustained_load_lowers_the_clock(device: LocalDevice) -> None:
    """cuBLAS draws enough power for the limit to hold it; the same call rested runs at a higher clock."""
    pytest.importorskip("torch")
    kernel = load_kernel("gemm")
    problem = kernel.problem({"m": 8192, "n": 8192, "k": 8192}, {"": "bfloat16"})
    torch = next(baseline for baseline in baselines_of(kernel) if baseline.name == "torch")
    clocks, times = {}, {}
    for regime in Regime:
        device.prepare(kernel, problem, 1, Conditions(Mode.COLD, regime))
        found = device.race(RaceRequest([Contestant(None, baseline=torch)], 4, 8, 0))
        timed = found.timed[0]
        clocks[regime], times[regime] = timed.sm_clock_hz, median(timed.groups_ns[-1])
        assert timed.verified
    assert times[Regime.SUSTAINED] >= times[RESTED]
    assert clocks[Regime.SUSTAINED] <= clocks[RESTED]


def test_calibration_is_plausible(device: LocalDevice, tmp_path: Path) -> None:
    gpu = device.gpu
    beside = LocalDevice(Processes(0, 1, tmp_path / "cubins"))
    try:
        found = beside.calibrate()
        assert beside.known_calibration() == found  # another process is there: for a quarter of an hour
    finally:
        beside.close()
    peak = gpu.memory_bytes_per_s
    assert 0.6 * peak < found.read_bytes_per_s < 1.02 * peak
    assert 0.6 * peak < found.copy_bytes_per_s < 1.02 * peak
    assert all(0.001 <= share < 0.02 for share in found.noise.values())
    assert found.matrix_flops > 2 * found.vector_flops
    assert 1e3 < found.event_ns < 2e4


def test_another_process_is_noticed(device: LocalDevice) -> None:
    other = LocalDevice(Processes(0, 1, None))
    try:
        assert any("context on this GPU" in note for note in other.notes), other.notes
    finally:
        other.close()


SOURCE = """
// tune: add<<<ceil_div(n, 256), 256>>>(a, b, c, n)
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) c[i] = a[i] + @b[i];
}
"""


@pytest.mark.parametrize("mode", [Mode.COLD, Mode.ROTATING])
def test_all_kinds_in_one_race(device: LocalDevice, tmp_path: Path, mode: Mode) -> None:
    kernel, problem = addition(2**20 + 5)
    (tmp_path / "mine.cu").write_text(SOURCE.replace("@", ""))
    (tmp_path / "wrong.cu").write_text(SOURCE.replace("@", "2 * "))
    (tmp_path / "mine.py").write_text("def add(a, b, c):\n    c.copy_(a).add_(b)\n")
    named = [parse_baseline(str(tmp_path / name)) for name in ("mine.cu", "wrong.cu")]
    try:
        import torch  # noqa: F401

        named.append(parse_baseline(f"{tmp_path / 'mine.py'}:add"))
        named += [baseline for baseline in baselines_of(kernel) if baseline.name == "torch"]
    except ImportError:
        pass
    device.prepare(kernel, problem, 1, Conditions(mode, RESTED))
    contestants = [Contestant(default(kernel)), *(Contestant(None, baseline=baseline) for baseline in named)]
    found = device.race(RaceRequest(contestants, 3, 4, 0))
    assert [contestants[i].baseline for i in found.failures] == [named[1]] and "wrong" in found.failures[2]
    assert all(one.verified for one in found.timed.values())
    times = {
        c.baseline.name if c.baseline else "default": median(found.timed[i].groups_ns[-1])
        for i, c in enumerate(contestants)
        if i in found.timed
    }
    assert times["mine.cu"] < 3 * times["default"]


def test_a_baseline_that_changes_an_input_loses(device: LocalDevice, tmp_path: Path) -> None:
    kernel, problem = addition(2**20 + 5)
    (tmp_path / "spoils.cu").write_text(
        SOURCE.replace("@", "").replace("const float* a", "float* a").replace("a[i] +", "(a[i] *= 2) +")
    )
    device.prepare(kernel, problem, 1, Conditions(Mode.COLD, RESTED))
    spoils = Contestant(None, baseline=parse_baseline(str(tmp_path / "spoils.cu")))
    found = device.race(RaceRequest([Contestant(default(kernel)), spoils], 3, 4, 0))
    assert list(found.failures) == [1] and "input" in found.failures[1], found
    assert found.timed[0].verified


def test_long_kernels_that_work_in_place_are_right_when_warm(device: LocalDevice) -> None:
    """A warm sample of one has a call before its first event and a single timed one."""
    kernel = load_kernel("saxpy")
    device.prepare(kernel, kernel.problem({"n": 2**28}), 1, Conditions(Mode.WARM, RESTED))
    found = measured(device, default(kernel))
    assert found.status is Status.OK, found.error
    raced = device.race(RaceRequest([Contestant(default(kernel))] * 2, 2, 2, 0))
    assert [one.verified for one in raced.timed.values()] == [True, True]


def test_a_baseline_that_is_not_there_loses(device: LocalDevice) -> None:
    kernel, problem = addition(1000)
    device.prepare(kernel, problem, 1)
    absent = Baseline("absent", BaselineKind.PYTHON, "no_such_module_at_all:add")
    found = device.race(
        RaceRequest([Contestant(default(kernel)), Contestant(None, baseline=absent)], 2, 2, 0)
    )
    assert list(found.failures) == [1] and "no_such_module_at_all" in found.failures[1]


@pytest.mark.parametrize(("dtype", "least", "most"), [("float16", 1e-4, 1e-3), ("bfloat16", 1e-3, 1e-2)])
def test_errors_are_counted_from_unrounded_inputs(
    device: LocalDevice, dtype: str, least: float, most: float
) -> None:
    kernel = load_kernel("gemm")
    sizes = {"m": 256, "n": 256, "k": 256}
    truth = kernel.problem(sizes, {"": "float32"})
    device.prepare(kernel, kernel.problem(sizes, {"": dtype}), 1, truth=truth)
    assert device.least_error is not None and least < device.least_error < most
    found = measured(device, default(kernel))
    assert found.status is Status.OK and found.verification is not None
    assert found.verification.true_error is not None
    assert device.least_error <= found.verification.true_error < most
    device.prepare(kernel, truth, 1, truth=truth)
    assert device.least_error == 0.0
    exact = measured(device, default(kernel, "register_tiled")).verification
    assert exact is not None and exact.true_error is not None and exact.true_error < 1e-6
