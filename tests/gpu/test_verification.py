"""The references agree with each other, and times repeat."""

from __future__ import annotations

import statistics

import pytest

from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.space import SearchSpace

SMALL = {
    "m": 65,
    "n": 33,
    "k": 129,
    "rows": 37,
    "batch": 3,
    "groups": 5,
    "b": 70,
    "c": 129,
    "q_heads": 5,
    "k_heads": 3,
    "pairs": 33,
}


@pytest.mark.parametrize("name", builtin_kernels())
def test_cuda_reference_agrees_with_numpy(device: LocalDevice, name: str) -> None:
    """``prepare`` compares them at small sizes, and raises where they differ."""
    kernel = load_kernel(name)
    assert kernel.reference.numpy and kernel.reference.cuda
    for dtype in kernel.dtypes[next(iter(kernel.dtypes))]:
        sizes = {size: SMALL.get(size, 1001) for size in kernel.sizes}
        device.prepare(kernel, kernel.problem(sizes, {"": dtype}), seed=3)


def test_one_kernel_against_itself(device: LocalDevice) -> None:
    kernel = load_kernel("vector_add")
    problem = kernel.problem({"n": 1 << 26})
    device.prepare(kernel, problem, seed=1)
    default = SearchSpace.from_kernel(kernel, problem, device.gpu).default
    found = device.race(
        RaceRequest([Contestant(default, 2e5), Contestant(default, 2e5)], rounds=12, samples=8, seed=0)
    )
    a, b = (found.timed[i].medians_ns for i in (0, 1))
    assert abs(statistics.median(x / y for x, y in zip(a, b, strict=True)) - 1) < 0.01
