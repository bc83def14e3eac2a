"""A device of this machine whose measuring process has no GPU (:mod:`tests.faults.fake_worker`)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.faults.kernels import scale_kernel
from tuner.children.compile_pool import CompilePool
from tuner.core.model import Configuration, Problem, Trial
from tuner.devices.local import LocalDevice
from tuner.kernel.spec import KernelSpec

WORKER = "tests.faults.fake_worker"


class LastingPool(CompilePool):
    """Compilers that a device does not end with itself: starting them takes longer than most tests."""

    def close(self) -> None:
        pass


def prepared(device: LocalDevice, folder: Path, **changes: Any) -> tuple[KernelSpec, Problem]:
    kernel = scale_kernel(folder, **changes)
    problem = kernel.problem()
    device.prepare(kernel, problem, 1)
    return kernel, problem


def ask(device: LocalDevice, configurations: list[Configuration]) -> list[Trial]:
    for number, item in enumerate(configurations):
        device.submit(number, item)
    found: list[Trial] = []
    deadline = time.monotonic() + 120.0
    while len(found) < len(configurations) and time.monotonic() < deadline:
        found += device.collect(0.5)
    assert device.collect(0.0) == []
    return sorted(found, key=lambda outcome: outcome.number)
