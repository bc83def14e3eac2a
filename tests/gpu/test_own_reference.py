"""A naive kernel of the user's that says what is right in its own precision, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.test_default import NAIVE, own_kernel
from tuner.core.model import Configuration, Status
from tuner.devices.local import LocalDevice
from tuner.kernel.load import read_kernel


@pytest.mark.parametrize(("missing", "status"), [(0, Status.OK), (1, Status.WRONG_RESULT)])
def test_configurations_are_compared_with_a_naive_kernel(
    device: LocalDevice, tmp_path: Path, missing: int, status: Status
) -> None:
    kernel = read_kernel(own_kernel(tmp_path, NAIVE))
    device.prepare(kernel, kernel.problem(), seed=3)
    configuration = Configuration.of("v", {"block_size": 256, "missing": missing})
    answer = device.verify_at(kernel.problem(), configuration, 60.0, contents=True)
    assert answer is not None and answer.status is status, answer
