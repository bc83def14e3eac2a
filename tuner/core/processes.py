"""Child processes that can be killed at any moment, and never outlive their parent.

Messages (:mod:`tuner.core.messages`) go through the child's stdin and stdout, each behind a four-byte length. A child
runs in a process group of its own, so that killing it takes its own children along.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Generic

import msgspec

from tuner.core.messages import MAX_MESSAGE_BYTES, Channel, Reply, Request
from tuner.core.printed import PIECE_BYTES, Printed

EXIT_S = 2.0
"""How long a child that has closed its pipe may take to end by itself."""
_PR_SET_PDEATHSIG = 1
_BOUNDED = threading.Lock()


class ChildDied(Exception):  # noqa: N818 - an event, not a fault
    """The child's end of the pipe closed, or it sent nonsense and was killed; ``reason`` says how it ended."""

    def __init__(self, reason: str, max_rss_bytes: int = 0) -> None:
        self.reason = reason
        self.max_rss_bytes = max_rss_bytes
        super().__init__(reason)


ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Unless the user has said otherwise. NumPy starts a thread for each core where it is imported, and these threads spin
while they wait: on a host with 16 cores and an H200 a list of six problems took 77 s with them, and 72 s without."""


class Child(Generic[Request, Reply]):
    """A Python module running in a process of its own.

    Start it from a thread that lives as long as the child should: Linux sends the death signal when the
    *thread* that created the child ends.

    Args:
        module: its name.
        channel: what is said to it, and what it says.
        arguments: its command line.
        environment: of it alone, as far as the user has not said otherwise.
    """

    def __init__(
        self,
        module: str,
        channel: Channel[Request, Reply],
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._channel = channel
        self.most_bytes = MAX_MESSAGE_BYTES
        """Of a message that it may send."""
        self._printed = Printed()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed.writing,
                start_new_session=True,
                env={
                    **ONE_BLAS_THREAD,
                    **environment,
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sorted(filter(None, sys.path), key=_is_here)),
                },
            )
        finally:
            os.close(self._printed.writing)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out = self._process.stdout.fileno()
        self._buffer = bytearray()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether it has not ended; only for the thread that uses the child."""
        return self._process.poll() is None

    def send(self, message: Request) -> None:
        """Write one message.

        Raises:
            ChildDied: the child reads no more.
            UnsendableError: the message cannot be written; the child is as it was.
        """
        frame = _framed(self._channel.requests.encode(message))
        try:
            self._in.write(frame)
            self._in.flush()
        except (BrokenPipeError, ValueError):
            raise self._death() from None

    def receive(self, timeout_s: float | None) -> Reply | None:
        """Read one message, or give None when the time is over.

        Raises:
            ChildDied: the child has ended, or was killed because its message is malformed.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            data = self._take()
            if data is not None:
                try:
                    return self._channel.replies.decode(data)
                except msgspec.DecodeError as error:
                    raise self._nonsense(str(error)) from None
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            # poll and not select, which cannot watch a descriptor above 1023.
            if not self._poll.poll(None if wait is None else 1000 * wait):
                return None
            data = os.read(self._out, 1 << 20)
            if not data:
                raise self._death()
            self._buffer += data

    def _take(self) -> bytes | None:
        """Return the next message's bytes once they are all there."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from("<I", self._buffer)
        if length > self.most_bytes:
            raise self._nonsense(f"a message of {length} bytes")
        if len(self._buffer) < 4 + length:
            return None
        data = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return data

    def _nonsense(self, what: str) -> ChildDied:
        self.stop()
        return ChildDied(f"killed after nonsense: {what}")

    def _death(self) -> ChildDied:
        rss, stopped = 0, False
        deadline = time.monotonic() + EXIT_S
        with contextlib.suppress(ChildProcessError):
            while self._process.returncode is None:  # looked at first: this process may have stood still
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                if pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    rss = usage.ru_maxrss * 1024
                elif time.monotonic() < deadline:
                    time.sleep(0.001)
                elif stopped:
                    break
                else:
                    self.stop()  # it closed its pipe and lives on
                    stopped, deadline = True, time.monotonic() + EXIT_S
        code = self._process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return ChildDied(f"killed by {signal.Signals(-code).name}{self._printed.last_line()}", rss)
        return ChildDied(f"exit status {code}{self._printed.last_line()}", rss)

    def stop(self) -> None:
        """Kill the process group; a thread that reads from the child finds out, and any thread may call this."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self, patience_s: float = 10.0) -> bool:
        """Kill the process group, reap the child and close its pipes; only for the thread that uses the child.

        Returns:
            False when the kernel holds the process even so (a driver that does not release it).
        """
        self.stop()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        for stream in (self._in, self._process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        return True


def ask_once(
    module: str, channel: Channel[Request, Reply], request: Request, deadline_s: float
) -> Reply | None:
    """Return the reply of a child that answers one request and ends; None if it takes too long.

    Raises:
        ChildDied: it ended without an answer, or gave a malformed one.
        UnsendableError: the request cannot be written.
    """
    child = Child(module, channel)
    try:
        child.send(request)
        return child.receive(deadline_s)
    finally:
        child.kill()


def _is_here(folder: str) -> bool:
    """Return whether that is the working folder, in which names of libraries may be those of other files."""
    try:
        return Path(folder).samefile(os.curdir) and not Path(__file__).is_relative_to(folder)
    except OSError:
        return False


def _framed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def forked(work: Callable[[], bytes], limit_s: float, more_bytes: int) -> bytes | None:
    """Return what a function gives, computed in a fork of this process: b"" if that dies, None if it is late.

    Only the death of a process ends a single call of C code, in which Python handles no signal. A fork, unlike
    :class:`Child`, has what the function needs, and is there in milliseconds. It must do no more than compute: what
    other threads of this process do stands still in it.

    Args:
        work: the function.
        limit_s: after which the fork is killed.
        more_bytes: of address space that it may take.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            global _BOUNDED  # another thread may hold it for ever now
            _BOUNDED = threading.Lock()
            die_with_parent()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            limit_memory(more_bytes)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_framed(work()))
        finally:
            os._exit(0)
    os.close(writing)
    deadline, data = time.monotonic() + limit_s, bytearray()
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    try:
        while (left_s := deadline - time.monotonic()) > 0 and poll.poll(1000 * left_s):
            piece = os.read(reading, 1 << 20)
            if not piece:
                break
            data += piece
        else:
            return None
    finally:
        with contextlib.suppress(OSError):  # a program that ignores SIGCHLD has no child that has ended
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(reading)
    return bytes(data[4:]) if data[:4] == struct.pack("<I", max(0, len(data) - 4)) else b""


