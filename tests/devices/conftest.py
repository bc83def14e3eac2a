"""A device with a measuring process that has no GPU, for each test a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.devices.fake_device import WORKER, LastingPool
from tests.devices.fake_measuring import log_into
from tuner.children.compile_pool import CompilePool
from tuner.devices.guard import Guard
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log_into(tmp_path, monkeypatch)


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SLEEP_S", "0.1")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompilePool]:
    pool = LastingPool(2, tmp_path_factory.mktemp("cache") / "cubins")
    yield pool
    CompilePool.close(pool)


@pytest.fixture
def device(tmp_path: Path, pool: CompilePool) -> Iterator[LocalDevice]:
    device = LocalDevice(Processes(0, None, tmp_path / "cache", WORKER, pool))
    yield device
    device.close()


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard(WORKER, [])
    guard.hello()
    yield guard
    guard.close()
