"""Forks of the server are to their parent what Python processes are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fork_server import ForkedPopen
from tuner.processes import Child, ChildDied
from tuner.protocol.compilation import COMPILING

SHOWN = """
import os, sys
from pathlib import Path
own = os.getsid(0) == os.getpid()
print(sys.argv, __name__, Path.cwd().name, os.environ["MARK"], os.getppid(), own, input(), flush=True)
print("to the other stream", file=sys.stderr)
sys.exit({end})
"""


@pytest.mark.parametrize("end", ["0", "7", "'why'", "1 / 0", "os.kill(os.getpid(), 15)"])
@pytest.mark.parametrize("session", [True, False])
def test_a_fork_has_what_a_process_has(end: str, session: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHOWN.format(end=end), "one", "two"]
    seen = []
    for start in (subprocess.Popen, ForkedPopen):
        process = start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "MARK": "here"},
            start_new_session=session,
        )
        out, errors = process.communicate("said\n", timeout=60)
        seen.append((process.returncode, out, errors.splitlines()[:1], errors.splitlines()[-1:]))
    assert seen[0] == seen[1]
    assert str(os.getpid()) in seen[1][1] and ("True" in seen[1][1]) == session


def test_a_module_runs_as_the_main_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert ForkedPopen([sys.executable, "-m", "tuner", "--version"]).wait(60) == 0
    assert capfd.readouterr().out.startswith("tune")


@pytest.mark.usefixtures("forked_children")
def test_a_child_of_the_tuner_can_be_killed() -> None:
    child = Child("tuner.compile.worker", COMPILING, ["-", str(1 << 30)])
    assert child.is_alive()
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildDied, match="SIGKILL"):
        child.receive(60)
    assert child.kill()
