"""A real GPU, or a skip that says so."""

from __future__ import annotations

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
    device = LocalDevice(Processes(0, None, tmp_path_factory.mktemp("cache")))
    yield device
    device.close()
