"""Programs that meet the fake driver, each in a process of its own; and what they share, for them to import."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fake_driver import environment
from tuner.core.errors import TunerError

ROOT = Path(__file__).resolve().parents[2]


def run_program(
    program: str, log: Path, *arguments: Path, **settings: str
) -> tuple[list[str], list[dict[str, Any]]]:
    """Run a program with the fake driver; return the lines it prints, and the log of launches."""
    log.write_text("")
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**environment(log=str(log), **settings), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines(), [json.loads(line) for line in log.read_text().splitlines()]


def count(what: str) -> int:
    """Return how often the fake driver did something in this process."""
    return int(ctypes.CDLL("libcuda.so.1").fake_cuda_count(what.encode()))


def check(result: Any) -> Any:
    """Return what a function of CUDA's bindings gives besides its status, which must be success."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]


def refused(words: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    """A call must be refused in one line with these words, and launch nothing."""
    before = count("launches") + count("captured")
    try:
        call(*arguments, **named)
    except TunerError as error:
        assert words in str(error) and "\n" not in str(error), error
    else:
        raise AssertionError("not refused: " + words)
    assert count("launches") + count("captured") == before
