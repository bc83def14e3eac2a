"""What the head holds of a searcher: a way to send to it, and to kill it. Here it is a process of this machine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tuner.core.messages import UnsendableError
from tuner.core.processes import Child, ChildDied
from tuner.fleet.messages import SEARCHING, FromSearcher, ToSearcher


class Link(Protocol):
    """One searcher, as the head sees it; what it says comes as :class:`Event`."""

    def send(self, message: ToSearcher) -> None:
        """Send a message; one that does not arrive is followed by :class:`SearcherGone`."""

    def kill(self) -> None:
        """End the searcher with all its processes, at once; may be called twice."""

    def close(self) -> None:
        """Wait until it has ended, after :meth:`kill`."""


@dataclass(frozen=True)
class SearcherGone:
    """A searcher that will say no more."""

    reason: str
    innocent: bool = False
    """Whether what it worked on has nothing to do with it: the way to it was cut."""


@dataclass(frozen=True)
class Event:
    """What a searcher has said, or that it is gone."""

    link: Link
    what: FromSearcher | SearcherGone


Events = queue.SimpleQueue[Event]


class ChildLink:
    """A searcher that is a child process of this one.

    Args:
        tell: gets what it says, from a thread of its own.
        opening: the first message.
    """

    def __init__(self, tell: Callable[[Event], None], opening: ToSearcher) -> None:
        self._tell = tell
        self._child: Child[ToSearcher, FromSearcher] | None = None
        self._unsent: queue.SimpleQueue[ToSearcher | None] = queue.SimpleQueue()
        self._unsent.put(opening)
        self._killed = False
        # Linux ends a child with the thread that started it: this one reads from it as long as it lives.
        self._thread = threading.Thread(target=self._serve, daemon=True, name="searcher")
        self._thread.start()

    def send(self, message: ToSearcher) -> None:
        """Send a message."""
        self._unsent.put(message)

    def kill(self) -> None:
        """Kill the process; its children die with it."""
        self._killed = True
        if self._child is not None:
            self._child.stop()

    def close(self) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout=15)

    def _serve(self) -> None:
        try:
            self._child = child = Child("tuner.fleet.searcher", SEARCHING)
        except OSError as error:
            self._tell(Event(self, SearcherGone(f"no process can be started: {error}")))
            return
        reason = "it was ended"
        try:
            if self._killed:
                child.stop()
            threading.Thread(target=self._write, args=(child,), daemon=True, name="to searcher").start()
            while (message := child.receive(None)) is not None:
                self._tell(Event(self, message))
        except ChildDied as death:
            reason = death.reason
        finally:
            self._unsent.put(None)
            child.kill()
            self._child = None  # another process may get its number
            self._tell(Event(self, SearcherGone(reason)))

    def _write(self, child: Child[ToSearcher, FromSearcher]) -> None:
        """Pass messages on; a searcher that does not read keeps this thread waiting, and not the head."""
        while (message := self._unsent.get()) is not None:
            try:
                child.send(message)
            except (ChildDied, OSError, UnsendableError):
                child.stop()  # the reading thread says so
                return
