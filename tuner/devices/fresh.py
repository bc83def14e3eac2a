"""The process that measures a winner once more, which is started while others are still at work."""

from __future__ import annotations

from collections.abc import Callable

from tuner.devices.guard import Guard


class FreshProcess:
    """One process at a time that the search has not used.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Guard]) -> None:
        self._start = start
        self._used: Guard | None = None
        self._next: Guard | None = None

    def expect(self) -> None:
        """Start the next one; it makes its context between two measurements of others."""
        self._next = self._next or self._start()

    def another(self) -> Guard:
        """Return the guard of a process that has measured nothing, and end the one before.

        Raises:
            DeviceError: there can be none.
        """
        if self._used is not None:
            self._used.close()
        self._used, self._next = self._next or self._start(), None
        self._used.hello()
        return self._used

    def same(self) -> Guard:
        """Return the guard of the last one.

        Raises:
            DeviceError: there was none, and can be none.
        """
        return self._used or self.another()

    def end(self) -> None:
        """End them."""
        for guard in filter(None, (self._used, self._next)):
            guard.close()
        self._used = self._next = None
