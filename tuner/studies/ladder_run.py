"""A ladder run: each step's best configuration at each size of a sweep, and all of one size timed in turn.

The best configuration of a step is an earlier equal run's, or the result of an ordinary run. That run has a narrowed
space; the database keeps its trials like any others. There is no race of finalists and no fresh process: those are
``tune run``'s business. Before it come runs of one trial each: a step gets a few dozen trials of what can be thousands
of configurations, and the best of the step before or of the size before is worth one of them.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.core.conditions import Conditions
from tuner.core.errors import Interrupted, NotRecordedError, SpaceError, TunerError
from tuner.core.model import Configuration, Problem, Run, RunOptions, Trial, Value
from tuner.core.observer import Observer
from tuner.core.stats import MIN_SAMPLES
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device
from tuner.kernel.baselines import settle_baseline
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import Roof, roof_of
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec, StepSpec
from tuner.kernel.values import index_of
from tuner.studies.interleaved import Comparison, Failure, NamedContestant, compare
from tuner.studies.ladder import (
    STOPPED,
    Absence,
    Level,
    StepComparison,
    Sweep,
    Tuned,
    problem_of,
    records_of,
    sizes_text,
)
from tuner.studies.progress import SearchOfStep
from tuner.tuning.finalists import fastest
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import Result, State

COMPARISON_NS = 4e9
"""What the kernels of a comparison may take together, in nanoseconds: a few seconds at each size. Beyond it there are
fewer rounds, down to the least that an interval needs."""
HOST_NS = 10e9
"""NumPy is left out where it would take longer, by its time at the size before."""


def levels_of(
    sweep: Sweep, device: Device, database: Database, progress: Observer[str], stop: Callable[[], bool]
) -> Iterator[Level]:
    """Yield the results at each size, in the sweep's order.

    A step, or a size, that fails is part of the results, and the others are measured.

    Args:
        sweep: which steps, which sizes.
        device: where to measure; ready, and closed by the caller.
        database: where every trial and every comparison goes.
        progress: told of everything.
        stop: called often; once it returns true, nothing new is begun.

    Raises:
        Interrupted: ``stop`` returned true. What was timed of the size under way is yielded before.
    """
    return _LadderRun(sweep, device, database, progress, stop).levels()


@dataclass
class _Previous:
    """Results of the sizes before."""

    times: dict[str, tuple[float, Roof]] = field(default_factory=dict)
    """The last time of each step, and of NumPy, with the work that it was for."""
    best: dict[str, Configuration] = field(default_factory=dict)
    """The last best configuration of each step."""
    missing: set[str] = field(default_factory=set)
    """Baselines whose library is not installed."""

    def expected_ns(self, name: str, roof: Roof) -> float:
        """Return a time extrapolated from the one before, in proportion to the work; 0 if there is none."""
        if name not in self.times:
            return 0.0
        time_ns, then = self.times[name]
        pairs = ((roof.flops, then.flops), (roof.bytes, then.bytes))
        return time_ns * max((now / before for now, before in pairs if before), default=1.0)


@dataclass
class _LadderRun:
    _sweep: Sweep
    _device: Device
    _database: Database
    _progress: Observer[str]
    _stop: Callable[[], bool]
    _bench: str = field(default_factory=lambda: str(uuid.uuid4()))
    _previous: _Previous = field(default_factory=_Previous)
    _ended: int = 0
    """Searches and comparisons, however they ended."""

    def levels(self) -> Iterator[Level]:
        """Yield the results of one size after the other."""
        sweep = self._sweep
        levels = [self._groups(sizes) for sizes in sweep.sizes]
        self._progress.phase("", sum(len(steps) + 1 for groups, _ in levels for _, steps in groups))
        for sizes, (groups, absent) in zip(sweep.sizes, levels, strict=True):
            comparisons: list[StepComparison] = []
            try:
                for problem, steps in groups:
                    if (comparison := self._compare(sizes, problem, steps, absent)) is not None:
                        comparisons.append(comparison)
            except Interrupted:
                self._progress.close()
                if comparisons:
                    timed = {timing.name for comparison in comparisons for timing in comparison.steps}
                    others = [step.name for step in sweep.steps if step.name not in {*timed, *absent}]
                    yield Level(sizes, tuple(comparisons), {**absent, **dict.fromkeys(others, STOPPED)})
                raise
            self._progress.close()
            yield Level(sizes, tuple(comparisons), absent)

    def _groups(
        self, sizes: Mapping[str, int]
    ) -> tuple[list[tuple[Problem, list[StepSpec]]], dict[str, Absence]]:
        """Return the problems of a size, each with the steps that solve it, and the steps that have none."""
        groups: dict[str, tuple[Problem, list[StepSpec]]] = {}
        absent: dict[str, Absence] = {}
        for step in self._sweep.steps:
            try:
                problem = problem_of(self._sweep.kernel, self._sweep.base, sizes, step)
            except TunerError as error:
                absent[step.name] = Absence(str(error))
                continue
            groups.setdefault(problem.key, (problem, []))[1].append(step)
        return list(groups.values()), absent

    def _compare(
        self,
        sizes: Mapping[str, int],
        problem: Problem,
        steps: Sequence[StepSpec],
        absent: dict[str, Absence],
    ) -> StepComparison | None:
        """Tune each step of a problem, and time the best of each in turn; None if no step has a configuration."""
        sweep, device = self._sweep, self._device
        try:
            conditions, why = device.choose_conditions(sweep.kernel, problem, sweep.mode, sweep.regime)
            roof = roof_of(sweep.kernel, problem, device.gpu)
        except TunerError as error:
            absent.update({step.name: Absence(str(error)) for step in steps})
            self._ended += len(steps) + 1
            return None
        tuned = self._tuned(sizes, problem, steps, conditions, roof, absent)
        try:
            if not tuned:
                return None
            baselines, failures = self._baselines(problem, roof)
            device.prepare(sweep.kernel, problem, sweep.seed, conditions)
            count = len(tuned) + len(baselines)
            self._progress.step(f"{sizes_text(sizes)}: timing {count} in turn", self._ended)
            found = self._timed(problem, tuned, baselines, absent)
        except Interrupted:
            raise
        except TunerError as error:
            absent.update(dict.fromkeys(tuned, Absence(str(error))))
            return None
        finally:
            self._ended += 1
        if not found.timings:
            return None
        for failure in found.failures:
            if failure.not_installed:
                self._previous.missing.add(failure.name)
            if not failure.configuration and (sweep.against.named or not failure.not_installed):
                failures.append(failure)
        # In the ladder's order, as they were entered; then the baselines.
        order = sorted(found.timings, key=lambda one: 0.0 if one.configuration is not None else one.time_ns)
        self._previous.times.update({one.name: (one.time_ns, roof) for one in order if one.on_host})
        found = replace(found, timings=tuple(order), failures=tuple(failures))
        comparison = StepComparison(**vars(found), why=why, tuned=tuned)
        if not device.recorded:
            self._database.record_benchmark(records_of(comparison, device, self._bench))
        return comparison

    def _tuned(
        self,
        sizes: Mapping[str, int],
        problem: Problem,
        steps: Sequence[StepSpec],
        conditions: Conditions,
        roof: Roof,
        absent: dict[str, Absence],
    ) -> dict[str, Tuned]:
        """Return the steps that have a best configuration, by name; the others go to ``absent``."""
        tuned: dict[str, Tuned] = {}
        below: Configuration | None = None
        search = StepSearch(self._sweep, self._device, self._database, self._stop)
        for step in steps:
            self._check_stop()
            observer = SearchOfStep(self._progress, f"{sizes_text(sizes)}: {step.name}", self._ended)
            nearby = (self._previous.best.get(step.name), below)
            try:
                best = search.best(
                    step,
                    problem,
                    conditions,
                    observer,
                    [configuration for configuration in nearby if configuration is not None],
                    self._previous.expected_ns(step.name, roof),
                )
            finally:
                self._ended += 1
            if isinstance(best, Absence):
                absent[step.name] = best
                continue
            tuned[step.name] = best
            self._previous.times[step.name] = (best.time_ns, roof)
            below = self._previous.best[step.name] = best.configuration
        return tuned

    def _baselines(self, problem: Problem, roof: Roof) -> tuple[list[NamedContestant], list[Failure]]:
        """Return the baselines that can be timed, and those that cannot; a recording has no times of others."""
        entries: list[NamedContestant] = []
        failures: list[Failure] = []
        for baseline in () if self._device.recorded else self._sweep.against.baselines:
            name = baseline.name
            if name in self._previous.missing:
                continue
            entry, reason = NamedContestant(name, baseline=baseline), ""
            try:
                settled = settle_baseline(baseline, self._sweep.kernel, problem)
                entry = NamedContestant(name, baseline=settled)
                if entry.on_host and (long_ns := self._previous.expected_ns(name, roof)) > HOST_NS:
                    reason = f"it would take some {long_ns * 1e-9:.0f} s"
            except TunerError as error:
                reason = error.problem
            if reason:
                failures.append(Failure(entry, reason))
            else:
                entries.append(entry)
        return entries, failures

    def _timed(
        self,
        problem: Problem,
        tuned: Mapping[str, Tuned],
        baselines: Sequence[NamedContestant],
        absent: dict[str, Absence],
    ) -> Comparison:
        """Time all of them in turn, as long as there is a step among them; one that fails goes to ``absent``."""
        self._check_stop()
        steps = [NamedContestant(name, one.configuration, None, one.time_ns) for name, one in tuned.items()]
        contestants = [*steps, *baselines]

        def failing(index: int, error: str) -> None:
            if index < len(steps):
                absent[steps[index].name] = Absence(f"{steps[index].text}: {error}")
            self._check_stop()

        once_ns = sum(one.known_ns for one in contestants)
        most = int(COMPARISON_NS / once_ns) if once_ns else self._sweep.rounds
        return compare(
            self._device,
            self._sweep.kernel,
            problem,
            contestants,
            max(MIN_SAMPLES, min(self._sweep.rounds, most)),
            self._sweep.seed,
            needed=len(steps),
            failing=failing,
        )

    def _check_stop(self) -> None:
        if self._stop():
            raise Interrupted("stopped")


# -- one step


@dataclass(frozen=True)
class _Earlier:
    """What the database has of a step: the trials of all runs that tried some of it, by run, the oldest first."""

    runs: dict[str, tuple[Run, list[Trial]]]
    equal: list[str]
    """The runs that searched just this step."""

    @property
    def best(self) -> tuple[Run, Trial] | None:
        """The fastest trial of all."""
        trial = fastest([trial for _, trials in self.runs.values() for trial in trials])
        if trial is None:
            return None
        run = next(run for run, trials in self.runs.values() if any(other is trial for other in trials))
        return run, trial


@dataclass(frozen=True)
class StepSearch:
    """Finds the best configurations of a ladder's steps."""

    sweep: Sweep
    """What holds for all steps."""
    device: Device
    """Where to measure; it is prepared here."""
    database: Database
    """Where the trials go."""
    stop: Callable[[], bool]
    """Called often; once it returns true, nothing new is tried."""

    def best(
        self,
        step: StepSpec,
        problem: Problem,
        conditions: Conditions,
        observer: Observer[State],
        nearby: Sequence[Configuration],
        expected_ns: float,
    ) -> Tuned | Absence:
        """Return the best configuration of a step for a problem, or say why there is none.

        Args:
            step: which one.
            problem: of the step, at one size.
            conditions: how the problem is timed.
            observer: told of the search.
            nearby: configurations of other steps or sizes, whose values are tried first where the step has them.
            expected_ns: what the step's configurations take, roughly; 0 where it is not known.

        Raises:
            Interrupted: ``stop`` returned true.
        """
        sweep = self.sweep
        request = Request(
            sweep.kernel,
            problem,
            RunOptions(
                trials=sweep.trials,
                seed=sweep.seed,
                variants=(step.variant,),
                fixed=step.parameters,
                from_scratch=sweep.from_scratch,
                time_s=sweep.time_s,
                mode=sweep.mode,
                regime=sweep.regime,
            ),
            expected_ns=expected_ns,
        )
        try:
            if not sweep.from_scratch:
                earlier = self._earlier(step, problem, conditions)
                if (reused := self._reusable(earlier)) is not None:
                    return reused
                if earlier.best is not None:  # a time of another day: it is timed again
                    nearby = [earlier.best[1].configuration, *nearby]
            first = []
            for fixed in _narrowed(sweep.kernel, step, nearby):
                with suppress(SpaceError):  # a configuration from elsewhere need not be valid here
                    one = replace(request, options=replace(request.options, trials=1, fixed=fixed))
                    first.append(self._tune(one, observer))
            best = self._tune(request, observer)
            # The search does not try again what was tried before.
            return min((best, *first), key=lambda one: one.time_ns if isinstance(one, Tuned) else math.inf)
        except Interrupted:
            raise
        except SpaceError as error:
            refused = sweep.kernel.usable_variants(problem, self.device.gpu)[1].get(step.variant)
            whose = "" if step.variant == step.name else f"variant {step.variant} "
            return Absence(f"{whose}{refused}" if refused else error.problem, failed=False)
        except NotRecordedError as error:
            return Absence(str(error), recorded=error.nearest)
        except TunerError as error:
            return Absence(str(error))

    def _tune(self, request: Request, observer: Observer[State]) -> Tuned | Absence:
        return _best_of(tune(request, self.device, self.database, observer, self.stop, finish=False))

    def _earlier(self, step: StepSpec, problem: Problem, conditions: Conditions) -> _Earlier:
        device = self.device
        filters = Filters(
            problem_key=problem.key,
            variant=step.variant,
            mode=str(conditions.mode),
            regime=str(conditions.regime),
            replayed=device.recorded,
        )
        fixed = {name: tuple(values) for name, values in step.parameters.items()}
        identity = KernelIdentity(self.sweep.kernel)
        earlier = _Earlier({}, [])
        for stored in self.database.query(filters).rows:
            run, trial = stored.run, stored.trial
            here = run.device == device.name if device.recorded else run.gpu.name == device.gpu.name
            values = trial.configuration.values
            allowed = step.parameters.items()
            inside = all(index_of(values.get(name, ""), choices) is not None for name, choices in allowed)
            if not here or not inside or not identity.same_text(run):
                continue
            if run.id not in earlier.runs and _searched(run) == ((step.variant,), fixed, None):
                earlier.equal.append(run.id)
            earlier.runs.setdefault(run.id, (run, []))[1].append(trial)
        return earlier

    def _reusable(self, earlier: _Earlier) -> Tuned | None:
        """Return the best trial of a step, if an equal run searched as much as one would search now."""
        best = earlier.best
        if best is None or (time_ns := best[1].time_ns) is None:
            return None
        for name in reversed(earlier.equal):
            run, trials = earlier.runs[name]
            if self._is_finished(run, trials):
                where, trial = best
                return Tuned(trial.configuration, time_ns, trial.id, where.id, len(trials), reused=True)
        return None

    def _is_finished(self, run: Run, trials: Sequence[Trial]) -> bool:
        """Return whether a run ended by itself: with the trials or time that is asked for, or with nothing left."""
        how = self.database.run_state(run.id)
        if how["state"] != "finished":
            return False
        if len(trials) >= self.sweep.trials or how["stats"].get("search_s", 0.0) >= self.sweep.time_s:
            return True
        space = SearchSpace.from_kernel(
            self.sweep.kernel, run.problem, self.device.gpu, run.options.variants, run.options.fixed
        )
        # A run that knew earlier ones tries only what those had not.
        tried = {trial.configuration for trial in trials}
        tried |= {trial.configuration for trial in self.database.earlier_trials(run)}
        return sum(map(space.contains, tried)) >= len(space)


