"""Python processes as forks of one that has imported everything: a start takes milliseconds, not half a second.

``Popen`` is that of :mod:`subprocess`: it starts ``python -m module``, ``python -c code`` and ``python file`` as forks,
and all else as usual. A fork is a child of the process that asks for it, which waits for it, kills it, and takes it
along when it dies; ``/proc`` has its command line, and its mark in its environment. One that is not among ``WORKERS``
has a server of its own, so that its children are forks, too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import tuner
from tuner import processes
from tuner.compile.nvrtc import nvrtc
from tuner.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
MARK = "FAKE_MARK"
"""A variable of the environment that tells a tuner's descendants; at most 32 characters."""
TITLE_BYTES = 1024
CLONE_PARENT = 0x8000
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
WORKERS = (
    "tests.faults.fake_worker",
    "tuner.check.host_worker",
    "tuner.compile.signature",
    "tuner.compile.worker",
    "tuner.database.sql_worker",
    "tuner.database.trial_check",
    "tuner.explain.code_worker",
)
"""They start no Python."""
IMPORTED = (
    *WORKERS,
    "tests.faults.drive",
    "tests.faults.simulated_device",
    "tests.faults.tune_fake",
    "tests.stored",
    "tuner.fleet.searcher",
)


class ForkServer:
    """A process that forks on request; the forks are children of the process that asks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def started(cls) -> ForkServer:
        """Start a server, from a thread that lives as long as this process: its forks die with that thread."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"from tests.faults.fork_server import serve; serve({theirs.fileno()})"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OPENBLAS_NUM_THREADS": "1",  # a process with threads is not to be forked
            MARK: "-" * 32,
        }
        there = threading.Event()

        def keep() -> None:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", code, "-" * TITLE_BYTES],
                env=environment,
                pass_fds=[theirs.fileno()],
            )
            there.set()
            process.wait()

        threading.Thread(target=keep, daemon=True, name="fork-server").start()
        there.wait()
        theirs.close()
        return cls(ours)

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Return the number of a new process."""
        with self._lock:
            socket.send_fds(self._connection, [json.dumps(request).encode()], streams)
            return int(self._connection.recv(32))


_server: ForkServer | None = None
_starting = threading.Lock()


def server() -> ForkServer:
    global _server
    with _starting:
        if _server is None:
            _server = ForkServer.started()
        return _server


class Popen(subprocess.Popen[Any]):
    """A process; a fork if it is a Python that is started in the usual ways."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:  # type: ignore[misc]
        (
            _,
            pass_fds,
            cwd,
            env,
            _,
            _,
            shell,
            p2cread,
            p2cwrite,
            c2pread,
            c2pwrite,
            errread,
            errwrite,
            *more,
        ) = rest
        words = [] if isinstance(args, str | bytes | os.PathLike) else [os.fsdecode(word) for word in args]
        plain = not (executable or preexec_fn or pass_fds or shell) and SYS_CLONE is not None
        if not (plain and words[:1] == [sys.executable] and (what := _what(words[1:]))):
            super()._execute_child(args, executable, preexec_fn, *rest)  # type: ignore[misc]
            return
        request = {
            "what": what,
            "words": words,
            "cwd": os.fsdecode(cwd or Path.cwd()),
            "environment": {
                os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if env is None else env).items()
            },
            "session": more[5] if len(more) > 5 else False,
        }
        streams = [own if end == -1 else end for own, end in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = server().fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a command as :func:`subprocess.run` does."""
    check = options.pop("check", False)
    if options.pop("capture_output", False):
        options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with Popen(command, **options) as process:
        out, err = process.communicate()
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


subprocess_with_forks = SimpleNamespace(**{**vars(subprocess), "Popen": Popen, "run": run})
"""To be put where a module has :mod:`subprocess`."""


def _what(words: list[str]) -> tuple[str, str, list[str]] | None:
    """Return how a Python begins: the way, what is run, and its arguments; None for what is not known here."""
    if words[:1] == ["-P"]:
        words = words[1:]
    match words:
        case [("-m" | "-c") as way, name, *arguments]:
            return way, name, arguments
        case [file, *arguments] if file.endswith(".py"):
            return "file", file, arguments
    return None


# -- in the server


def serve(descriptor: int) -> NoReturn:
    """Import everything, then fork for each request, until the other end is closed."""
    connection = socket.socket(fileno=descriptor)
    commands = (Path(tuner.__file__).parent / "cli").rglob("[!_]*.py")
    for name in (*IMPORTED, *(".".join(file.relative_to(ROOT).with_suffix("").parts) for file in commands)):
        importlib.import_module(name)
    with contextlib.suppress(Exception):
        nvrtc()
    gc.collect()
    gc.freeze()  # what is there is not written to, and stays shared with the forks
    _serve(connection)


def _serve(connection: socket.socket) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not data:
            os._exit(0)
        number = _clone()
        if number == 0:
            _begin(json.loads(data), streams)
        for stream in streams:
            os.close(stream)
        connection.send(str(number).encode())


def _clone() -> int:
    """Fork a sister of this process: its parent is that of this one."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    number = int(ctypes.CDLL(None).syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if number == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return number


def _begin(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Become what is asked for: its streams, its folder, its environment, its words."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if request["session"]:
            os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        _retitle(request["words"], os.environ.get(MARK, ""))
        way, name, arguments = request["what"]
        _own_server(name)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _streams()
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:] = [*filter(None, path), *(p for p in sys.path if p not in path)]
        if "-P" not in request["words"][1:2]:
            sys.path.insert(0, str(Path(name).parent) if way == "file" else "")
        code = _run(way, name, arguments)
    except BaseException:  # noqa: BLE001 - of this function alone
        traceback.print_exc()
    finally:
        os._exit(code)


def _own_server(name: str) -> None:
    global _server
    _server = None
    if name in WORKERS:
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # the ends of pipes are the other's alone
            os.dup2(null, stream)
        die_with_parent()
        _serve(theirs)
    theirs.close()
    _server = ForkServer(ours)
    fork_children()


def fork_children() -> None:
    """Let the tuner start its children as forks, from now on."""
    processes.subprocess = subprocess_with_forks  # type: ignore[assignment]


def _streams() -> None:
    """Make Python's streams, of what the descriptors are now."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = open(1, "w", 1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
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
    ends: list[Callable[[], object]] = [threading._shutdown, atexit._run_exitfuncs]  # type: ignore[attr-defined]
    for end_with in (*ends, sys.stdout.flush, sys.stderr.flush):
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
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(name, "<string>", "exec"), vars(module))
    else:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
        sys.modules.pop(name, None)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
