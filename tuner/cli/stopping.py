"""Ctrl-C once and twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click


class Stop:
    """Ctrl-C once: finish what is being measured. Twice: now."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self) -> bool:
        """Return whether the run is to end."""
        return self.requested

    def signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        """Take Ctrl-C."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        click.echo("\ntune: stopping after the current measurement; Ctrl-C again stops at once", err=True)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Return an object that tells whether the user has pressed Ctrl-C; at the end the former handlers are restored."""
    stop = Stop()
    before = {number: signal.signal(number, stop.signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
