"""Forks of the server are to their parent what Python processes are."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fork_server
from tests.faults.command_line import assert_no_process_left
from tests.faults.killing import marked
from tests.faults.processes import gone
from tests.fork_server import MARK, ForkedPopen

SHOWN = """
import os, sys
from pathlib import Path
own = os.getsid(0) == os.getpid()
print(sys.argv, __name__, Path.cwd().name, os.environ["MARK"], os.getppid(), own, input(), flush=True)
print("to the other stream", file=sys.stderr)
sys.exit({end})
"""


@pytest.mark.parametrize(
    ("end", "session"), [("7", True), ("'why'", False), ("1 / 0", True), ("os.kill(os.getpid(), 15)", False)]
)
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
        out, errors = process.communicate("said\n", timeout=200)
        seen.append((process.returncode, out, errors.splitlines()[:1], errors.splitlines()[-1:]))
    assert seen[0] == seen[1]
    assert str(os.getpid()) in seen[1][1] and ("True" in seen[1][1]) == session


def test_proc_shows_a_fork_as_a_process_and_its_children_die_with_it() -> None:
    code = "from tuner.core.processes import Child; from tuner.children.compilation import COMPILING as c\n"
    code += "print(Child('tuner.children.compile_worker', c, ['-', '1000000000']).pid, flush=True); input()"
    environment = {**os.environ, MARK: "of-this-test"}
    with ForkedPopen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert {process.pid, child} <= set(marked("of-this-test"))
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        assert words[1:5] == [b"-P", b"-m", b"tuner.children.compile_worker", b"-"]
        process.kill()
        process.wait()
    assert gone(child)
    assert_no_process_left("of-this-test")


def test_what_was_forked_otherwise_starts_processes_of_its_own() -> None:
    """They would be children of the one that has the server."""
    if (pid := os.fork()) == 0:
        code = ForkedPopen([sys.executable, "-c", "import sys; sys.exit(7)"]).wait(200)
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_an_answer_that_was_not_waited_for_is_not_the_next_ones() -> None:
    """As an exception of a signal leaves it."""
    command = [sys.executable, "-c", "import os; print(os.getpid())"]
    server = fork_server._server(os.environ.get("LD_LIBRARY_PATH", ""))
    request = {"command": command, "folder": "/", "environment": dict(os.environ)}
    request |= {"new_session": False, "dies_with_parent": False}
    server._asked += 1
    socket.send_fds(server._connection, [f"{server._asked} {json.dumps(request)}".encode()], [0, 1, 2])
    with ForkedPopen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0] == f"{process.pid}\n"
