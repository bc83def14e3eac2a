"""No GPU, no database; each configuration is read once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.cli import explain as cli_explain
from tuner.inspect.explain.code import read_code
from tuner.inspect.explain.explanation import patterns_of
from tuner.report.configurations import ChosenConfiguration


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No GPU, no database, no disassembler."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuner.devices.choose.has_gpu", lambda: False)


_READ: dict[tuple[object, ...], Any] = {}


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of a configuration is remembered: most of the time of a command."""

    def once(function: Callable[..., Any], *of: Any) -> Any:
        chosen = of[0] if len(of) == 1 else ChosenConfiguration(*of)
        key = (function, chosen.kernel.file, chosen.problem.key, chosen.gpu, chosen.configuration)
        if key not in _READ:
            _READ[key] = function(*of)
        return _READ[key]

    monkeypatch.setattr(cli_explain, "read_code", functools.partial(once, read_code))
    monkeypatch.setattr(cli_explain, "patterns_of", functools.partial(once, patterns_of))
