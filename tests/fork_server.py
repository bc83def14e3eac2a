"""Python's children as forks of a server that has imported the tuner: 0.01 s of CPU time for a start instead of 0.35.

Each ``python -m MODULE``, ``python -c CODE``, ``python FILE.py`` and script of this Python's that :class:`ForkedPopen`
starts is one: a child of the process that starts it, with streams, environment, folder and session of its own;
``/proc`` has its command line, and its mark. The tuner's children are forks in all tests without a GPU, and with the
fixture ``forked_children`` all those that a file's tests start. One that is not among ``WORKERS`` has a server of its
own, so that its children are forks, too. It is not for tests of what a fork has otherwise: its memory, its hashes'
seed, what happens while Python starts.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import inspect
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import tuner
from tests import builtin_kernels, compiled_once  # noqa: F401 - before what compiles is imported
from tuner.children.nvrtc import nvrtc
from tuner.core import processes
from tuner.core.processes import die_with_parent
from tuner.database import opening
from tuner.kernel import identity
from tuner.kernel.load import load_kernel

ROOT = Path(__file__).resolve().parents[1]
WORKERS = (
    "tests.faults.fake_worker",
    "tuner.inspect.check.host_worker",
    "tuner.children.compile_worker",
    "tuner.database.sql",
)
"""They start no Python."""
IMPORTED = (
    *WORKERS, "cuda.bindings.driver", "jinja2.debug", "tests.faults.drive",
    "tests.faults.simulated_device", "tests.faults.tune_fake", "tests.stored", "tuner.fleet.searcher",
)  # fmt: skip
NO_FORK = "NO_FORK"
"""Variable of the environment of a child that is a process of its own all the same."""
PATIENT = {(processes, "EXIT_S"): 30.0, (identity, "RENDER_S"): 60.0}
"""What processes of tests wait for longer than those of users: any of them may stand still for seconds."""
COLLECTOR = (50_000, 20, 50)
"""How often Python looks for cycles: with its own (700, 10, 10) that is a twelfth of the time of tests of a run."""
MARK = "FAKE_MARK"
"""Variable that tells a tuner's descendants; at most 32 characters."""
TITLE_BYTES = 1024
MAX_MESSAGE_BYTES = 1 << 18
CLONE_PARENT = 0x8000
CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
"""The number of the system call."""
SIGNATURE = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
Popen = subprocess.Popen


class ForkedPopen(Popen[Any]):
    """``subprocess.Popen``; what would be a Python process is a fork of the server."""

    def _execute_child(self, args: Any, *more: Any) -> None:
        given = SIGNATURE.bind(self, args, *more).arguments
        command = _interpreted(list(map(os.fspath, args))) if isinstance(args, list | tuple) else []
        environment = dict(os.environ if given["env"] is None else given["env"])
        special = any(given[name] for name in ("pass_fds", "executable", "shell"))
        special |= given["preexec_fn"] not in (None, die_with_parent)
        forks = not special and NO_FORK not in environment and os.getpid() == OWNER and CLONE is not None
        if not forks or command[:1] != [sys.executable] or _program(command) is None:
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        try:
            self.pid = _server(environment.get("LD_LIBRARY_PATH", "")).fork(
                {
                    "command": command,
                    "folder": os.fspath(given["cwd"] or Path.cwd()),
                    "environment": environment,
                    "new_session": bool(given["start_new_session"]),
                    "dies_with_parent": given["preexec_fn"] is not None,
                },
                [number if stream == -1 else stream for number, stream in enumerate(streams)],
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*(given[name] for name in names))  # type: ignore[attr-defined]


subprocess_with_forks = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedPopen})
"""To be put where a module has :mod:`subprocess`."""


@pytest.fixture(scope="module")
def forked_children() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", ForkedPopen)
        yield


def _interpreted(command: list[str]) -> list[str]:
    """Return a command with Python in front where it is a script of this Python's."""
    with contextlib.suppress(OSError, IndexError):
        if Path(command[0]).is_absolute() and command[0] != sys.executable:
            with Path(command[0]).open("rb") as file:
                if file.readline(1000) == f"#!{sys.executable}\n".encode():
                    return [sys.executable, *command]
    return command


def _program(command: Sequence[str]) -> tuple[str, str, list[str]] | None:
    """Return how a Python begins: the way, what is run, and its arguments; None for what is not known here."""
    match command[2:] if command[1:2] == ["-P"] else command[1:]:
        case [("-m" | "-c") as way, name, *arguments]:
            return way, name, list(arguments)
        case [file, *arguments] if file.endswith(".py") or Path(file).is_absolute():
            return "file", file, list(arguments)
    return None


class Server:
    """A process that forks on request; the forks are children of the process that asks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._asked = 0

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """Return the number of a new process.

        A signal's exception can end a call before its answer has come: the next one takes that child for no one's.
        """
        with self._lock:
            self._asked += 1
            socket.send_fds(self._connection, [f"{self._asked} {json.dumps(request)}".encode()], streams)
            answered = number = 0
            while answered != self._asked:
                if answered and number > 0:
                    os.kill(number, signal.SIGKILL)
                    os.waitpid(number, 0)
                answered, number = map(int, self._connection.recv(64).split())
        if number < 0:
            raise OSError("no process can be forked")
        return number


_STARTING = threading.Lock()
OWNER = os.getpid()
"""The process whose children the server's forks are: not one that was forked from it otherwise."""
_OWN: list[Server] = []
"""The server that a fork has from its beginning."""