class ParentPipe(Generic[Request, Reply]):
    """The child's side of the pipe.

    Args:
        channel: as the parent has it.
    """

    def __init__(self, channel: Channel[Request, Reply]) -> None:
        die_with_parent()
        self._channel = channel
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.fdopen(os.dup(1), "wb")
        # What the child or a kernel prints must not get between the messages.
        os.dup2(2, 1)
        # By itself Python writes each line of stderr at once, and in a container (PYTHONUNBUFFERED) each word.
        sys.stdout = sys.stderr = open(1, "w", PIECE_BYTES, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        # A Ctrl-C in the terminal is the parent's to act on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def receive(self) -> Request | None:
        """Read one message; None when the parent has closed the pipe.

        Raises:
            msgspec.DecodeError: it is malformed.
        """
        head = self._in.read(4)
        if len(head) < 4:
            return None
        (length,) = struct.unpack("<I", head)
        if length > MAX_MESSAGE_BYTES:
            raise msgspec.DecodeError(f"a message of {length} bytes")
        data = self._in.read(length)
        if len(data) < length:
            return None
        return self._channel.requests.decode(data)

    def send(self, message: Reply) -> None:
        """Write one message.

        Raises:
            UnsendableError: it cannot be written.
        """
        self._out.write(_framed(self._channel.replies.encode(message)))
        self._out.flush()


def _mapped_bytes() -> int:
    """Return how much address space this process uses."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def limit_memory(more_bytes: int) -> None:
    """Let this process's address space grow by so much at most, for good, and let it leave no core file.

    A lower limit that is there already stays. What is mapped already does not count: importing NumPy maps 40 MiB for
    each core, so that a fixed limit that is enough on 16 cores is too little for any compilation on 32.
    """
    there = [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
    lowest = min([_mapped_bytes() + more_bytes, *there])
    resource.setrlimit(resource.RLIMIT_AS, (lowest, lowest))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def bounded_memory(more_bytes: int) -> Iterator[None]:
    """Let this process's address space grow by so much at most; a limit that is there already stays instead."""
    with _BOUNDED:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield
            return
        bound = _mapped_bytes() + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def die_with_parent() -> None:
    """Have Linux kill this process when the thread ends that has started it."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
