"""A fleet whose searchers only answer."""

from __future__ import annotations

from collections.abc import Callable

from tests.fleets import Seen, jobs
from tuner.core.model import Configuration, Run, RunOptions, Status, Trial
from tuner.database.database import Database
from tuner.database.records import Metrics
from tuner.fleet.cards import Card
from tuner.fleet.head import Head
from tuner.fleet.messages import (
    BeginSearch,
    Calls,
    DeviceReady,
    Event,
    Events,
    GpuFacts,
    Prepared,
    Progress,
    SearcherGone,
    StopSearch,
    Task,
    TaskDone,
    TaskStopped,
    ToSearcher,
)
from tuner.fleet.remote import call_of
from tuner.kernel.roofline import ARCHITECTURES

RUN = "00000000-0000-0000-0000-000000000001"


class Answering:
    """A searcher that is ready at once, and searches until it is told that it has ended.

    Args:
        device: what it searches on.
        events: gets what it says.
        hangs: ``starting`` or ``preparing``, in which it hangs.
    """

    def __init__(self, device: str, events: Events, hangs: str = "") -> None:
        self.device, self.events, self.hangs = device, events, hangs
        self.task, self.searching, self.killed = "", False, False
        self.given: Task | None = None

    gpu = ARCHITECTURES[90]

    def open(self) -> None:
        if self.hangs == "starting":
            return
        self.events.put(Event(self, DeviceReady(self.gpu)))

    def send(self, message: ToSearcher) -> None:
        match message:
            case Task(key=key):
                self.task, self.given = key, message
                if self.hangs != "preparing":
                    self.prepared()
            case BeginSearch():
                self.searching = True
            case StopSearch():
                self.events.put(Event(self, TaskStopped()))

    def prepared(self) -> None:
        self.events.put(Event(self, Prepared(None, ())))

    def progress(self, trials: int, phase: str = "searching") -> None:
        self.events.put(Event(self, Progress(trials, 8, phase, "")))

    def end(self) -> None:
        self.searching, self.task = False, ""
        self.events.put(Event(self, TaskDone("", "", b"{}", "")))

    def gone(self) -> None:
        self.searching = False
        self.events.put(Event(self, SearcherGone("killed by SIGKILL")))

    def wrote(self, number: int) -> None:
        """Send a trial, the first after the beginning of its run."""
        assert self.given is not None
        run = Run(RUN, self.given.problem, self.gpu, self.device, RunOptions(sampler="random", trials=8))
        mark = {"mark": {"trials": 0, "winners": 0}}
        begun = call_of("resume_run", RUN) if self.given.going_on else call_of("start_run", run, mark)
        configuration = Configuration.of("plain", {"block_size": number})
        trial = Trial(number, configuration, Status.OK, 5.0, samples_ns=(5.0,))
        self.events.put(Event(self, Calls(self.task, 1, (begun, call_of("record", RUN, trial, Metrics())))))

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        pass


class Fleet:
    """A head with such searchers."""

    def __init__(
        self, database: Database, devices: int, problems: int, hangs: str = "", *, overlap: bool = True
    ) -> None:
        self.links: list[Answering] = []
        self.seen, self.ticks = Seen(), 0

        def card(number: int) -> Card:
            def start(events: Events, facts: GpuFacts | None) -> Answering:
                self.links.append(Answering(f"cuda:{number}", events, "" if self.links else hangs))
                self.links[-1].open()
                return self.links[-1]

            return Card(f"cuda:{number}", start, overlap)

        self.jobs = jobs(problems)
        self.head = Head(database, self.jobs, [card(number) for number in range(devices)], self.seen)

    def run(self, tick: Callable[[Head], None]) -> None:
        """Run the head until all problems are tuned, and call a function in each round of its loop."""
        self.seen.on_tick = tick
        self.head.run()

    def on(self, device: int) -> list[Answering]:
        return [link for link in self.links if link.device == f"cuda:{device}" and not link.killed]
