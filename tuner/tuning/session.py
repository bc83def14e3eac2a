"""``tune()``: asks the search, feeds the device, writes the database, and races the finalists."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tuner.database.database import Database
from tuner.database.records import SUSPECT
from tuner.devices.base import Device, Occupancy, Outcome
from tuner.errors import Interrupted, SpaceError, TooInaccurateError, UsageError
from tuner.hardware.roofline import roof_of
from tuner.model import Configuration, Status, Trial
from tuner.search import make_search
from tuner.search.base import Search
from tuner.search.initial import gather, refuse
from tuner.search.stopping import Enough, Watch
from tuner.search.task_distance import distance
from tuner.space.space import SearchSpace
from tuner.tuning.drift import Doubts
from tuner.tuning.race import run_finish
from tuner.tuning.runs import interrupted_run, new_run, truth_of
from tuner.tuning.shortlist import Shortlist
from tuner.tuning.state import Observer, Request, Result, State, ceiling_of, metrics
from tuner.tuning.trials import judged, objective, trial_of, winner_of

POLL_S = 0.1
PATIENCE_S = 5.0
"""After Ctrl-C, how long the measurement under way may still take."""
SEEDS = 3
"""Best configurations of earlier runs that are tried again."""
MAX_RELATED = 2000
"""Trials of other problems that are read, the newest."""
DETERMINISTIC = (
    Status.OK,
    Status.SLOW,
    Status.INVALID_CONFIG,
    Status.COMPILE_ERROR,
    Status.LAUNCH_ERROR,
    Status.WRONG_RESULT,
    Status.MEMORY_FAULT,
)
"""What would come out the same again; a hang or a lack of memory may have been another program's doing."""
SUSPECT_ATTEMPTS, MAX_ATTEMPTS = 2, 3
"""A configuration that was begun twice without a result is tried once more with nothing beside it: whoever killed the
tuner may have meant another. If it is begun a third time without a result, it is what takes the tuner with it."""


def tune(
    request: Request,
    device: Device,
    database: Database,
    observer: Observer,
    stop: Callable[[], bool] = lambda: False,
    *,
    finish: bool = True,
) -> Result:
    """Search, record, race, confirm.

    Args:
        request: what to tune.
        device: where to measure; ready, and closed by the caller.
        database: where every trial goes.
        observer: told of everything.
        stop: asked often; once it is true nothing new is tried.
        finish: race the finalists and confirm the winner; a recording has no use for that.

    Raises:
        Interrupted: ``stop`` said so; everything measured is recorded, and ``resume`` goes on.
        TooInaccurateError: no kernel of this dtype can be within ``request.max_error``; nothing was tried.
        TunerError: the problem cannot be tuned.
    """
    return _Session(request, device, database, observer, stop).run(finish=finish)


