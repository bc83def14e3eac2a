"""The signals that end a program, the few lines that none of them may interrupt, and Ctrl-C once and twice."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the wish of a scheduler, and a terminal or a connection that was closed."""

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def handled(handler: Handler, *also: int) -> Iterator[None]:
    """Let a function handle the signals of :data:`ENDING`, and others; at the end the former handlers are back.

    A signal that is ignored stays so: ``nohup`` ignores SIGHUP, and a shell's script ignores Ctrl-C for what it runs
    in the background. Outside of the main thread nothing is changed.
    """
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        wanted = [number for number in (*ENDING, *also) if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class OutOfTimeError(BaseException):
    """What was to take a limited time takes longer; no ``except Exception`` of a user's code stops it."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise :class:`OutOfTimeError` where a block takes longer; only in the main thread, which signals interrupt.

    A single call of C code is not interrupted: see :func:`tuner.core.processes.forked`. An alarm that was set before
    comes when it should, or at the end of the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, stop)
    began, (left_s, _) = time.monotonic(), signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - began), 0.001))


def ignore() -> None:
    """Ignore the signals that end a program from now on."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Handle a signal that arrives within the block after it."""
    arrived: list[int] = []
    with handled(lambda number, _: arrived.append(number), signal.SIGALRM):
        yield
    for number in arrived:
        handler = signal.getsignal(number)
        if callable(handler):
            handler(number, None)
        elif number != signal.SIGALRM:
            signal.raise_signal(number)


def leave_terminal() -> None:
    """Write to a terminal no more: it is gone, and each write would fail."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            if os.isatty(stream) or _is_gone(stream):
                os.dup2(null, stream)
        os.close(null)


def _is_gone(stream: int) -> bool:
    """Return whether a stream is a terminal that was closed: it is none any more, and cannot be asked."""
    try:
        os.ttyname(stream)
    except OSError as error:
        return error.errno == 5  # EIO
    return False


drawn_lines = 0
"""Lines of the terminal that a progress panel redraws; the cursor is in the last of them."""


def note(text: str) -> None:
    """Print a line on the standard error from within a handler, where Python's own streams may be in use.

    A panel gives its place to the line, and is drawn below it from then on.
    """
    before, after = "\n", "\n"
    if drawn_lines:
        before = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (drawn_lines - 1)
        after = "\n" * drawn_lines
    with contextlib.suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"{before}{text}{after}".encode())


PATIENCE_S = 1.2
"""After the first signal, for the measurement under way: some tenths of a second. SIGKILL may follow after two."""


WAKING = signal.SIGURG
"""Ends what a thread waits for, and means nothing else here."""


@contextmanager
def _woken() -> Iterator[None]:
    """Wake the main thread at each signal, whichever thread has got it: any, where the process stood still (SIGSTOP).

    Python handles signals in the main thread alone, and does not wake it for one that another has got, nor for one of
    the instant before it waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def wake() -> None:
        while arrived := os.read(reading, 1):
            for _ in range(0 if arrived[0] == WAKING else 2):
                os.kill(os.getpid(), WAKING)  # of a process that runs, the main thread gets it
                time.sleep(0.05)
        os.close(reading)

    before, former = (
        signal.signal(WAKING, lambda *_: None),
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False),
    )
    try:
        threading.Thread(target=wake, daemon=True).start()
        yield
    finally:
        signal.set_wakeup_fd(former)
        os.close(writing)
        signal.signal(WAKING, before)


@contextmanager
def stopping(*, quiet: bool = False) -> Iterator[Callable[[], bool]]:
    """Return what tells whether a signal has arrived; at the end the former handlers are restored.

    Ctrl-C once: finish what is being measured, if that ends soon. Twice: now. SIGTERM and SIGHUP likewise. Unless it is
    quiet, a line says so.
    """
    arrived: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        if arrived:
            # Again soon, unless it is taken: this one may be raised where Python ignores it, such as in a destructor.
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S / 2)
            raise KeyboardInterrupt
        arrived.append(number)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        if number == signal.SIGHUP:
            leave_terminal()
        if not quiet:
            note("tune: stopping after the current measurement; Ctrl-C again stops at once")

    with handled(take, signal.SIGALRM), _woken():
        try:
            yield lambda: bool(arrived)
        finally:
            if arrived:
                signal.setitimer(signal.ITIMER_REAL, 0.0)


def taken() -> None:
    """Let :func:`stopping` raise no ``KeyboardInterrupt`` by itself any more: the wish to stop is being followed."""
    signal.setitimer(signal.ITIMER_REAL, 0.0)
