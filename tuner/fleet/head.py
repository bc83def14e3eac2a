"""The head of a fleet: gives out problems, writes what the searchers send, and gives out again what one has lost."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from tuner.core import signals
from tuner.core.errors import Interrupted
from tuner.database.database import Database
from tuner.devices.guard import AWAITED
from tuner.fleet import messages
from tuner.fleet.cards import REST_S, Card, Job, Lane, Phase, stalled
from tuner.fleet.ledger import Ledger
from tuner.fleet.messages import Event, Events, SearcherGone

if TYPE_CHECKING:
    from tuner.fleet.progress import Announcer
    from tuner.fleet.workers import WorkersAsCards

POLL_S = 0.1
OUT_OF_TIME = "left out, the time is over; go on with --resume"
MAX_FAILURES = 3
"""Searchers or devices that may fail with one problem; it is then reported as failed."""
MAX_CUTS = 10
"""Connections that may be cut in a row with one problem before the first trial: it may be what takes the hosts down."""
CUT_REST_S = 20.0
"""After which a device is tried again to which there is no way: six times, so that a switch may be started anew."""
AWAITED_S = 15.0
"""How long another program may have a device before its problem goes to another device."""
STEAL_BELOW = 0.7
"""A problem that is prepared on one device goes to an idle one if the search before it has done less than this."""


class Head:
    """Tunes problems on devices.

    Args:
        database: where every trial goes; used by the thread that calls :meth:`run`.
        jobs: the problems.
        cards: the devices.
        watcher: told of everything.
        stop: called often; once it returns true nothing new is tried.
        members: brings further devices; None where these are all.
    """

    def __init__(
        self,
        database: Database,
        jobs: Sequence[Job],
        cards: Sequence[Card],
        watcher: Announcer,
        stop: Callable[[], bool] = lambda: False,
        members: WorkersAsCards | None = None,
    ) -> None:
        self.members = members
        self.ledger = Ledger(database)
        self.jobs, self.cards = list(jobs), list(cards)
        self.watcher, self.stop = watcher, stop
        self.events: Events = queue.SimpleQueue()
        self.waiting = sorted(jobs, key=lambda job: -job.estimate_s)
        self.ended: list[Job] = []
        self.trials_before = sum(job.trials for job in jobs)
        """Trials that there were before this began."""
        self._stopping = False
        self._looked = time.monotonic()
        """When it last looked for stalled searchers."""

    def run(self) -> None:
        """Tune every problem.

        Raises:
            Interrupted: ``stop`` said so; everything measured is recorded, and ``--resume`` goes on.
            DatabaseError: the file cannot be written.
        """
        try:
            while len(self.ended) < len(self.jobs):
                if self.stop() and not self._stopping:
                    self._begin_to_stop()
                if self._stopping and not any(card.busy for card in self.cards):
                    break
                if self.members is not None:
                    self.members.update(self)
                if not self._stopping:
                    self._give_out()
                self._handle(self._next_events())
                away_s, self._looked = time.monotonic() - self._looked, time.monotonic()
                for card, lane, reason in stalled(self.cards, away_s):
                    self._stalls(card, lane, reason)
                for card in self.cards:
                    self._leave_alone(card)
                self.watcher.step(self)
        except KeyboardInterrupt:
            self._stopping = True
        finally:
            if self._stopping:
                signals.taken()
            with signals.uninterrupted():
                self._end()
        if self._stopping:
            done = f"{len(self.ended)} of {len(self.jobs)} problems"
            raise Interrupted(f"stopped after {done}; all trials are kept", "go on with --resume")

    @property
    def _lanes(self) -> list[tuple[Card, Lane]]:
        return [(card, lane) for card in self.cards for lane in card.lanes]

    # -- giving out

    def _give_out(self) -> None:
        """Start searchers, give them problems, and let one of each device search."""
        if not any(not card.left_out for card in self.cards):
            if self.members is not None and self.members.expecting:
                return
            reasons = "; ".join(f"{card.name}: {card.left_out}" for card in self.cards)
            for job in [*self.waiting]:
                self.waiting.remove(job)
                self._fail(job, f"no device is left: {reasons}")
            return
        for card in sorted(self.cards, key=lambda card: len(card.busy)):
            # A device that has a problem leaves the last ones to those that have none.
            idle = sum(not other.busy and not other.left_out for other in self.cards)
            coming = sum(len(other.of(Phase.STARTING)) for other in self.cards)
            waiting = [*islice((job for job in self.waiting if self._may_have(card, job)), idle + coming + 1)]
            room = len(waiting) > (idle if card.busy else 0)
            if room and card.wants_searcher and len(waiting) > coming:
                card.lanes.append(Lane(card.start(self.events, card.facts)))
            if room and (lane := card.free) is not None and not self._must_be_alone(card, waiting[0]):
                self._assign(card, lane, waiting[0])
            if not card.of(Phase.SEARCHING) and (ready := card.of(Phase.READY)):
                ready[0].phase = Phase.SEARCHING
                ready[0].link.send(messages.BeginSearch())
        self._steal()

    def _may_have(self, card: Card, job: Job) -> bool:
        """Return whether a device may have a problem: those that are compared go to one, unless it cannot be used."""
        names = {other.devices[-1] for other in job.compared if other.devices}
        return card.name in names or not any(other.name in names and other.usable for other in self.cards)

    def _must_be_alone(self, card: Card, job: Job) -> bool:
        """Return whether a problem has to wait for an idle device: one has failed, perhaps for memory."""
        beside = [lane.job for lane in card.busy if lane.job is not None]
        return any(other.failures for other in (*beside, job)) if beside else False

    def _assign(self, card: Card, lane: Lane, job: Job) -> None:
        self.waiting.remove(job)
        if not job.has_time:
            self._fail(job, OUT_OF_TIME)
            return
        assert card.gpu is not None  # its searcher is ready
        if job.going_on is not None and job.going_on.gpu.name != card.gpu.name:
            job.going_on = job.mark = None  # times of another GPU cannot be gone on with
        task = job.give_out(card.name, card.gpu)
        lane.job, lane.key, lane.phase, lane.progress = job, task.key, Phase.OPENING, None
        self.ledger.give_out(task.key, job.devices, job.going_on)
        lane.link.send(task)

    def _steal(self) -> None:
        """Move a problem that only waits for its turn to a device that has nothing to do."""
        idle = [card for card in self.cards if card.lanes and not card.busy and card.of(Phase.IDLE)]
        if self.waiting or not idle:
            return
        for card in self.cards:
            for searching, ready in zip(card.of(Phase.SEARCHING), card.of(Phase.READY), strict=False):
                progress = searching.progress
                early = progress is None or progress.trials < STEAL_BELOW * progress.budget
                if early and ready.job is not None and self._may_have(idle[0], ready.job):
                    self._take_back(card, ready, innocent=True)
                    return

    # -- what searchers say

    def _next_events(self) -> list[Event]:
        """Return what has been said, waiting for the first of it."""
        events = []
        try:
            events.append(self.events.get(timeout=POLL_S))
            while True:
                events.append(self.events.get_nowait())
        except queue.Empty:
            return events

    def _handle(self, events: Sequence[Event]) -> None:
        """Do what was asked of the database, and answer; then take note of the rest, in order."""
        calls = [(event.link, event.what) for event in events if isinstance(event.what, messages.Calls)]
        answers = self.ledger.answer([message for _, message in calls])
        for (link, _), answer in zip(calls, answers, strict=True):
            link.send(answer)
        for event in events:
            for card, lane in self._lanes:
                if lane.link is event.link:
                    self._note(card, lane, event)

    def _note(self, card: Card, lane: Lane, event: Event) -> None:
        lane.hear(event.what)
        match event.what, lane.job:
            case messages.DeviceReady() as ready, _:
                card.gpu, card.refusals, card.deaths, lane.phase = ready.gpu, 0, 0, Phase.IDLE
                if card.facts is None:
                    card.facts = ready.facts
                    for note in ready.facts.notes:
                        self.watcher.said(card, note)
            case messages.DeviceFailed(error=error, remedy=remedy), _:
                card.refusals += 1
                self._gone(card, lane, f"{error}; {remedy}" if remedy else error)
            case messages.Prepared(calibration=calibration, lines=lines), Job() as job:
                lane.phase, card.settled = Phase.READY, True
                if calibration is not None and card.facts is not None:
                    card.facts = messages.GpuFacts(card.facts.notes, calibration)
                self.watcher.began(card, job, lines)
            case messages.Progress() as progress, Job() as job:
                if progress.trials > (lane.progress.trials if lane.progress else job.trials):
                    lane.awaited_since = None
                lane.progress = progress
                if lane.phase is Phase.SEARCHING and progress.phase != "searching":
                    lane.phase = Phase.FINISHING
            case messages.Said(text=text), _:
                if text.startswith(AWAITED) and lane.awaited_since is None:
                    lane.awaited_since = time.monotonic()
                self.watcher.said(card, text)
            case messages.TaskDone() as result, Job() as job:
                self._done(card, lane, job, result)
            case messages.TaskFailed() as failure, Job() as job:
                self._task_failed(card, lane, job, failure)
            case messages.TaskStopped(), Job():
                self.ledger.take_back(lane.key, innocent=True)
                lane.job, lane.phase = None, Phase.IDLE
            case SearcherGone(reason=reason, innocent=innocent), _:
                self._gone(card, lane, reason, innocent=innocent)

    def _done(self, card: Card, lane: Lane, job: Job, result: messages.TaskDone) -> None:
        self.ledger.take_back(lane.key, innocent=True)
        lane.job, lane.phase, card.stalls = None, Phase.IDLE, 0
        self.ended.append(job)
        self.watcher.done(job, result)

    # -- what goes wrong

    def _task_failed(self, card: Card, lane: Lane, job: Job, failure: messages.TaskFailed) -> None:
        text = f"{failure.error}; {failure.remedy}" if failure.remedy else failure.error
        if failure.of_device:
            self.watcher.said(card, f"{job.name}: {text}")
            lane.phase = Phase.OPENING  # whatever it did, it failed at this problem
            self._gone(card, lane, text)
            return
        self.ledger.take_back(lane.key, innocent=True)
        lane.job, lane.phase, job.too_inaccurate = None, Phase.IDLE, failure.too_inaccurate
        self._fail(job, text)

    def _gone(self, card: Card, lane: Lane, reason: str, *, innocent: bool = False) -> None:
        """Go on without a searcher: its problem is given out again, and its device gets another one."""
        starting, waiting, job = lane.phase is Phase.STARTING, lane.phase is Phase.READY, lane.job
        before = job.trials if job is not None else 0
        self._take_back(card, lane, innocent=innocent)
        if job is not None and job not in self.ended:
            if job.trials > before:
                job.failures = job.cuts = 0
            # A searcher that only waited for its turn has not ended because of its problem.
            job.failures += not (waiting or innocent)
            job.cuts += innocent
            if job.failures >= MAX_FAILURES or job.cuts >= MAX_CUTS:
                self.waiting.remove(job)
                self._fail(job, f"{reason} (tried {job.failures + job.cuts} times)")
            elif not self._stopping:
                self.watcher.said(card, f"{job.name} is given out again: {reason}")
        card.deaths += starting
        if starting and innocent:
            card.resting_until = time.monotonic() + CUT_REST_S
        if starting or card.stalls:
            if card.hopeless and card.lanes:
                card.overlap = False  # one searcher is there, and there is no room for a second
            elif card.hopeless:
                card.left_out = reason
                self.watcher.said(card, f"left out: {reason}")

    def _stalls(self, card: Card, lane: Lane, reason: str) -> None:
        """Kill a stalled searcher; its device rests while others can go on with the problem."""
        card.stalls += 1
        if any(other is not card and not other.left_out for other in self.cards):
            card.resting_until = time.monotonic() + REST_S
        if lane.job is None:
            self.watcher.said(card, reason)
        self._gone(card, lane, reason)

    def _take_back(self, card: Card, lane: Lane, *, innocent: bool) -> None:
        """End a searcher, and put its problem in front of the others, with what was measured of it."""
        lane.link.kill()
        card.lanes.remove(lane)
        if (job := lane.job) is None:
            return
        if (result := self.ledger.finished(lane.key)) is not None:
            self._done(card, lane, job, result)
            return
        run = self.ledger.take_back(lane.key, innocent=innocent)
        job.going_on, job.mark, job.trials = run, None, 0
        if run is not None:
            job.mark = self.ledger.database.mark_of(run.id)
            job.trials = len(self.ledger.database.rows(run.id))
        self.waiting.insert(0, job)
        lane.job = None

    def _leave_alone(self, card: Card) -> None:
        """Move the problems of a device to the others, if another program has it and there are any."""
        since = [lane.awaited_since for lane in card.lanes if lane.awaited_since is not None]
        if not since or time.monotonic() - min(since) < AWAITED_S:
            return
        if all(other is card or other.left_out for other in self.cards):
            return
        self.watcher.said(card, "another program has this device: its problems go to the others")
        card.resting_until = time.monotonic() + REST_S
        for lane in [*card.lanes]:
            self._take_back(card, lane, innocent=True)

    def _fail(self, job: Job, error: str) -> None:
        self.ended.append(job)
        self.watcher.failed(job, error)

    # -- the end

    def _begin_to_stop(self) -> None:
        """Let the measurements under way end; what has not begun to measure ends at once."""
        self._stopping = True
        self.ledger.database.hurry()
        for card, lane in self._lanes:
            if lane.phase in (Phase.SEARCHING, Phase.FINISHING, Phase.READY):
                lane.link.send(messages.StopSearch())
            else:
                self._take_back(card, lane, innocent=True)

    def _end(self) -> None:
        """End every searcher, and write down that what they worked on was interrupted."""
        lanes = self._lanes
        for _, lane in lanes:
            lane.link.kill()
        for card, lane in lanes:
            self._take_back(card, lane, innocent=True)
        for _, lane in lanes:
            lane.link.close()
