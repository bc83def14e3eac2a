"""The command line, without a device of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import said_by

Tune = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Run a command line in an empty folder; give its exit status and streams."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        said = said_by(capsys, *map(str, arguments))
        return said.code, said.out, said.err

    return call
