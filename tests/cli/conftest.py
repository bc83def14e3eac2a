"""Where tests of commands run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.filled_database import two_runs


@pytest.fixture
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command starts in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with the runs of two problems."""
    return two_runs(tmp_path, monkeypatch)
