"""The problems and the devices of a fleet as the head sees them: a device has one searcher, or two that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from msgspec import structs

from tuner.core.model import Gpu, Run, RunOptions
from tuner.database.records import Mark
from tuner.fleet.messages import Alive, Events, FromSearcher, GpuFacts, Link, Progress, SearcherGone, Task
from tuner.tuning.request import within

REFUSALS, DEATHS, STALLS = 2, 6, 3
"""How often in a row a device may refuse to be opened, its searcher end while it starts, or its searchers stall
without a problem that is tuned; it is then left out."""
REST_S = 60.0
"""How long a device is left alone that another program has."""


@dataclass(eq=False)
class Job:
    """A problem to be tuned."""

    number: int
    """Its place in the order that the user gave."""
    task: Task
    """What is sent of it, but for the key and what it goes on with."""
    estimate_s: float = 0.0
    """How long it may take, compared with the others: the longest begin first."""
    going_on: Run | None = None
    """The interrupted run that it goes on with."""
    mark: Mark | None = None
    """What was known when that began."""
    devices: list[str] = field(default_factory=list)
    """Where it was given out, in order."""
    failures: int = 0
    """How often a searcher ended with it, or its device failed."""
    cuts: int = 0
    """How often the way to its searcher was cut, since there was a new trial."""
    trials: int = 0
    """Trials that its run had when it was given out last."""

    compared: Sequence[Job] = ()
    """The problems whose times will be compared with its own, with itself; they stay on one device."""
    settle: Callable[[Gpu], RunOptions] | None = None
    """Returns how it is tuned on a GPU; None leaves that to the task."""
    too_inaccurate: bool = False
    """Whether it failed because no kernel of its dtype can be within the bound on the error."""
    worth: str = ""
    """What it is worth to a program, where that is known."""
    time_s: Callable[[], float | None] = lambda: None
    """Returns how long it may be searched if it begins now, within the time of the task; None for no limit."""

    @property
    def has_time(self) -> bool:
        """Whether any time is left for it."""
        time_s = self.time_s()
        return time_s is None or time_s > 0.0

    def give_out(self, device: str, gpu: Gpu) -> Task:
        """Return the task to send to a device now, which has such a GPU."""
        self.devices.append(device)
        key = f"{self.number}.{len(self.devices)}"
        options = within(self.settle(gpu) if self.settle is not None else self.task.options, self.time_s())
        return structs.replace(self.task, key=key, options=options, going_on=self.going_on, mark=self.mark)

    @property
    def name(self) -> str:
        """The problem, as a user reads it."""
        return str(self.task.problem)


BEAT_S = 2.0
SILENT_S = 60.0
"""Longest time without a heartbeat: a host that swaps may starve a thread for seconds."""
STARTING_S = 300.0
"""Longest time to the first message: Python's modules may come from a cold disk, over the network."""
SEARCHING_S = 300.0
"""Longest time for a step of a search: a user's own sampler may need a minute for a suggestion."""
PREPARING_S = 300.0
"""Longest time for a step of a preparation that is not the measuring process's: its start, with its modules from a cold
disk, has 120 s, and the compilation of a reference 60 s; a search space is enumerated in seconds."""
FINISHING_S = 3600.0
"""Longest time for a step of a race: a confirmation has two setups of 600 s in fresh processes, and may repeat them."""
PAUSE_S = 2.0
"""If the head itself was stopped for longer, as by Ctrl-Z, that is why it received nothing."""


class Phase(Enum):
    """What a searcher does."""

    STARTING = auto()
    IDLE = auto()
    OPENING = auto()
    """It prepares a problem."""
    READY = auto()
    """It waits for its turn to search."""
    SEARCHING = auto()
    FINISHING = auto()
    """It races and confirms, and leaves the device free most of the time."""