def _server(library_path: str) -> Server:
    with _STARTING:
        return _OWN[0] if _OWN else _started(library_path)


@cache
def _started(library_path: str) -> Server:
    """Start the server for a search path of libraries; it ends when this end of its socket is closed."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "OPENBLAS_NUM_THREADS": "1",  # a process with threads is not to be forked
        "LD_LIBRARY_PATH": library_path,
        MARK: "-" * 32,
    }
    code = f"from tests.fork_server import serve; serve({its.fileno()})"
    command = [sys.executable, "-P", "-c", code, "-" * TITLE_BYTES]
    there = threading.Event()

    def keep() -> None:
        process = Popen(command, env=environment, pass_fds=[its.fileno()])
        there.set()
        process.wait()

    # In a thread that lasts: Linux kills a tuner's child with the thread that has started it, here the server.
    threading.Thread(target=keep, daemon=True, name="fork-server").start()
    there.wait()
    its.close()
    return Server(ours)


# -- in the server


def serve(descriptor: int) -> NoReturn:
    """Import everything, then fork for each request, until the other end is closed."""
    commands = (Path(tuner.__file__).parent / "cli").rglob("[!_]*.py")
    for name in (*IMPORTED, *(".".join(file.relative_to(ROOT).with_suffix("").parts) for file in commands)):
        importlib.import_module(name)
    with contextlib.suppress(Exception):  # no NVRTC: its users say so
        nvrtc()
    opening.SYNCHRONOUS = ("OFF", "OFF")  # as in the tests' own process
    for (module, name), seconds in PATIENT.items():
        setattr(module, name, seconds)
    builtin_kernels.read_once()
    load_kernel("gemm")  # which most forks would read
    gc.collect()
    gc.freeze()  # what is there is not written to, and stays shared with the forks
    gc.set_threshold(*COLLECTOR)
    _serve(socket.socket(fileno=descriptor))


def _serve(connection: socket.socket) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, streams, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 3)
        if not message:
            os._exit(0)
        reading, writing = os.pipe()
        number = _clone()
        if number == 0:
            _become(json.loads(message.partition(b" ")[2]), streams)
        for descriptor in (writing, *streams):
            os.close(descriptor)
        os.read(reading, 1)  # closed by the fork once it can be told by its mark, and killed with its session
        os.close(reading)
        connection.send(message.partition(b" ")[0] + b" " + str(number).encode())


def _clone() -> int:
    """Fork a process whose parent is that of this one."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    number = int(ctypes.CDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if number == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return number


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Become the program that is asked for."""
    code, command = 1, request["command"]
    try:
        if request["new_session"]:
            os.setsid()
        if request["dies_with_parent"]:
            die_with_parent()
        _retitle(command, request["environment"].get(MARK, ""))
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        program = _program(command)
        assert program is not None
        if program[1] in WORKERS:
            _OWN.clear()
        else:
            give_own_server()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _streams()
        own = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
        first = [] if "-P" in command[1:2] else [str(Path(program[1]).parent) if program[0] == "file" else ""]
        sys.path[:] = dict.fromkeys([*first, *own, *sys.path])
        code = _run(*program)
    except BaseException:  # noqa: BLE001 - of this function alone
        traceback.print_exc()
    finally:
        os._exit(code)


def give_own_server() -> None:
    """Fork a server for this process, before it has threads, that its Python children are forks of."""
    global OWNER
    OWNER = os.getpid()
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _retitle(["a server of forks"], os.environ.get(MARK, ""))  # not to be taken for the program
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # the ends of pipes are the other's alone
            os.dup2(null, stream)
        die_with_parent()
        _serve(its)
    its.close()
    _OWN[:] = [Server(ours)]
    subprocess.Popen = ForkedPopen  # type: ignore[misc]


def _streams() -> None:
    """Make Python's streams, of what the descriptors are now."""
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, encoding, errors or None, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, encoding, "backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]


def _retitle(words: list[str], mark: str) -> None:
    """Write the command line, and the mark in the environment, where ``/proc`` has them from."""
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last, environment, _ = map(int, stat[45:49])
    size = last - first
    title = b"".join(os.fsencode(word) + b"\0" for word in words)[: size - 1]
    ctypes.memmove(first, title.ljust(size, b"\0"), size)
    variables = Path("/proc/self/environ").read_bytes()
    place = (b"\0" + variables).find(f"\0{MARK}=".encode())
    if place >= 0:
        ctypes.memmove(environment + place + len(MARK) + 1, mark[:32].encode().ljust(32, b"\0"), 32)


def _run(way: str, name: str, arguments: list[str]) -> int:
    """Run what is asked for to its end; return the exit status."""
    try:
        _call(way, name, arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    except BaseException:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        code = 1
    for end_with in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore[attr-defined]
        try:
            end_with()
        except OSError:
            code = 120
    return code & 0xFF


def _call(way: str, name: str, arguments: list[str]) -> None:
    sys.argv = [name, *arguments]
    if way == "file":
        runpy.run_path(name, run_name="__main__")
    elif way == "-c":
        sys.argv[0] = "-c"
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(name, "<string>", "exec"), vars(module))
    else:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
        sys.modules.pop(name, None)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
