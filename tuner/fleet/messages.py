"""What the head and a searcher say to each other. A searcher tunes one problem after the other on one device; the head
has the database.

The head first says :class:`OpenDevice`, which is answered by :class:`DeviceReady` or :class:`DeviceFailed`; then
:class:`Task` as often as it likes, each answered by :class:`TaskDone`, :class:`TaskFailed` or :class:`TaskStopped`.
Within a task the searcher says :class:`Prepared` before its first measurement and waits for :class:`BeginSearch`.
Whatever it reads from the database or writes there are :class:`Calls`, which the head answers by :class:`Answered`
with the same task and key, in order. What was written is on the disk then; the same message again writes nothing. What
belongs to a task that was given to another searcher meanwhile is refused. A searcher that does not even say
:class:`Alive` any more is killed.

The head holds a link to each searcher: a way to send to it, and to kill it. Here it is a process of this machine.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from tuner.core.conditions import Calibration
from tuner.core.messages import Channel, Message, Record, UnsendableError
from tuner.core.model import Gpu, Problem, Run, RunOptions
from tuner.core.processes import Child, ChildDied
from tuner.database.records import Mark

# -- from the head ----------------------------------------------------------------------------------------------------


class GpuFacts(Record, frozen=True):
    """What a searcher has found out of its GPU. Another one on it is told: that would see this one's processes."""

    notes: tuple[str, ...] = ()
    calibration: Calibration | None = None


class Compilers(Record, frozen=True):
    """The compiling processes of all searchers of this machine."""

    jobs: int
    """How many of them work at a time, whichever searcher they belong to."""
    share: int
    """How many this searcher may have."""
    slots: Path
    """File whose locks say how many work."""


class OpenDevice(Message, frozen=True):
    """Open the device; the first message."""

    device: str
    """``cuda:N``; of a cluster's workers each knows its own."""
    cache: Path | None
    """Folder of the cubin cache."""
    compilers: Compilers | None = None
    """None where the worker says that."""
    facts: GpuFacts | None = None
    opener: str = ""
    """``module:function`` that opens it, called with this message and ``say``; empty for this package's own."""


class Task(Message, frozen=True):
    """Tune a problem."""

    key: str
    """Of this giving out: a problem that is given out again has another."""
    kernel: Path
    text: str
    """Digest of the kernel's text as the head has read it."""
    problem: Problem
    options: RunOptions
    going_on: Run | None = None
    """The interrupted run to go on with."""
    mark: Mark | None = None
    """What the database held when that began."""
    database: str = ""
    """Its name in what is printed."""
    full: bool = False
    """Whether what is printed names all parameters."""


class BeginSearch(Message, frozen=True):
    """Begin to measure."""


class StopSearch(Message, frozen=True):
    """Try nothing new, and end the task as interrupted."""


class Answered(Message, frozen=True):
    """What the last of the calls has returned; what they wrote is on the disk."""

    task: str
    key: int
    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str = ""
    """Why the database cannot do that; nothing was written then."""
    remedy: str = ""


ToSearcher = OpenDevice | Task | BeginSearch | StopSearch | Answered

# -- from a searcher --------------------------------------------------------------------------------------------------


class DeviceReady(Message, frozen=True):
    """The device is open."""

    gpu: Gpu
    facts: GpuFacts = GpuFacts()


class DeviceFailed(Message, frozen=True):
    """It cannot be opened; the last message."""

    error: str
    remedy: str


class Call(Record, frozen=True):
    """A method of the store (:mod:`tuner.fleet.remote`)."""

    method: str
    arguments: msgspec.Raw


class Calls(Message, frozen=True):
    """One call, or several that write together, all or nothing."""

    task: str
    key: int
    """Greater than any before of the task; the same if the message is sent again."""
    calls: tuple[Call, ...]


class Prepared(Message, frozen=True):
    """Everything is prepared for the first measurement."""

    calibration: Calibration | None
    lines: tuple[str, ...]
    """What is tuned, where, and in how large a space."""


class Progress(Message, frozen=True):
    """How far a search is."""

    trials: int
    budget: int
    phase: str
    """``searching``, or what has begun since; ``searched`` is when the search has ended."""
    line: str
    """The progress in a line."""


class Said(Message, frozen=True):
    """What the device says; that another process has the GPU begins with :data:`tuner.devices.guard.AWAITED`."""

    text: str


class TaskDone(Message, frozen=True):
    """A problem is tuned."""

    run: str
    summary: str
    record: bytes
    """JSON of the result."""
    nothing: str
    """Why there is no winner; empty if there is one."""


class TaskFailed(Message, frozen=True):
    """A problem could not be tuned."""

    error: str
    remedy: str
    of_device: bool
    """Whether the device is to blame: it is closed, and this is the searcher's last message."""
    too_inaccurate: bool = False
    """Whether no kernel of this dtype can be within the bound on the error."""


class TaskStopped(Message, frozen=True):
    """A task was interrupted, as :class:`StopSearch` said."""


class Alive(Message, frozen=True):
    """A heartbeat: the searcher's process runs; sent every few seconds, by a thread of its own."""

    working: bool = False
    """Whether the searcher waits for its device, which will answer in time: :attr:`Device.working`."""


Ending = TaskDone | TaskFailed | TaskStopped
"""How a task ended."""
FromSearcher = DeviceReady | DeviceFailed | Calls | Prepared | Progress | Said | Ending | Alive

SEARCHING: Channel[ToSearcher, FromSearcher] = Channel(ToSearcher, FromSearcher)


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
