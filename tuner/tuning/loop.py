"""The search of a run: asks the study, feeds the device, writes the database, tells the study."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from tuner.core.errors import Interrupted, SpaceError
from tuner.core.model import SUSPECT, Configuration, Status, Trial
from tuner.core.observer import Observer
from tuner.database.records import LeftBehind
from tuner.search.base import Nominating
from tuner.search.stopping import Stopped
from tuner.search.study import Search
from tuner.tuning.drift import DriftCheck
from tuner.tuning.history import teach_earlier_runs, teach_other_tasks
from tuner.tuning.opening import lookahead_of
from tuner.tuning.request import Request
from tuner.tuning.shortlist import Shortlist
from tuner.tuning.state import State, bounded, fastest, metrics, told_time
from tuner.tuning.store import Store

POLL_S = 0.1
PATIENCE_S = 1.0
"""After Ctrl-C, how long the measurement under way may still take."""
SUSPECT_ATTEMPTS, MAX_ATTEMPTS = 2, 3
"""A configuration that was begun twice without a result is tried once more with nothing beside it: another one may have
killed the tuner. Begun three times without a result, it is recorded as crashed."""


@dataclass(eq=False)
class _Begun:
    """A trial from the moment in which the study was asked to the moment in which it is told."""

    number: int
    configuration: Configuration
    again: bool
    """Whether the study was told this configuration before: it is timed again."""
    submitted: bool = False
    """Whether the device has it, or had it."""
    trial: Trial | None = None
    """Once it is recorded."""


class SearchLoop:
    """Tries configurations until the budget, the time or the space is used up; :meth:`_step` has the life of a trial.

    A resumed run tells its study what it has results of, begins again what it had begun without a result, and goes on.

    Args:
        state: of the run, whose device is prepared; filled in as it goes on.
        search: the run's study.
        store: where every trial goes.
        observer: told of everything.
        stop: called often; once it returns true nothing new is tried.
        request: says after which time nothing new is tried, and which time is expected.
    """

    def __init__(
        self,
        state: State,
        search: Search,
        store: Store,
        observer: Observer[State],
        stop: Callable[[], bool],
        request: Request,
    ) -> None:
        self.state, self.run, self.device, self.study = state, state.run, state.device, search
        self.store, self.observer, self.stop = store, observer, stop
        self.time_s = math.inf if request.options.time_s is None else request.options.time_s
        self._counts_from = request.began
        self._expected_ns, self._first = request.expected_ns, request.first
        self.shortlist: Shortlist | None = None
        if isinstance(search.sampler, Nominating) and self.device.compilers:
            self.shortlist = Shortlist(search.sampler, self.device, self._lookahead)
        self._stopped_before: Stopped | None = None
        """Why an interrupted run had stopped searching."""
        self._drift = DriftCheck()
        self._left: deque[Configuration] = deque()
        """Begun without a result by the interrupted run, and not begun again yet."""
        self._attempts = Counter[Configuration]()
        """How often the interrupted run has begun what it left without a result."""
        self._untold: deque[_Begun] = deque()
        """All that were begun and not told yet, in the order asked."""
        self._waiting = False
        """Whether the next trial has to wait until nominees are compiled."""
        self._opening = True
        """Whether the default and the initial configurations are still to be tried."""
        self._begun = 0
        """How many trials were begun, those of the interrupted run among them."""
        self._numbers = itertools.count()
        """Of the trials to come."""
        self._told_ns: dict[Configuration, float] = {}
        """Times of this run that the study was told."""
        self._deadline = math.inf
        self._draining = False

    # -- before

    def begin(self, *, resumed: bool) -> None:
        """Record the run, or recall what the interrupted run has recorded; teach earlier results."""
        if resumed:
            self.store.resume_run(self.run.id)
            left = self.store.left_behind(self.run.id)
            if stopped := left.stats.get("stopped"):
                self._stopped_before = Stopped(**stopped)
        else:
            self.store.start_run(self.run, {"mark": dataclasses.asdict(self.state.mark)})
        sampler = self.study.sampler
        sampler.begin_with(self._first)
        if not self.run.options.from_scratch:
            sampler.begin_with(teach_earlier_runs(self.study, self.store, self.state, self._first))
        self.state.taught = teach_other_tasks(self.study, self.run, self.state.lessons)
        sampler.begin_with(self.state.initial)
        if resumed:
            self._recall(left)

    def _recall(self, left: LeftBehind) -> None:
        """Take up what the interrupted run left: the study is told its trials, and none of them is measured again."""
        tried = set[Configuration]()
        for trial in left.trials:
            self._count(trial)
            if trial.configuration not in tried:  # else it was timed again
                tried.add(trial.configuration)
                # What could not be confirmed was told as it had been timed.
                unstable = trial.status is Status.UNSTABLE
                told = dataclasses.replace(trial, status=Status.OK) if unstable else trial
                self._note_told(told)
                self.study.recall(trial.configuration, told_time(told))
        self._attempts.update({configuration: count for _, configuration, count in left.attempts})
        self._left.extend(c for c in self._attempts if c not in tried and self.study.space.contains(c))
        self._drift.recall(left.trials)
        self.state.resumed_trials = self._begun = len(left.trials)
        self.state.retimed = len(left.trials) - len(tried)
        numbers = [trial.number for trial in left.trials] + [number for number, _, _ in left.attempts]
        self._numbers = itertools.count(max(numbers, default=-1) + 1)

    # -- the loop

    def search(self) -> None:
        """Try configurations until nothing is left to try.

        Raises:
            Interrupted: ``stop`` said so.
            SpaceError: nothing was tried.
        """
        state = self.state
        state.search_began = time.monotonic()
        counts_from = self._counts_from or state.search_began
        # A calibration is of the GPU, and once for all runs.
        self._deadline = counts_from + self.time_s + self.device.phases.seconds("calibration", counts_from)
        while not self.stop():
            self._step()
            if time.monotonic() >= self._deadline and state.incumbent is not None:
                self._drop()
            if not self._untold and not self._waiting:
                break
        else:
            self._drain()
            raise Interrupted("stopped")
        state.search_ended = time.monotonic()
        state.number_rows(self.store.rows(self.run.id))
        if self.shortlist:
            self.shortlist.close()
        if len(state.trials) < state.budget:
            state.stopped = self._stopped
            state.out_of_time = state.stopped is None and state.search_ended >= self._deadline
            state.expected_gain = self.study.expected_gain() if state.out_of_time else None
        if not state.trials:
            raise SpaceError("nothing was tried", "allow more trials or time")

    def _step(self) -> None:
        """Take each trial one step further: it is asked for, released, submitted, collected, recorded, and told.

        Trials are told one by one in the order asked, whatever the order of the answers, and each makes room for the
        next, so that a seed gives the same run where nothing is compiled. Answers and the attempts that follow from
        them share a transaction: the disk is waited for once.
        """
        pending = {one.number: one for one in self._pending}
        collected = self.device.collect(POLL_S) if pending or self._waiting else []
        with self.store.transaction():
            for answer in collected:
                trial = self._record(bounded(answer, self.run.options.max_error))
                pending[trial.number].trial = trial
                self._check_drift(trial)
            self._ask()
            while self._untold and (told := self._untold[0].trial):
                if not self._untold.popleft().again:
                    self._tell(told)
                self._ask()
            released = self._release()
        for begun in released:
            self.device.submit(begun.number, begun.configuration, self._incumbent_ns)
        self.observer.step(self.state, len(self.state.trials))

    def _ask(self) -> None:
        """Begin as many trials as there is room for."""
        self._waiting = False
        while self._has_room() and not self._must_wait() and self._begin_next():
            pass

    def _has_room(self) -> bool:
        depth = shortlist.depth if (shortlist := self._chosen_from) else self._lookahead()
        if len(self._untold) >= depth:
            return False
        if self._drift.waiting:  # a suspect time is left out of the race unless it is taken again
            return True
        going_on = self._stopped is None and (time.monotonic() < self._deadline or not self._begun)
        return going_on and self._begun < self.state.budget and not self._draining

    def _incumbent_ns(self) -> float | None:
        incumbent = self.state.incumbent  # once: compiling threads ask, too
        return incumbent.time_ns if incumbent else None

    def _lookahead(self) -> int:
        if self._expected_ns is None and math.isinf(self.time_s):
            return self.run.lookahead
        best_ns = min(self._told_ns.values(), default=0.0)
        return lookahead_of(self.device, self._expected_ns or 0.0, best_ns)

    def _must_wait(self) -> bool:
        """Nominate as many as there is room for; return whether the next choice has to wait for a compilation."""
        if shortlist := self._chosen_from:
            shortlist.fill(self.state.budget - self._begun)
            settled = self._drift.waiting or self._left  # what is tried next is no choice
            self._waiting = not (settled or shortlist.empty or shortlist.ready())
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
        if self._drift.waiting:
            again = self._drift.waiting[0]
            self._drift.forget(again)
            self._begin(again, again=True)
            self.state.retimed += 1
            return True
        if self._left:
            configuration = self.study.ask(self._left.popleft())
        elif shortlist := self._chosen_from:
            configuration = None if shortlist.empty else self.study.ask(shortlist.choose())
        else:
            configuration = self.study.ask()
        if configuration is None:
            return False
        if self.shortlist:
            self.shortlist.skip(configuration)
        self._begin(configuration)
        return True

    def _begin(self, configuration: Configuration, *, again: bool = False) -> None:
        """Note that a trial begins; what killed the tuner too often has ended with that."""
        begun = _Begun(next(self._numbers), configuration, again)
        self._untold.append(begun)
        self._begun += 1
        if (attempts := self._attempts[configuration]) >= MAX_ATTEMPTS:
            error = f"the tuner died {attempts} times on this configuration"
            begun.trial = self._record(Trial(begun.number, configuration, Status.CRASHED, error=error))

    def _release(self) -> list[_Begun]:
        """Record an attempt for each trial that the device gets now, and return them.

        One that may have killed the tuner waits until it is alone, and has nothing beside it.
        """
        released: list[_Begun] = []
        under_way = [begun.configuration for begun in self._pending]
        for begun in self._untold if not self._draining else ():
            if begun.submitted or begun.trial:
                continue
            if any(map(self._suspect, under_way)) or (under_way and self._suspect(begun.configuration)):
                break
            released.append(begun)
            under_way.append(begun.configuration)
            begun.submitted = True
            self.store.attempt(self.run.id, begun.number, begun.configuration)
        return released

    @property
    def _pending(self) -> list[_Begun]:
        """Those that the device has."""
        return [begun for begun in self._untold if begun.submitted and not begun.trial]

    def _suspect(self, configuration: Configuration) -> bool:
        """Return whether a configuration may have killed the tuner."""
        return self._attempts[configuration] >= SUSPECT_ATTEMPTS

    def _record(self, trial: Trial) -> Trial:
        self.store.record(self.run.id, trial, metrics(self.state.roof, trial.time_ns))
        trial = dataclasses.replace(trial, sources=())
        self._count(trial)
        return trial

    def _count(self, trial: Trial) -> None:
        state = self.state
        state.trials.append(trial)
        if trial.configuration == self.study.space.default:
            state.default = trial
        state.incumbent = fastest(filter(None, (state.incumbent, trial)))

    def _check_drift(self, trial: Trial) -> None:
        """Mark the trials that a collected one makes suspect, because the GPU drifted before it."""
        timed = trial.measure_s > 0.0  # else it did not get so far, or an equal source did, earlier
        best_ns = self._incumbent_ns()
        for suspect in self._drift.add(trial, timed=timed, drifted=trial.drifted, best_ns=best_ns):
            self._mark_suspect(suspect)

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
        self._note_told(trial)
        self.study.tell(trial.configuration, told_time(trial))
        if self.shortlist:
            self.shortlist.told(trial.compile_s, trial.measure_s)

    def _note_told(self, trial: Trial) -> None:
        if time_ns := told_time(trial):
            self._told_ns[trial.configuration] = time_ns

    def _drop(self) -> None:
        """Begin nothing more, and wait only for what is being measured."""
        self._waiting = False
        dropped = self.device.drop()
        kept = (one for one in self._untold if one.trial or (one.submitted and one.number not in dropped))
        self._untold = deque(kept)

    def _drain(self) -> None:
        """Wait for the measurement under way; other pending trials are dropped, and begun again on resume."""
        deadline = time.monotonic() + PATIENCE_S
        self._draining = True
        self._left.clear()
        self._drift.waiting.clear()  # the database has them
        before = len(self.state.trials)
        while self._pending and len(self.state.trials) == before and time.monotonic() < deadline:
            self._step()