@dataclass(eq=False)
class Lane:
    """A searcher on a device, and what it works on."""

    link: Link
    phase: Phase = Phase.STARTING
    job: Job | None = None
    key: str = ""
    """Of the task that it has."""
    progress: Progress | None = None
    awaited_since: float | None = None
    """Since when another program has had the device."""
    heard: float = field(default_factory=time.monotonic)
    """When the searcher last said something."""
    silent: bool = True
    """Whether it has not sent anything yet."""
    moved: float = field(default_factory=time.monotonic)
    """When it last sent more than a heartbeat, or its measuring process worked."""

    def hear(self, message: FromSearcher | SearcherGone) -> None:
        """Keep that the searcher has sent a message."""
        first, self.heard, self.silent = self.silent, time.monotonic(), False
        if first or not isinstance(message, Alive) or message.working:
            self.moved = self.heard


@dataclass(eq=False)
class Card:
    """A device.

    Args:
        name: such as ``cuda:0``.
        start: starts a searcher on it that is told what another one has found out.
        overlap: whether two searchers take turns, so that one problem is prepared, raced and confirmed while another
            one is searched.
    """

    name: str
    start: Callable[[Events, GpuFacts | None], Link]
    overlap: bool = True
    lanes: list[Lane] = field(default_factory=list)
    gpu: Gpu | None = None
    facts: GpuFacts | None = None
    settled: bool = False
    """Whether a problem was prepared on it, and it is calibrated."""
    refusals: int = 0
    """How often in a row it could not be opened."""
    deaths: int = 0
    """How often in a row a searcher has ended before it was ready."""
    stalls: int = 0
    """Stalls since a problem was last tuned here."""
    left_out: str = ""
    """Why it is not used any more."""
    resting_until: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether problems can be given to it now."""
        return not self.left_out and time.monotonic() >= self.resting_until

    @property
    def hopeless(self) -> bool:
        """Whether starting another searcher would fail, too."""
        return self.refusals >= REFUSALS or self.deaths >= DEATHS or self.stalls >= STALLS

    @property
    def busy(self) -> list[Lane]:
        """The searchers that have a problem."""
        return [lane for lane in self.lanes if lane.job is not None]

    def of(self, phase: Phase) -> list[Lane]:
        """Return the searchers in a phase."""
        return [lane for lane in self.lanes if lane.phase is phase]

    @property
    def wants_searcher(self) -> bool:
        """Whether another searcher is to be started: the second one when the first has calibrated the GPU, alone."""
        if self.left_out or self.of(Phase.STARTING) or time.monotonic() < self.resting_until:
            return False
        return not self.lanes or (self.overlap and self.settled and len(self.lanes) == 1)

    @property
    def free(self) -> Lane | None:
        """A searcher that may prepare a problem now: none while another one of this device does."""
        if self.of(Phase.OPENING) or self.of(Phase.READY):
            return None
        return next(iter(self.of(Phase.IDLE)), None)


def stalled(cards: Sequence[Card], away_s: float) -> Iterator[tuple[Card, Lane, str]]:
    """Return the stalled searchers, each with the reason: the process is stopped, its disk or GPU hangs, or its loop.

    Each searcher sends a heartbeat every :data:`BEAT_S`, from a thread of its own. A search also reports its progress
    five times a second while other processes compile and measure, so that neither counts as a stall. Heartbeats say
    whether the measuring process works: it may take 600 s for the data of a large problem, and its guard kills it when
    a step takes longer than announced.

    Args:
        cards: the devices.
        away_s: seconds since this was last asked.
    """
    now = time.monotonic()
    for card in cards:
        for lane in [*card.lanes]:
            if away_s > PAUSE_S:
                lane.heard, lane.moved = lane.heard + away_s, lane.moved + away_s
            if lane.phase in (Phase.READY, Phase.IDLE):  # it waits for the head
                lane.moved = now
            if reason := _reason(lane, now):
                yield card, lane, reason


def _reason(lane: Lane, now: float) -> str:
    most_s = STARTING_S if lane.silent else SILENT_S
    if now - lane.heard > most_s:
        return f"the searcher sent no heartbeat for {most_s:g} s, and was killed"
    most_s = {Phase.SEARCHING: SEARCHING_S, Phase.FINISHING: FINISHING_S}.get(lane.phase, PREPARING_S)
    if now - lane.moved > most_s:
        return f"the searcher made no progress for {most_s:g} s, and was killed"
    return ""
