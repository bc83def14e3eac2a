"""Child processes that can be killed at any moment, and never outlive their parent.

Messages are JSON objects behind a four-byte length, on the child's stdin and stdout: no pickle, nothing of the
parent's memory. A child runs in a process group of its own, so that killing it takes its own children along.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Any

MAX_MESSAGE_BYTES = 1 << 30
EXIT_S = 2.0
"""How long a child that has closed its pipe may take to end by itself."""
_PR_SET_PDEATHSIG = 1


class ChildDied(Exception):  # noqa: N818 - an event, not a fault
    """The child's end of the pipe closed; ``reason`` says how it ended."""

    def __init__(self, reason: str, max_rss_bytes: int = 0) -> None:
        self.reason = reason
        self.max_rss_bytes = max_rss_bytes
        super().__init__(reason)


class Child:
    """A Python module running in a process of its own.

    Start it from a thread that lives as long as the child should: Linux sends the death signal when the
    *thread* that created the child ends.
    """

    def __init__(self, module: str, arguments: Sequence[str] = ()) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in kill()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
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

    def send(self, message: dict[str, Any]) -> None:
        """Write one message.

        Raises:
            ChildDied: nobody reads any more.
        """
        try:
            self._in.write(_frame(message))
            self._in.flush()
        except (BrokenPipeError, ValueError):
            raise self._death() from None

    def receive(self, timeout_s: float | None) -> dict[str, Any] | None:
        """Read one message, or give None when the time is over.

        Raises:
            ChildDied: the child has ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            message = self._take()
            if message is not None:
                return message
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            # poll and not select, which cannot watch a descriptor above 1023.
            if not self._poll.poll(None if wait is None else 1000 * wait):
                return None
            data = os.read(self._out, 1 << 20)
            if not data:
                raise self._death()
            self._buffer += data

    def _take(self) -> dict[str, Any] | None:
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack_from("<I", self._buffer)
        if len(self._buffer) < 4 + length:
            return None
        message: dict[str, Any] = json.loads(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return message

    def _death(self) -> ChildDied:
        rss = 0
        deadline = time.monotonic() + EXIT_S
        with contextlib.suppress(ChildProcessError):
            while self._process.returncode is None and time.monotonic() < deadline + EXIT_S:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
                if pid:
                    self._process.returncode = os.waitstatus_to_exitcode(status)
                    rss = usage.ru_maxrss * 1024
                elif time.monotonic() > deadline:
                    self.stop()  # it closed its pipe and lives on
                else:
                    time.sleep(0.001)
        code = self._process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return ChildDied(f"killed by {signal.Signals(-code).name}{self._last_words()}", rss)
        return ChildDied(f"exit status {code}{self._last_words()}", rss)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, self._errors.tell() - 2000))
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            if lines:
                return f": {lines[-1][:300]}"
        return ""

    def stop(self) -> None:
        """Kill the process group; whoever reads from the child finds out, and any thread may call this."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self, patience_s: float = 10.0) -> bool:
        """Kill the process group, reap the child and close its pipes; only for the thread that uses the child.

        Returns:
            False when the kernel holds the process even so (a driver that does not let go of it).
        """
        self.stop()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return False
        for stream in (self._in, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        return True


def _frame(message: dict[str, Any]) -> bytes:
    data = json.dumps(message).encode()
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(data)} bytes")
    return struct.pack("<I", len(data)) + data


class ParentPipe:
    """The child's side of the pipe."""

    def __init__(self) -> None:
        _die_with_parent()
        self._in = os.fdopen(os.dup(0), "rb")
        self._out = os.fdopen(os.dup(1), "wb")
        # What the child or a kernel prints must not get between the messages.
        os.dup2(2, 1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        # A Ctrl-C in the terminal is the parent's to act on.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def receive(self) -> dict[str, Any] | None:
        """Read one message; None when the parent has closed the pipe."""
        head = self._in.read(4)
        if len(head) < 4:
            return None
        (length,) = struct.unpack("<I", head)
        data = self._in.read(length)
        if len(data) < length:
            return None
        message: dict[str, Any] = json.loads(data)
        return message

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        self._out.write(_frame(message))
        self._out.flush()


def _die_with_parent() -> None:
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
