"""A process that runs kernels on the CPU, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.inspect.check.cpu_run import CpuChild
from tuner.core.processes import Child
from tuner.inspect.check.host_worker import HOST_RUNS


@pytest.fixture(scope="module")
def child() -> Iterator[CpuChild]:
    worker = Child("tuner.inspect.check.host_worker", HOST_RUNS, ["1"])
    yield worker
    worker.kill()
