"""A real GPU, or a skip that says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes, has_gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here, skipped = Path(__file__).parent, not has_gpu()
    for item in items:
        if item.path.parent == here:
            item.add_marker(pytest.mark.gpu)
            if skipped:
                item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDevice]:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    jobs = max(1, len(os.sched_getaffinity(0)) // workers)
    device = LocalDevice(Processes(0, jobs, tmp_path_factory.mktemp("cache")))
    yield device
    device.close()
