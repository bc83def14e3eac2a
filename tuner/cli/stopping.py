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
        self.asked = False

    def __call__(self) -> bool:
        """Return whether the run is to end."""
        return self.asked

    def signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal's signature
        """Take Ctrl-C."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        click.echo("\ntune: stopping after the current measurement; Ctrl-C again stops at once", err=True)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Return what knows whether the user has pressed Ctrl-C; the handlers of before come back at the end."""
    stop = Stop()
    before = {number: signal.signal(number, stop.signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
