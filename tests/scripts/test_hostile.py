"""scripts/hostile.py: what it finds fault with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.hostile_input import runner


def problems(folder: Path, work: Callable[[], int], *arguments: str) -> str:
    streams = folder.parent / "streams"
    streams.mkdir()
    folder.mkdir()
    (folder / "tuning.db").write_text("as it was")
    ended = runner.run_and_check(runner.Command("x", arguments, ("out",)), folder, streams, work)
    return "; ".join(ended.problems)


def refused() -> int:
    print("tune: no; do something else", file=sys.stderr)
    return 2


def kill() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def spin() -> int:
    with contextlib.suppress(KeyboardInterrupt):
        end = time.process_time() + runner.CPU_S + 0.1
        while time.process_time() < end:
            pass
    return 0


def grow() -> int:
    # Far beyond: meanwhile Linux may take back pages that the process had before, which count as resident, too.
    return len(bytearray(b"x") * (2 * runner.RSS_BYTES)) * 0


FAULTS: dict[str, Callable[[], object]] = {
    "traceback": lambda: 1 / 0,
    "signal": kill,
    "status": lambda: 3,
    "slow": spin,
    "memory": grow,
    "control: stdout": lambda: print("\x1b[2J"),
    "control: stderr": lambda: print("a\u202eb", file=sys.stderr),
    "error: nothing": lambda: 1,
    "error: the last line": lambda: print("oh", file=sys.stderr) or 1,
    "files: made": lambda: Path("made").write_text("x") * 0,
    "files: changed": lambda: Path("tuning.db").write_text("x") * 0,
    "outside": lambda: Path("../made").write_text("x") * 0,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CPU_S", 0.3)
    monkeypatch.setattr(runner, "PATIENCE", 150.0)
    folder = tmp_path / "case"

    def work() -> int:
        os.chdir(folder)
        sys.addaudithook(runner._watch(folder.resolve()))
        return int(FAULTS[fault]() or 0)  # type: ignore[call-overload]

    assert fault in problems(folder, work)


@pytest.mark.parametrize("work", [refused, lambda: 0, lambda: Path("out").write_text("x") * 0])
def test_what_is_as_documented_is_no_fault(tmp_path: Path, work: Callable[[], int]) -> None:
    def there() -> int:
        os.chdir(tmp_path / "case")
        return work()

    assert problems(tmp_path / "case", there) == ""


@pytest.mark.usefixtures("forked_children")
def test_a_sample_of_the_campaign_passes() -> None:
    script = Path(__file__).parents[2] / "scripts/hostile.py"
    counts = ("--databases", "1", "--files", "1", "--seed", "g", "--jobs", "1")
    done = subprocess.run([sys.executable, script, *counts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 commands" in done.stdout
