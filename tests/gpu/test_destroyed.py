"""An input that the kernel destroys, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.test_destroyed import ON_GPU, ON_HOST, written
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel


@pytest.mark.parametrize("reference", [ON_HOST, ON_GPU])
def test_it_is_restored_before_each_run(device: LocalDevice, tmp_path: Path, reference: str) -> None:
    kernel = read_kernel(written(tmp_path, reference=reference))
    problem, configuration = kernel.problem(), Configuration.of("v", {"block_size": 64})
    device.prepare(kernel, problem, seed=3)
    measured = device.confirm(configuration, 1e4)
    assert measured.status is Status.OK, measured.error
    answer = device.verify_at(problem, configuration, 60.0, contents=True)
    assert answer is not None and answer.status is Status.OK, answer
