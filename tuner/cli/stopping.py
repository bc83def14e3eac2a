"""Ctrl-C once and twice, and the other signals that end a program."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tuner.core import signals

PATIENCE_S = 3.0
"""After the first signal, for the measurement under way; schedulers send SIGKILL some seconds after SIGTERM."""


class Stop:
    """Ctrl-C once: finish what is being measured, if that ends soon. Twice: now. SIGTERM and SIGHUP likewise."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        """Return whether the run is to end."""
        return self.requested

    def signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        """Take a signal."""
        if self.requested:
            # Again soon: this one may be raised where Python ignores it, such as in a destructor.
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S / 2)
            raise KeyboardInterrupt
        self.requested = True
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        if number == signal.SIGHUP:
            signals.leave_terminal()
        signals.note("tune: stopping after the current measurement; Ctrl-C again stops at once")


@contextmanager
def stopping() -> Iterator[Stop]:
    """Return an object that tells whether a signal has arrived; at the end the former handlers are restored."""
    stop = Stop()
    with signals.handled(stop.signal, signal.SIGALRM):
        try:
            yield stop
        finally:
            if stop():
                signal.setitimer(signal.ITIMER_REAL, 0.0)