def _searched(run: Run) -> tuple[Any, ...]:
    """Return the variants, values and bound on the error to which a run was narrowed."""
    options = run.options
    return options.variants, dict(options.fixed), options.max_error


def _narrowed(
    kernel: KernelSpec, step: StepSpec, nearby: Sequence[Configuration]
) -> list[dict[str, tuple[Value, ...]]]:
    """Return the step narrowed to the values of other configurations, as far as it has and allows them."""
    parameters = kernel.variants[step.variant].parameters
    narrowed: list[dict[str, tuple[Value, ...]]] = []
    for configuration in nearby:
        fixed = dict(step.parameters)
        for name, value in configuration.parameters:
            allowed = fixed.get(name, parameters[name].values if name in parameters else ())
            if index_of(value, allowed) is not None:
                fixed[name] = (value,)
        if fixed != step.parameters and fixed not in narrowed:
            narrowed.append(fixed)
    return narrowed


def _best_of(result: Result) -> Tuned | Absence:
    state = result.state
    best = fastest(state.trials)
    if best is not None and best.time_ns:
        return Tuned(best.configuration, best.time_ns, best.id, state.run.id, len(state.trials))
    counts = state.failures
    commonest = max(counts, key=lambda status: counts[status], default="")
    error = next((trial.error for trial in state.trials if trial.status == commonest and trial.error), "")
    why = ": ".join(filter(None, (commonest, *error.splitlines()[:1])))
    tried = len(state.trials)
    text = (
        "its only configuration could not be verified"
        if tried == 1
        else f"none of {tried} configurations could be verified"
    )
    return Absence(f"{text}; {why}" if why else text)
