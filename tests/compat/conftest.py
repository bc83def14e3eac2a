"""The folder and the device of Kernel Tuner's scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import tune_fake
from tuner.api import tune as module


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of the test's own, on the fake device."""
    monkeypatch.setattr(module, "open_device", tune_fake.open_fake)
    monkeypatch.chdir(tmp_path)
