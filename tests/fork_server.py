"""Python's children as forks of a server that has imported the tuner: 0.02 s of CPU time for a start instead of 0.35.

With the fixture ``forked_children``, each ``python -m MODULE`` and ``python -c CODE`` that a file's tests start is one:
a child of the test's process as before, with streams, environment, folder and session of its own. It is not for tests
of what a fork has otherwise: its memory, its hashes' seed, ``/proc/PID/environ``, what happens while Python starts.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TextIO, cast

import pytest

IMPORTED = (
    "cuda.bindings.driver",
    "tuner.check.host_worker",
    "tuner.cli.run",
    "tuner.compile.signature",
    "tuner.compile.worker",
    "tuner.explain.code_worker",
)
NO_FORK = "NO_FORK"
"""Variable of the environment of a child that is a process of its own all the same."""
MAX_MESSAGE_BYTES = 1 << 18
PR_SET_CHILD_SUBREAPER = 36
ONE_AT_A_TIME = threading.Lock()
SIGNATURE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def forked_children() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkedPopen)
        yield


class ForkedPopen(subprocess.Popen[Any]):
    """``subprocess.Popen``; what would be a Python process is a fork of the server."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        given = SIGNATURE.bind(self, args, *more).arguments
        command = list(map(os.fspath, args)) if isinstance(args, list | tuple) else []
        program = command[2:] if command[1:2] == ["-P"] else command[1:]
        environment = dict(os.environ if given["env"] is None else given["env"])
        special = NO_FORK in environment or given["preexec_fn"] or given["pass_fds"] or given["executable"]
        if special or command[:1] != [sys.executable] or program[:1] not in (["-m"], ["-c"]):
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        try:
            streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
            self.pid = fork(
                program,
                [number if stream == -1 else stream for number, stream in enumerate(streams)],
                folder=os.fspath(given["cwd"] or Path.cwd()),
                path=[] if "-P" in command[:2] else [os.fspath(given["cwd"] or "")],
                environment=environment,
                new_session=bool(given["start_new_session"]),
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*(given[name] for name in names))  # type: ignore[attr-defined]


def fork(program: Sequence[str], streams: Sequence[int], **more: Any) -> int:
    """Return the id of a new child of this process that runs a program.

    The server's child ends at once, so that Linux gives its own child to this process, which asks for such ones.
    """
    prctl = ctypes.CDLL(None).prctl
    with ONE_AT_A_TIME:
        connection = server(more["environment"].get("LD_LIBRARY_PATH", ""))
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(connection, [json.dumps({"program": program, **more}).encode()], streams)
            return int(connection.recv(100))
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0)


@cache
def server(library_path: str) -> socket.socket:
    """Start the server for a search path of libraries; it ends when this end of its socket is closed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, sys.path)])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "OPENBLAS_NUM_THREADS": "1",
        "LD_LIBRARY_PATH": library_path,
    }
    command = [sys.executable, "-m", "tests.fork_server", str(its.fileno())]
    process = subprocess.Popen(command, pass_fds=[its.fileno()], start_new_session=True, env=environment)
    its.close()

    def end() -> None:
        ours.close()
        process.wait(10)

    atexit.register(end)
    return ours


def serve(connection: socket.socket) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    with contextlib.suppress(Exception):  # no NVRTC: its users say so
        importlib.import_module("tuner.compile.nvrtc").nvrtc()
    gc.collect()
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 3)
        if not message:
            return
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            parent = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == parent:
                time.sleep(0.0001)
            connection.close()
            os.close(reading)
            run(json.loads(message), streams, writing)
        os.waitpid(between, 0)
        for descriptor in (writing, *streams):
            os.close(descriptor)
        connection.send(os.read(reading, 100))
        os.close(reading)


def run(what: dict[str, Any], streams: Sequence[int], started: int) -> NoReturn:
    """Become the program; ``started`` gets this process's id."""
    if what["new_session"]:
        os.setsid()
    os.write(started, str(os.getpid()).encode())
    os.close(started)
    code = 1
    try:
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, max(streams) + 1)
        os.environ.clear()
        os.environ.update(what["environment"])
        os.chdir(what["folder"])
        own = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        sys.path[:] = dict.fromkeys([*what["path"], *own, *sys.path])
        sys.stdin, sys.stdout, sys.stderr = (stream(number) for number in range(3))
        execute(what["program"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for file in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                file.flush()
        os._exit(code)


def stream(number: int) -> TextIO:
    encoding, errors = (
        os.environ.get("PYTHONIOENCODING", "utf-8"),
        "backslashreplace" if number == 2 else None,
    )
    file = open(number, "w" if number else "r", 1 if number == 2 else -1, encoding, errors, closefd=False)  # noqa: SIM115
    return cast(TextIO, file)


def execute(program: Sequence[str]) -> None:
    how, what, *arguments = program
    sys.argv = ["-c", *arguments]
    if how == "-c":
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(what, "<string>", "exec"), main.__dict__)
    else:
        sys.modules.pop(what, None)  # or runpy warns
        runpy.run_module(what, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