class _Session:
    def __init__(
        self,
        request: Request,
        device: Device,
        database: Database,
        observer: Observer,
        stop: Callable[[], bool],
    ) -> None:
        self.request, self.device, self.database, self.observer, self.stop = (
            request,
            device,
            database,
            observer,
            stop,
        )
        kernel, problem = request.kernel, request.problem
        resumed = interrupted_run(database, request, device.name) if request.resume else None
        # A resumed run goes on as it began, whatever the command line says now.
        run, why = (resumed, "as the interrupted run was") if resumed else new_run(request, device)
        space = SearchSpace.from_kernel(
            kernel, problem, device.gpu, run.narrowing.get("variants", ()), run.narrowing.get("fixed", {})
        )
        self.search: Search = make_search(
            run.sampler, space, run.seed
        )  # a wrong name is said before anything is measured
        if run.narrowing.get("stop_early") and self.search.promise is None:
            raise UsageError(
                f"the sampler {run.sampler} does not say what it expects, so that nothing can stop it",
                "leave out --stop auto, or take the default sampler with it",
            )
        which = run.narrowing.get("seeds", "auto")
        refuse(kernel, which)
        device.incumbent_ns, device.occupancy = None, Occupancy()
        device.prepare(kernel, problem, run.seed, run.conditions, truth_of(run))
        self.max_error: float | None = run.narrowing.get("max_error")
        self._refuse_what_is_hopeless()
        if not resumed:
            run = replace(run, calibration=device.calibration)
        self.space = device.restrict(space)
        self.search = make_search(run.sampler, self.space, run.seed)
        seeds = gather(kernel, problem, device.gpu, self.space, which, recorded=device.recorded)
        self.shortlist = (
            Shortlist(self.search, device) if self.search.selective and device.compilers else None
        )
        self.watch = Watch(device.noise_floor)
        self.enough: Enough | None = None
        """Why an interrupted run had stopped searching."""
        roof = roof_of(kernel, problem, device.gpu)
        self.state = State(run, roof, self.space, device=device, conditions_why=why, seeds=seeds)
        self.state.ceiling = ceiling_of(kernel, problem, device.gpu, roof, run.calibration)
        if not device.recorded:
            self.state.known = database.best_known(problem, device.gpu.name, run.conditions)
        self.ids: dict[int, int] = {}
        self.pending: dict[int, Configuration] = {}
        self.done: dict[int, Outcome] = {}
        self.begun: set[Configuration | None] = set()
        self.attempts: list[Configuration] = []
        """What an interrupted run had begun: tried before anything that the search asks for."""
        self.suspects: set[Configuration] = set()
        self.doubts = Doubts()
        self.again: set[int] = set()
        """Numbers of trials whose configuration the search has been told of already."""
        self.held_up = False
        """Whether the next trial has to wait until what it is chosen from is compiled.

        Nothing is told meanwhile: what is known when it is chosen must not depend on how long that takes. Each choice
        has one look: from one to the next a compilation may end, or the time."""
        self.next_number = 0
        self.next_told = 0
        self.exhausted = False
        if resumed:
            before = database.run_state(run.id)
            database.resume_run(run.id)
            self._replay_run()
            self.state.resumed_trials = len(self.state.trials)
            if stopped := before["stats"].get("stopped"):
                self.enough = Enough(**stopped)
        else:
            database.start_run(run)
        again: list[Configuration] = []
        if not run.narrowing.get("from_scratch"):
            again = self._learn_from_earlier_runs()
            self._learn_from_other_problems()
        self.search.begin_with([*again, *seeds.sources])

    def run(self, *, finish: bool = True) -> Result:
        """Go through search, race and confirmation, and say in the database how it ended."""
        state = "failed"
        try:
            self.observer.started(self.state)
            self._search()
            self.observer.phase(self.state, "searched")
            result = self._finish() if finish else Result(self.state, None, None, self._stats())
            state = "finished"
            return result
        except (KeyboardInterrupt, Interrupted):
            state = "interrupted"
            # Who stops the tuner says nothing against what it was at, also if he does not wait for that to end.
            self.database.clear_attempts(self.state.run.id)
            done = len(self.state.trials)
            raise Interrupted(
                f"stopped after {done} of {self._budget()} trials; all of them are kept",
                "go on with --resume",
            ) from None
        finally:
            self.observer.close()
            self.database.finish_run(self.state.run.id, state, self._stats())

    # -- before -----------------------------------------------------------------------------------------------------

    def _refuse_what_is_hopeless(self) -> None:
        least = self.device.least_error
        if self.max_error is not None and least is not None and least > self.max_error:
            raise TooInaccurateError(
                f"{self.request.problem}: rounding alone makes an error of {least:.2g}, "
                f"above {self.max_error:.2g}",
                "choose a wider dtype, or allow more",
            )

    def _learn_from_earlier_runs(self) -> list[Configuration]:
        """Tell the search what earlier runs of this very kernel, problem and GPU found; only new ground is tried.

        Failures that another day may not see again are not believed.

        Returns:
            The confirmed best of them and the next few, to be tried again unless this run had done so before it was
            interrupted: figures of another day cannot be raced against today's.
        """
        earlier = [judged(trial, self.max_error) for trial in self.database.earlier_trials(self.state.run)]
        # Whose error nobody knows, because it was tried without a bound, may well be accurate enough.
        unknown = [trial for trial in earlier if trial.status is Status.INACCURATE and not _settled(trial)]
        ok = [trial.configuration for trial in earlier if trial.status is Status.OK or trial in unknown]
        known = self.state.known
        best = ([known[0]] if known and known[0] in ok else []) + ok[:SEEDS]
        tried = {trial.configuration for trial in self.state.trials}
        again = [c for c in dict.fromkeys(best) if self.space.contains(c) and c not in tried]
        # What this run has tried or begun counts by this run's result.
        ours = {*tried, *self.attempts, *again, self.space.default}
        for trial in earlier:
            if trial.configuration not in ours and _settled(trial):
                self._add(trial.configuration, objective(trial))
                self.state.known_before += 1
        return again

    def _learn_from_other_problems(self) -> None:
        """Return the search hints: what earlier runs of this very kernel found at other sizes, and on other GPUs."""
        for other, trials in self.database.related_trials(self.state.run, MAX_RELATED):
            results = [(trial.configuration, objective(trial)) for trial in trials]
            self.search.learn(results, distance(self.state.run, other))
            self.state.hints += len(results)

    def _replay_run(self) -> None:
        """Bring the search to where the interrupted run was."""
        trials = self.database.trials(self.state.run.id)
        tried: set[Configuration] = set()
        for trial in trials:
            self._add(trial.configuration, objective(trial))
            self._count(trial)
            self.ids[trial.number] = trial.id or 0
            self.next_number = max(self.next_number, trial.number + 1)
            self.state.retimed += trial.configuration in tried
            tried.add(trial.configuration)
        self.doubts.recall(trials)
        for number, configuration, count in self.database.pending_attempts(self.state.run.id):
            self.next_number = max(self.next_number, number + 1)
            if not self.space.contains(configuration):
                continue
            if count >= MAX_ATTEMPTS:
                error = f"the tuner died {count} times on this configuration"
                self._record(Trial(number, configuration, Status.CRASHED, error=error))
                self.state.retimed += configuration in tried
                self.doubts.forget(configuration)
                self._add(configuration, None)
            elif configuration not in tried:  # else it is among the doubts
                self.attempts.append(configuration)
            if count >= SUSPECT_ATTEMPTS:
                self.suspects.add(configuration)
        self.attempts.sort(key=lambda configuration: configuration not in self.suspects)
        self.next_told = self.next_number

    def _add(self, configuration: Configuration, found: float | None) -> None:
        """Teach the search an earlier result."""
        self.search.add(configuration, found)
        self.watch.told(found)

    # -- the search ---------------------------------------------------------------------------------------------------

    def _budget(self) -> int:
        return self.state.budget

    def _search(self) -> None:
        state = self.state
        state.search_began = time.monotonic()
        deadline = math.inf if self.request.time_s is None else state.search_began + self.request.time_s
        while not self.stop():
            self._step(deadline)
            if not self.pending and not self.held_up:
                break
            self.observer.tick(state)
        else:
            self._drain()
            raise Interrupted("stopped")
        state.search_ended = time.monotonic()
        if self.shortlist:
            self.shortlist.close()
        if len(state.trials) < self._budget() and not self.exhausted:
            state.enough = self._enough()
        if not state.trials:
            raise SpaceError("nothing was tried", "allow more trials or time")

    def _step(self, deadline: float) -> None:
        """Record what was answered, and ask for more.

        Answers and the attempts that follow from them share a transaction: the disk is waited for once.
        """
        outcomes = self.device.collect(POLL_S) if self.pending or self.held_up else []
        with self.database.transaction():
            ended = [self._record_outcome(outcome) for outcome in outcomes]
            # Told one by one in the order asked, each followed by what it makes room for: what the search knows when it
            # is asked does not depend on the order of the answers, so that a seed gives the same run.
            begun = self._begin(deadline)
            while self.next_told in self.done and not self.held_up:
                self._tell(self.done.pop(self.next_told))
                begun += self._begin(deadline)
        for trial in ended:
            self.observer.trial(self.state, trial)
        for number in begun:
            self.device.submit(number, self.pending[number])

    def _begin(self, deadline: float) -> list[int]:
        begun: list[int] = []
        self.held_up = False
        while self._wants_more(deadline):
            if shortlist := self._choosing:
                left = self._budget() - len(self.state.trials) - len(self.pending)
                shortlist.fill(left, self.begun)
                anyway = self.doubts.waiting or self.attempts
                self.held_up = not (anyway or shortlist.empty or shortlist.ready())
            if self.held_up:
                break
            begun += self._begin_next()
        return begun

    @property
    def _choosing(self) -> Shortlist | None:
        """What the next trial is chosen from, once what is tried anyway, and compiled all at once, has been begun."""
        return None if self.search.opening else self.shortlist

    def _wants_more(self, deadline: float) -> bool:
        if self.pending and self.suspects.intersection([*self.pending.values(), *self.attempts[:1]]):
            return False
        depth = shortlist.depth if (shortlist := self._choosing) else self.device.lookahead
        if self.next_number - self.next_told >= depth:
            return False
        if self.doubts.waiting:  # whoever is suspect is left out of the race unless it is timed again
            return True
        begun = len(self.state.trials) + len(self.pending)
        return (
            begun < self._budget()
            and not self.exhausted
            and self._enough() is None
            and time.monotonic() < deadline
        )

    def _enough(self) -> Enough | None:
        if not self.state.run.narrowing.get("stop_early"):
            return None
        return self.enough or self.watch.enough

    def _begin_next(self) -> list[int]:
        """Choose a configuration and write the attempt down.

        Gives its number; nothing when all are tried, or when the search asks for an attempt that was taken up already.
        """
        if self.doubts.waiting:
            configuration: Configuration | None = self.doubts.waiting.pop(0)
            self.again.add(self.next_number)
            self.state.retimed += 1
        else:
            configuration = self.attempts.pop(0) if self.attempts else self._ask()
            if configuration in self.begun:  # the search learns of an attempt only when it is told
                return []
        if configuration is None:
            self.exhausted = True
            return []
        number, self.next_number = self.next_number, self.next_number + 1
        self.database.attempt(self.state.run.id, number, configuration)
        self.pending[number] = configuration
        self.begun.add(configuration)
        if self.shortlist:
            self.shortlist.skip(configuration)
        return [number]

    def _ask(self) -> Configuration | None:
        if shortlist := self._choosing:
            configuration = None if shortlist.empty else shortlist.choose()
        else:
            configuration = self.search.ask()
        self.watch.asked(self.search.promise)
        return configuration

    def _record_outcome(self, outcome: Outcome) -> Trial:
        del self.pending[outcome.number]
        self.done[outcome.number] = outcome
        trial = self._record(trial_of(outcome, self.max_error))
        measurement = outcome.measurement
        best_ns = self.state.incumbent.time_ns if self.state.incumbent else None
        timed = measurement.measure_s > 0.0  # else it did not get so far, or an equal source did, earlier
        for suspect in self.doubts.add(trial, timed=timed, drifted=measurement.drifted, best_ns=best_ns):
            self._doubt(suspect)
        return trial

    def _doubt(self, trial: Trial) -> None:
        """Mark a trial as suspect; its configuration waits to be timed again."""
        state, tags = self.state, (*trial.tags, SUSPECT)
        self.database.retag(self.ids[trial.number], tags)
        state.trials = [replace(t, tags=tags) if t.number == trial.number else t for t in state.trials]
        believed = [t for t in state.trials if t.status is Status.OK and t.time_ns and SUSPECT not in t.tags]
        state.incumbent = min(believed, key=lambda t: t.time_ns or math.inf, default=None)
        self.device.incumbent_ns = state.incumbent.time_ns if state.incumbent else None

    def _tell(self, outcome: Outcome) -> None:
        if outcome.number not in self.again:
            found = objective(trial_of(outcome, self.max_error))
            self.search.tell(outcome.configuration, found)
            self.watch.told(found)
            if self.shortlist:
                self.shortlist.told(outcome.compilation.compile_s, outcome.measurement.measure_s)
        self.next_told += 1

    def _record(self, trial: Trial) -> Trial:
        row = self.database.record(self.state.run.id, trial, metrics=metrics(self.state.roof, trial.time_ns))
        self.ids[trial.number] = row
        trial = replace(trial, id=row, sources=())
        self._count(trial)
        return trial

    def _count(self, trial: Trial) -> None:
        state = self.state
        state.trials.append(trial)
        if trial.configuration == self.space.default:
            state.default = trial
        best_ns = state.incumbent.time_ns if state.incumbent else None
        believed = trial.status is Status.OK and SUSPECT not in trial.tags
        if believed and trial.time_ns and trial.time_ns < (best_ns or math.inf):
            state.incumbent = trial
            self.device.incumbent_ns = trial.time_ns

    def _drain(self) -> None:
        """Let what is being measured end; what only waits is forgotten, and asked for again on resume."""
        deadline = time.monotonic() + PATIENCE_S
        self.doubts.waiting.clear()  # the database has them
        known = len(self.state.trials)
        while self.pending and len(self.state.trials) == known and time.monotonic() < deadline:
            self._step(deadline=0.0)

    # -- the finish ---------------------------------------------------------------------------------------------------

    def _finish(self) -> Result:
        state = self.state

        def say(what: str) -> None:
            if self.stop():
                raise Interrupted("stopped")
            state.phase = what
            self.observer.phase(state, what)

        def reject(trial: Trial, reason: str) -> None:
            self.database.mark_unstable(self.ids[trial.number], reason)

        finish = run_finish(
            self.device,
            state.run.problem,
            state.trials,
            state.default,
            state.run.seed,
            say,
            reject,
            incumbent=self._incumbent_before(),
            max_error=self.max_error,
        )
        winner_id = None
        if finish is not None:
            winner_id = self.database.record_winner(
                state.run.id, winner_of(finish, self.ids, replayed=state.run.replayed)
            )
        return Result(state, finish, winner_id, self._stats())

    def _incumbent_before(self) -> Trial | None:
        """Return this run's trial of the configuration that the database knew to be best."""
        known = self.state.known
        again = [t for t in self.state.trials if known and t.configuration == known[0]]
        return again[-1] if again else None

    def _stats(self) -> dict[str, Any]:
        state = self.state
        return {
            "search_s": state.elapsed_s if state.search_began else 0.0,
            "occupied": state.occupied,
            "refined_s": self.device.occupancy.refined_s,
            "nominated": self.shortlist.nominated if self.shortlist else None,
            "trials": len(state.trials),
            "failures": state.failures,
            "retimed": state.retimed,
            "suspect": sum(SUSPECT in trial.tags for trial in state.trials),
            "capped": sum(trial.capped_samples > 0 for trial in state.trials),
            "space": len(state.space),
            "space_before": state.space.size_before,
            "stopped": dataclasses.asdict(state.enough) if state.enough else None,
            "seeds": {
                source: [trial.number for trial in trials] for source, trials in state.seed_trials.items()
            },
            "seed_notes": list(state.seeds.notes),
        }


def _settled(trial: Trial) -> bool:
    """Whether an earlier trial would come out the same again.

    So would one whose error is known to be above the bound; of one that was tried without a bound it is not known.
    """
    if trial.status is Status.INACCURATE:
        return trial.verification is not None and trial.verification.true_error is not None
    return trial.status in DETERMINISTIC
