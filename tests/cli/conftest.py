"""Where tests of commands run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command starts in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
