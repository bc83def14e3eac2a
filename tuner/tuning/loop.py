"""The search of a run: asks the study, feeds the device, writes the database, tells the study."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from tuner.database.database import Database
from tuner.database.records import SUSPECT
from tuner.devices.base import Device, Outcome
from tuner.errors import Interrupted, SpaceError
from tuner.model import Configuration, Status, Trial
from tuner.search.protocols import Nominating
from tuner.search.stopping import Stopped
from tuner.search.study import Search
from tuner.tuning.drift import DriftCheck
from tuner.tuning.history import teach_earlier_runs, teach_other_tasks
from tuner.tuning.lookahead import lookahead_of
from tuner.tuning.request import Request
from tuner.tuning.shortlist import Shortlist
from tuner.tuning.state import Observer, State
from tuner.tuning.trials import metrics, told_time, trial_of

POLL_S = 0.1
PATIENCE_S = 2.5
"""After Ctrl-C, how long the measurement under way may still take."""
SUSPECT_ATTEMPTS, MAX_ATTEMPTS = 2, 3
"""A configuration that was begun twice without a result is tried once more with nothing beside it: another one may have
killed the tuner. Begun three times without a result, it is recorded as crashed."""


class SearchLoop:
    """Tries configurations until the budget, the time or the space is used up.

    The steps of a trial, in this order: the study is asked, an attempt is written, the device gets it and answers, the
    trial is recorded, the study is told. Trials are told in the order asked, whatever the order of the answers, so that
    a seed gives the same run.

    Args:
        state: of the run; filled in as it goes on.
        search: the run's study.
        device: measures; prepared.
        database: where every trial goes.
        observer: told of everything.
        stop: called often; once it returns true nothing new is tried.
        request: says after which time nothing new is tried, and which time is expected.
    """

    def __init__(
        self,
        state: State,
        search: Search,
        device: Device,
        database: Database,
        observer: Observer,
        stop: Callable[[], bool],
        request: Request,
    ) -> None:
        self.state, self.run, self.study = state, state.run, search
        self.device, self.database, self.observer, self.stop = device, database, observer, stop
        self.time_s = math.inf if request.time_s is None else request.time_s
        self._expected_ns = request.expected_ns
        selecting = isinstance(search.sampler, Nominating) and device.compilers
        self.shortlist = Shortlist(search, device, self._lookahead) if selecting else None
        self.ids: dict[int, int] = {}
        """Rows of the trials in the database, by number."""
        self._stopped_before: Stopped | None = None
        """Why an interrupted run had stopped searching."""
        self._drift = DriftCheck()
        self._pending: dict[int, Configuration] = {}
        self._answered: dict[int, Outcome] = {}
        """Recorded, but not told yet."""
        self._attempts: list[Configuration] = []
        """Begun by the interrupted run: tried before anything that the search proposes."""
        self._suspects: set[Configuration] = set()
        """Attempts that may have killed the tuner: tried with nothing beside them."""
        self._retimed: set[int] = set()
        """Numbers of trials whose configuration the search was told before."""
        self._waiting = False
        """Whether the next trial has to wait until what it is chosen from is compiled.

        Nothing is told meanwhile: the choice must not depend on how long compiling takes. Whether it must wait is
        settled once for each choice: from one check to the next a compilation may end, or the time."""
        self._opening = True
        """Whether the default and the initial configurations are still to be tried."""
        self._next_number = 0
        self._next_told = 0
        self._exhausted = False

    # -- before

    def begin(self, *, resumed: bool) -> None:
        """Record the run, or bring the search to where the interrupted run was; teach earlier results."""
        if resumed:
            before = self.database.run_state(self.run.id)
            self.database.resume_run(self.run.id)
            self._recall()
            self.state.resumed_trials = len(self.state.trials)
            if stopped := before["stats"].get("stopped"):
                self._stopped_before = Stopped(**stopped)
        else:
            self.database.start_run(self.run)
        again: list[Configuration] = []
        if not self.run.options.from_scratch:
            again = teach_earlier_runs(self.study, self.database, self.state, self._attempts)
            teach_other_tasks(self.study, self.database, self.state)
        self.study.sampler.begin_with([*again, *self.state.initial.sources])

    def _recall(self) -> None:
        """Rebuild the study from the run's trials, and note the attempts without a result."""
        trials = self.database.trials(self.run.id)
        tried: set[Configuration] = set()
        for trial in trials:
            self._recall_trial(trial.configuration, told_time(trial), again=trial.configuration in tried)
            self._count(trial)
            self.ids[trial.number] = trial.id or 0
            self._next_number = max(self._next_number, trial.number + 1)
            tried.add(trial.configuration)
        self._drift.recall(trials)
        for number, configuration, count in self.database.pending_attempts(self.run.id):
            self._next_number = max(self._next_number, number + 1)
            if not self.study.space.contains(configuration):
                continue
            if count >= MAX_ATTEMPTS:
                error = f"the tuner died {count} times on this configuration"
                self._record(Trial(number, configuration, Status.CRASHED, error=error))
                self._drift.forget(configuration)
                self._recall_trial(configuration, None, again=configuration in tried)
            elif configuration not in tried:  # else it is among those to be timed again
                self._attempts.append(configuration)
            if count >= SUSPECT_ATTEMPTS:
                self._suspects.add(configuration)
        self._attempts.sort(key=lambda configuration: configuration not in self._suspects)
        self._next_told = self._next_number

    def _recall_trial(self, configuration: Configuration, time_ns: float | None, *, again: bool) -> None:
        self.state.retimed += again
        if not again:
            self.study.recall(configuration, time_ns)

    # -- the loop

    def search(self) -> None:
        """Try configurations until nothing is left to try.

        Raises:
            Interrupted: ``stop`` said so.
            SpaceError: nothing was tried.
        """
        state = self.state
        state.search_began = time.monotonic()
        deadline = state.search_began + self.time_s
        while not self.stop():
            self._step(deadline)
            if not self._pending and not self._waiting:
                break
            self.observer.tick(state)
        else:
            self._drain()
            raise Interrupted("stopped")
        state.search_ended = time.monotonic()
        if self.shortlist:
            self.shortlist.close()
        if len(state.trials) < state.budget and not self._exhausted:
            state.stopped = self._stopped
        if not state.trials:
            raise SpaceError("nothing was tried", "allow more trials or time")

    def _step(self, deadline: float) -> None:
        """Record the answers, tell them, and begin more trials.

        Answers and the attempts that follow from them share a transaction: the disk is waited for once.
        """
        outcomes = self.device.collect(POLL_S) if self._pending or self._waiting else []
        with self.database.transaction():
            ended = [self._record_outcome(outcome) for outcome in outcomes]
            # Told one by one in the order asked, each followed by the trials that it makes room for: proposals do not
            # depend on the order of the answers.
            begun = self._begin_trials(deadline)
            while self._next_told in self._answered and not self._waiting:
                self._tell(self._answered.pop(self._next_told))
                begun += self._begin_trials(deadline)
        for trial in ended:
            self.observer.trial(self.state, trial)
        for number in begun:
            self.device.submit(number, self._pending[number], self._incumbent_ns)

    def _begin_trials(self, deadline: float) -> list[int]:
        """Begin as many trials as there is room for, and return their numbers."""
        begun: list[int] = []
        self._waiting = False
        while self._has_room(deadline) and not self._must_wait():
            configuration = self._next_configuration()
            if configuration is None:
                self._exhausted = True
                break
            begun.append(self._attempt(configuration))
        return begun

    def _has_room(self, deadline: float) -> bool:
        if self._pending and self._suspects.intersection([*self._pending.values(), *self._attempts[:1]]):
            return False
        depth = shortlist.depth if (shortlist := self._chosen_from) else self._lookahead()
        if self._next_number - self._next_told >= depth:
            return False
        if self._drift.waiting:  # a suspect time is left out of the race unless it is taken again
            return True
        begun = len(self.state.trials) + len(self._pending)
        return (
            begun < self.state.budget
            and not self._exhausted
            and self._stopped is None
            and time.monotonic() < deadline
        )

    def _incumbent_ns(self) -> float | None:
        incumbent = self.state.incumbent  # once: compiling threads ask, too
        return incumbent.time_ns if incumbent else None

    def _lookahead(self) -> int:
        if self._expected_ns is None:
            return self.device.lookahead
        return lookahead_of(self.device, self._expected_ns, self._incumbent_ns())

    def _must_wait(self) -> bool:
        """Nominate as many as there is room for; return whether the next choice has to wait for a compilation."""
        if shortlist := self._chosen_from:
            shortlist.fill(self.state.budget - len(self.state.trials) - len(self._pending))
            tried_anyway = self._drift.waiting or self._attempts
            self._waiting = not (tried_anyway or shortlist.empty or shortlist.ready())
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

    def _next_configuration(self) -> Configuration | None:
        """Return what is tried next; None when everything has been tried."""
        if self._drift.waiting:
            self._retimed.add(self._next_number)
            self.state.retimed += 1
            return self._drift.waiting.pop(0)
        if self._attempts:
            return self.study.ask(self._attempts.pop(0))
        if shortlist := self._chosen_from:
            return None if shortlist.empty else self.study.ask(shortlist.choose())
        return self.study.ask()

    def _attempt(self, configuration: Configuration) -> int:
        """Record that a trial begins, and return its number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self.database.attempt(self.run.id, number, configuration)
        self._pending[number] = configuration
        if self.shortlist:
            self.shortlist.skip(configuration)
        return number

    def _record_outcome(self, outcome: Outcome) -> Trial:
        """Record an answer, and mark trials before it that it makes suspect."""
        del self._pending[outcome.number]
        self._answered[outcome.number] = outcome
        trial = self._record(trial_of(outcome, self.run.options.max_error))
        measurement = outcome.measurement
        best_ns = self.state.incumbent.time_ns if self.state.incumbent else None
        timed = measurement.measure_s > 0.0  # else it did not get so far, or an equal source did, earlier
        for suspect in self._drift.add(trial, timed=timed, drifted=measurement.drifted, best_ns=best_ns):
            self._mark_suspect(suspect)
        return trial

    def _record(self, trial: Trial) -> Trial:
        row = self.database.record(self.run.id, trial, metrics=metrics(self.state.roof, trial.time_ns))
        self.ids[trial.number] = row
        trial = replace(trial, id=row, sources=())
        self._count(trial)
        return trial

    def _count(self, trial: Trial) -> None:
        state = self.state
        state.trials.append(trial)
        if trial.configuration == self.study.space.default:
            state.default = trial
        best_ns = state.incumbent.time_ns if state.incumbent and state.incumbent.time_ns else math.inf
        eligible = trial.status is Status.OK and SUSPECT not in trial.tags
        if eligible and trial.time_ns and trial.time_ns < best_ns:
            state.incumbent = trial

    def _mark_suspect(self, trial: Trial) -> None:
        """Mark a trial as suspect; its configuration waits to be timed again."""
        state, tags = self.state, (*trial.tags, SUSPECT)
        self.database.retag(self.ids[trial.number], tags)
        state.trials = [replace(t, tags=tags) if t.number == trial.number else t for t in state.trials]
        eligible = [t for t in state.trials if t.status is Status.OK and t.time_ns and SUSPECT not in t.tags]
        state.incumbent = min(eligible, key=lambda t: t.time_ns or math.inf, default=None)

    def _tell(self, outcome: Outcome) -> None:
        if outcome.number not in self._retimed:
            time_ns = told_time(trial_of(outcome, self.run.options.max_error))
            self.study.tell(outcome.configuration, time_ns)
            if self.shortlist:
                self.shortlist.told(outcome.compilation.compile_s, outcome.measurement.measure_s)
        self._next_told += 1

    def _drain(self) -> None:
        """Wait for the measurement under way; other pending trials are dropped, and begun again on resume."""
        deadline = time.monotonic() + PATIENCE_S
        self._drift.waiting.clear()  # the database has them
        before = len(self.state.trials)
        while self._pending and len(self.state.trials) == before and time.monotonic() < deadline:
            self._step(deadline=0.0)
