"""The search of a run: asks the study, feeds the device, writes the database, tells the study."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import deque
from collections.abc import Callable

from tuner.core.errors import Interrupted, SpaceError
from tuner.core.model import SUSPECT, Configuration, Status, Trial
from tuner.core.observer import Observer
from tuner.database.records import LeftBehind
from tuner.devices.base import Device, Outcome
from tuner.search.protocols import Nominating
from tuner.search.stopping import Stopped
from tuner.search.study import Search
from tuner.tuning.drift import DriftCheck
from tuner.tuning.finalists import fastest
from tuner.tuning.history import teach_earlier_runs, teach_other_tasks
from tuner.tuning.lookahead import lookahead_of
from tuner.tuning.request import Request
from tuner.tuning.shortlist import Shortlist
from tuner.tuning.state import State
from tuner.tuning.store import Store
from tuner.tuning.trials import metrics, told_time, trial_of
from tuner.tuning.unfinished import MAX_ATTEMPTS, UnfinishedRun

POLL_S = 0.1
PATIENCE_S = 2.5
"""After Ctrl-C, how long the measurement under way may still take."""


class SearchLoop:
    """Tries configurations until the budget, the time or the space is used up.

    The steps of a trial, in this order: the study is asked, an attempt is written, the device gets it and answers, the
    trial is recorded, the study is told. Trials are told in the order asked, whatever the order of the answers, so that
    a seed gives the same run.

    A resumed run takes the same steps from its beginning, and what it has results of is neither measured nor recorded
    again (:class:`tuner.tuning.unfinished.UnfinishedRun`).

    Args:
        state: of the run; filled in as it goes on.
        search: the run's study.
        device: measures; prepared.
        store: where every trial goes.
        observer: told of everything.
        stop: called often; once it returns true nothing new is tried.
        request: says after which time nothing new is tried, and which time is expected.
    """

    def __init__(
        self,
        state: State,
        search: Search,
        device: Device,
        store: Store,
        observer: Observer[State],
        stop: Callable[[], bool],
        request: Request,
    ) -> None:
        self.state, self.run, self.study = state, state.run, search
        self.device, self.store, self.observer, self.stop = device, store, observer, stop
        self.time_s = math.inf if request.options.time_s is None else request.options.time_s
        self._expected_ns = request.expected_ns
        selecting = isinstance(search.sampler, Nominating) and device.compilers
        self.shortlist = Shortlist(search, device, self._lookahead) if selecting else None
        self._recorded: set[int] = set()
        """Numbers of the trials that have ended."""
        self._stopped_before: Stopped | None = None
        """Why an interrupted run had stopped searching."""
        self._drift = DriftCheck()
        self._before = UnfinishedRun()
        self._pending: dict[int, Configuration] = {}
        """Begun, but not answered yet."""
        self._held: deque[int] = deque()
        """Numbers of those that the device does not have yet."""
        self._answered: dict[int, Trial] = {}
        """Recorded, but not told yet."""
        self._untold: deque[int] = deque()
        """Numbers of those that were begun, but not told yet, in the order asked."""
        self._retimed: set[int] = set()
        """Numbers of trials whose configuration the search was told before."""
        self._waiting = False
        """Whether the next trial has to wait until what it is chosen from is compiled.

        Nothing is told meanwhile: the choice must not depend on how long compiling takes. Whether it must wait is
        settled once for each choice: from one check to the next a compilation may end, or the time."""
        self._opening = True
        """Whether the default and the initial configurations are still to be tried."""
        self._begun = 0
        """How many trials were begun; the number of the next, unless an interrupted run asked for another then."""
        self._told_ns: dict[Configuration, float] = {}
        """Times of this run that the study was told."""
        self._deadline = math.inf
        self._exhausted = False

    # -- before

    def begin(self, *, resumed: bool) -> None:
        """Record the run, or bring the search to where the interrupted run was; teach earlier results."""
        if resumed:
            self.store.resume_run(self.run.id)
            left = self.store.left_behind(self.run.id)
            if stopped := left.stats.get("stopped"):
                self._stopped_before = Stopped(**stopped)
        else:
            mark = self.state.mark
            self.store.start_run(self.run, {"mark": dataclasses.asdict(mark)} if mark else {})
        again: list[Configuration] = []
        if not self.run.options.from_scratch:
            again = teach_earlier_runs(self.study, self.store, self.state)
            teach_other_tasks(self.study, self.store, self.state)
        self.study.sampler.begin_with([*again, *self.state.initial.sources])
        if resumed:
            self._recall(left)

    def _recall(self, left: LeftBehind) -> None:
        """Take up what the interrupted run left."""
        trials = left.trials
        for trial in trials:
            self._count(trial)
            self._recorded.add(trial.number)
        # What could not be confirmed was told as it had been timed.
        told = [
            dataclasses.replace(t, status=Status.OK) if t.status is Status.UNSTABLE else t for t in trials
        ]
        self._before = UnfinishedRun(told, left.attempts)
        self._drift.recall(trials)
        self.state.resumed_trials = len(trials)

    # -- the loop

    def search(self) -> None:
        """Try configurations until nothing is left to try.

        Raises:
            Interrupted: ``stop`` said so.
            SpaceError: nothing was tried.
        """
        state = self.state
        self._start_clock()
        while not self.stop():
            self._step()
            if not self._untold and not self._waiting:
                break
        else:
            self._drain()
            raise Interrupted("stopped")
        state.search_ended = time.monotonic()
        state.number_rows(self.store.rows(self.run.id))
        if self.shortlist:
            self.shortlist.close()
        if len(state.trials) < state.budget and not self._exhausted:
            state.stopped = self._stopped
        if not state.trials:
            raise SpaceError("nothing was tried", "allow more trials or time")

    def _start_clock(self) -> None:
        self.state.search_began = time.monotonic()
        self._deadline = self.state.search_began + self.time_s

    def _step(self) -> None:
        """Record the answers, tell them, and begin more trials.

        Answers and the attempts that follow from them share a transaction: the disk is waited for once.
        """
        replaying = not self._before.over
        outcomes = self.device.collect(POLL_S) if self._pending or self._waiting else []
        with self.store.transaction():
            for outcome in outcomes:
                self._record_outcome(outcome)
            # Told one by one in the order asked, each followed by the trials that it makes room for: proposals do not
            # depend on the order of the answers.
            self._begin_trials()
            while self._untold and self._untold[0] in self._answered and not self._waiting:
                self._tell(self._answered.pop(self._untold.popleft()))
                self._begin_trials()
                if not self._before.over:  # all of them at once would lock the file for long
                    break
            released = self._release()
        if replaying and self._before.over:
            self._start_clock()
        for number in released:
            self.device.submit(number, self._pending[number], self._incumbent_ns)
        self.observer.step(self.state, len(self.state.trials))

    def _begin_trials(self) -> None:
        """Begin as many trials as there is room for."""
        self._waiting = False
        while self._has_room() and not self._must_wait():
            if not self._begin_next():
                self._exhausted = True
                break

    def _has_room(self) -> bool:
        depth = shortlist.depth if (shortlist := self._chosen_from) else self._lookahead()
        if len(self._untold) >= depth:
            return False
        if self._timed_again is not None:  # a suspect time is left out of the race unless it is taken again
            return True
        going_on = self._stopped is None and time.monotonic() < self._deadline
        return self._begun < self.state.budget and not self._exhausted and (going_on or not self._before.over)

    @property
    def _timed_again(self) -> Configuration | None:
        """What is tried next because its time was suspect, or None."""
        if not self._before.over:
            return self._before.timed_again(self._begun)
        return self._drift.waiting[0] if self._drift.waiting else None

    def _incumbent_ns(self) -> float | None:
        incumbent = self.state.incumbent  # once: compiling threads ask, too
        return incumbent.time_ns if incumbent else None

    def _lookahead(self) -> int:
        if self._expected_ns is None:
            return self.run.lookahead
        return lookahead_of(self.device, self._expected_ns, min(self._told_ns.values(), default=None))

    def _must_wait(self) -> bool:
        """Nominate as many as there is room for; return whether the next choice has to wait for a compilation."""
        if shortlist := self._chosen_from:
            shortlist.fill(self.state.budget - self._begun)
            self._waiting = not (self._timed_again or shortlist.empty or shortlist.ready())
        return self._waiting

    @property
    def _chosen_from(self) -> Shortlist | None:
        """The shortlist, once the default and the initial configurations have been begun."""
        if self._opening:
            self._opening = self.study.sampler.opening
        return None if self._opening else self.shortlist

    @property
    def _stopped(self) -> Stopped | None:
        return self._stopped_before or self.study.stopped

    def _begin_next(self) -> bool:
        """Begin the next trial, and return whether there is one."""
        if again := self._timed_again:
            trial = self._before.take_again(self._begun)
            if trial is None:
                self._drift.forget(again)
            self._retimed.add(self._begin(again, trial))
            self.state.retimed += 1
            return True
        if shortlist := self._chosen_from:
            configuration = None if shortlist.empty else self.study.ask(shortlist.choose())
        else:
            configuration = self.study.ask()
        if configuration is None:
            return False
        trial = self._before.take(configuration)
        if self.shortlist:
            self.shortlist.skip(configuration)
            if trial is not None:
                self.device.forget(configuration)
        self._begin(configuration, trial)
        return True

    def _begin(self, configuration: Configuration, trial: Trial | None) -> int:
        """Note that a trial begins, with its result if it has one already, and return its number."""
        if trial is None and self._before.departs(self._begun):
            self._give_up_replaying()
        number = trial.number if trial else self._begun
        if trial is None and (number in self._recorded or number in self._pending):
            number = max([*self._recorded, *self._pending]) + 1
        if trial is None and (count := self._before.attempts(configuration)) >= MAX_ATTEMPTS:
            error = f"the tuner died {count} times on this configuration"
            trial = self._record(Trial(number, configuration, Status.CRASHED, error=error))
        if trial is None:
            self._pending[number] = configuration
            self._held.append(number)
        else:
            self._answered[number] = trial
        self._untold.append(number)
        self._begun += 1
        return number

    def _give_up_replaying(self) -> None:
        """Tell at once what is left of an interrupted run: the search has asked for something else than then."""
        first, again = self._before.give_up()
        for trial in first:
            if self.shortlist:
                self.shortlist.drop(trial.configuration)
            self.study.recall(trial.configuration, told_time(trial))
        self.state.retimed += len(again)
        self._begun += len(first) + len(again)

    def _release(self) -> list[int]:
        """Record an attempt for each trial that the device gets now, and return their numbers.

        One that may have killed the tuner waits until it is alone, and has nothing beside it.
        """
        released: list[int] = []
        suspect = self._before.suspect
        under_way = [c for number, c in self._pending.items() if number not in self._held]
        while self._held and not any(map(suspect, under_way)):
            configuration = self._pending[self._held[0]]
            if under_way and suspect(configuration):
                break
            released.append(self._held.popleft())
            under_way.append(configuration)
            self.store.attempt(self.run.id, released[-1], configuration)
        return released

    def _record_outcome(self, outcome: Outcome) -> None:
        """Record an answer, and mark trials before it that it makes suspect."""
        del self._pending[outcome.number]
        trial = self._record(trial_of(outcome, self.run.options.max_error))
        self._answered[outcome.number] = trial
        measurement = outcome.measurement
        best_ns = self.state.incumbent.time_ns if self.state.incumbent else None
        timed = measurement.measure_s > 0.0  # else it did not get so far, or an equal source did, earlier
        for suspect in self._drift.add(trial, timed=timed, drifted=measurement.drifted, best_ns=best_ns):
            self._mark_suspect(suspect)

    def _record(self, trial: Trial) -> Trial:
        self.store.record(self.run.id, trial, metrics(self.state.roof, trial.time_ns))
        self._recorded.add(trial.number)
        trial = dataclasses.replace(trial, sources=())
        self._count(trial)
        return trial

    def _count(self, trial: Trial) -> None:
        state = self.state
        state.trials.append(trial)
        if trial.configuration == self.study.space.default:
            state.default = trial
        state.incumbent = fastest(filter(None, (state.incumbent, trial)))

    def _mark_suspect(self, trial: Trial) -> None:
        """Mark a trial as suspect; its configuration waits to be timed again."""
        self._told_ns.pop(trial.configuration, None)
        state, tags = self.state, (*trial.tags, SUSPECT)
        self.store.retag(self.run.id, trial.number, tags)
        state.trials = [
            dataclasses.replace(t, tags=tags) if t.number == trial.number else t for t in state.trials
        ]
        state.incumbent = fastest(state.trials)

    def _tell(self, trial: Trial) -> None:
        if trial.number in self._retimed:
            return
        if time_ns := told_time(trial):
            self._told_ns[trial.configuration] = time_ns
        self.study.tell(trial.configuration, time_ns)
        if self.shortlist:
            self.shortlist.told(trial.compile_s, trial.measure_s)

    def _drain(self) -> None:
        """Wait for the measurement under way; other pending trials are dropped, and begun again on resume."""
        deadline = time.monotonic() + PATIENCE_S
        self._exhausted, self._before = True, UnfinishedRun()
        self._drift.waiting.clear()  # the database has them
        while self._held:
            del self._pending[self._held.popleft()]
        before = len(self.state.trials)
        while self._pending and len(self.state.trials) == before and time.monotonic() < deadline:
            self._step()
