"""A fleet with real compilers and measuring processes, of which only the GPU is fake; and what a kill leaves of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.kernels import write_kernel
from tests.fleets import sound
from tuner.core.errors import DatabaseError
from tuner.database.database import Database

pytestmark = pytest.mark.usefixtures("forked_children", "any_code")

TRIALS = 4
DRIVER = """
import sys
from tuner.cli import fleet, main
from tuner.children.measuring import GpuList
fleet.OPENER = "tests.faults.simulated_device:open_fake"
fleet.has_gpu = lambda: True
fleet.visible_gpus = lambda: GpuList(("NVIDIA H200",) * 2, ("00", "01"))
main()
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return write_kernel(tmp_path, faults=("ok",), blocks=(32, 64, 96, 128), items=range(1, 5))


def start(
    kernel: Path, folder: Path, *arguments: str, sleep_s: float = 0.0, device: str = "cuda:all"
) -> subprocess.Popen[str]:
    """Start a tuner of three problems on two fake GPUs, in a session of its own."""
    words = [
        "-k",
        str(kernel),
        "--trials",
        str(TRIALS),
        "--sampler",
        "random",
        "--db",
        "tuning.db",
        "-j",
        "2",
    ]
    words += [
        "--problem",
        "n=1024",
        "--problem",
        "n=2048",
        "--problem",
        "n=4096",
        "--device",
        device,
        *arguments,
    ]
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, "run", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(root),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "FAKE_SLEEP_S": str(sleep_s),
            "FAKE_LOG": str(folder / "log"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def family(pid: int) -> set[int]:
    """Return a process's descendants."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def gone(pids: set[int], within_s: float = 100.0) -> bool:
    """Return whether processes have ended, or are only waited for."""

    def alive(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
        return False

    deadline = time.monotonic() + within_s
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def measured(folder: Path) -> int:
    try:
        with Database.open(folder / "tuning.db", write=False) as database:
            return int(database.select("SELECT count(*) AS count FROM trials")[0]["count"])
    except DatabaseError:  # it is being made
        return 0


def test_a_gpu_is_calibrated_once_and_one_problem_at_a_time_is_searched(kernel: Path, tmp_path: Path) -> None:
    tuner = start(kernel, tmp_path, device="cuda:0", sleep_s=0.05)
    output, _ = tuner.communicate(timeout=200)
    assert tuner.returncode == 0, output
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert [words[1] for words in lines].count("calibrate") == 1
    searching = {words[0] for words in lines if words[1] == "measure" and words[-1] == "False"}
    assert len(searching) > 2  # two searchers' processes, and fresh ones that confirm
    with Database.open(tmp_path / "tuning.db") as database:
        sound(database, runs=3, trials=TRIALS)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_ended_tuner_leaves_no_process_and_goes_on(kernel: Path, tmp_path: Path, number: int) -> None:
    tuner = start(kernel, tmp_path, sleep_s=0.15)
    deadline = time.monotonic() + 100.0
    while measured(tmp_path) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    children = family(tuner.pid)
    assert len(children) > 4  # searchers, compilers, measuring processes
    os.kill(tuner.pid, number)
    output, _ = tuner.communicate(timeout=100)
    assert gone(children), output
    assert tuner.returncode == (-9 if number == signal.SIGKILL else 130), output
    before = measured(tmp_path)
    assert before >= 2
    again = start(kernel, tmp_path, "--resume")
    output, _ = again.communicate(timeout=100)
    assert again.returncode == 0, output
    with Database.open(tmp_path / "tuning.db") as database:
        sound(database, runs=3, trials=TRIALS)
        assert database.select("SELECT count(*) AS count FROM winners WHERE exportable")[0]["count"] == 3
