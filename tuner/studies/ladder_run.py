"""A ladder run: each step's best configuration at each size of a sweep, and all of one size timed in turn."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.children.measuring import RaceFailed
from tuner.core.conditions import Conditions
from tuner.core.errors import Interrupted, SpaceError, TunerError
from tuner.core.model import Configuration, Problem, Run, Trial
from tuner.core.observer import Observer
from tuner.core.stats import MIN_SAMPLES
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Contestant, Device
from tuner.kernel.baselines import settle_baseline
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import Roof, roof_of
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import StepSpec
from tuner.kernel.variant_spec import index_of
from tuner.report.summary import why_nothing
from tuner.studies import ladder
from tuner.studies.interleaved import Comparison, Failure, compare
from tuner.studies.ladder import Absence, Sweep, Tuned
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import fastest

Tried = tuple[Run, Trial]


COMPARISON_NS = 4e9
"""What the kernels of a comparison may take together, in nanoseconds: a few seconds at each size. Beyond it there are
fewer rounds, down to the least that an interval needs."""


@dataclass
class LadderRun:
    """A run up a ladder; a step, or a size, that fails is part of the results, and the others are measured."""

    _sweep: Sweep
    _device: Device
    """Ready, and closed by the caller."""
    _database: Database
    """Where every trial and every comparison goes."""
    _progress: Observer[str]
    _stop: Callable[[], bool]
    """Called often; once it returns true, nothing new is begun."""
    _bench: str = field(default_factory=lambda: str(uuid.uuid4()))
    _times: dict[str, tuple[float, Roof]] = field(default_factory=dict)
    """The last time of each step at the sizes before, with the work that it was for."""
    _best: dict[str, Configuration] = field(default_factory=dict)
    """The last best configuration of each step."""
    _missing: set[str] = field(default_factory=set)
    """Baselines whose library is not installed."""
    _ended: int = 0
    """Searches and comparisons, however they ended."""

    def levels(self) -> Iterator[ladder.Level]:
        """Yield the results at each size, in the sweep's order.

        Raises:
            Interrupted: it was stopped. What was timed of the size under way is yielded before.
        """
        sweep = self._sweep
        levels = [(level, self._groups(level)) for level in map(ladder.Level, sweep.sizes)]
        self._progress.phase("ladder", sum(len(steps) + 1 for _, groups in levels for _, steps in groups))
        for level, groups in levels:
            try:
                for problem, steps in groups:
                    self._compare(level, problem, steps)
            except Interrupted:
                self._progress.close()
                if level.comparisons:
                    for step in sweep.steps:
                        if level.find(step.name) is None:
                            level.absent.setdefault(step.name, ladder.STOPPED)
                    yield level
                raise
            self._progress.close()
            yield level

    def _groups(self, level: ladder.Level) -> list[tuple[Problem, list[StepSpec]]]:
        """Return the problems of a size, each with the steps that solve it; steps that have none are absent."""
        groups: dict[Problem, list[StepSpec]] = {}
        for step in self._sweep.steps:
            try:
                problem = ladder.problem_of(self._sweep.kernel, self._sweep.base, level.sizes, step)
            except TunerError as error:
                level.absent[step.name] = Absence(str(error))
                continue
            groups.setdefault(problem, []).append(step)
        return list(groups.items())

    def _compare(self, level: ladder.Level, problem: Problem, steps: Sequence[StepSpec]) -> None:
        """Tune each step of a problem, and time the best of each in turn, if one has a configuration."""
        sweep, device = self._sweep, self._device
        try:
            conditions, why = device.choose_conditions(
                sweep.kernel, problem, sweep.search.mode, sweep.search.regime
            )
            roof = roof_of(sweep.kernel, problem, device.gpu)
        except TunerError as error:
            level.absent.update({step.name: Absence(str(error)) for step in steps})
            self._ended += len(steps) + 1
            return
        tuned = self._tuned(level, problem, steps, conditions, roof)
        try:
            if not tuned:
                return
            baselines, failures = self._baselines(problem)
            device.prepare(sweep.kernel, problem, sweep.search.seed, conditions)
            count = len(tuned) + len(baselines)
            self._progress.step(f"{ladder.sizes_text(level.sizes)}: timing {count} in turn", self._ended)
            found = self._timed(level, tuned, baselines)
        except Interrupted:
            raise
        except TunerError as error:
            level.absent.update(dict.fromkeys(tuned, Absence(str(error))))
            return
        finally:
            self._ended += 1
        self._missing |= {failure.name for failure in found.failures if failure.not_installed}
        if not found.timings:
            return
        for failure in found.failures:
            if not failure.configuration and (sweep.against.named or not failure.not_installed):
                failures.append(failure)
        # In the ladder's order, as they were entered; then the baselines.
        order = sorted(found.timings, key=lambda one: 0.0 if one.configuration is not None else one.time_ns)
        found = replace(found, timings=tuple(order), failures=tuple(failures))
        comparison = ladder.StepComparison(**vars(found), why=why, tuned=tuned)
        if not device.recorded:
            self._database.record_benchmark(ladder.records_of(comparison, device, self._bench))
        level.comparisons.append(comparison)

    def _tuned(
        self,
        level: ladder.Level,
        problem: Problem,
        steps: Sequence[StepSpec],
        conditions: Conditions,
        roof: Roof,
    ) -> dict[str, Tuned]:
        """Return the steps that have a best configuration, by name; the others are absent."""
        at = ladder.sizes_text(level.sizes)
        tuned: dict[str, Tuned] = {}
        below: Configuration | None = None
        for step in steps:
            self._check_stop()
            self._progress.step(f"{at}: {step.name}", self._ended)
            nearby = [one for one in (self._best.get(step.name), below) if one is not None]
            expected_ns = self._expected_ns(step.name, roof)
            try:
                best = self._best_of(step, problem, conditions, nearby, expected_ns)
            finally:
                self._ended += 1
            if isinstance(best, Absence):
                level.absent[step.name] = best
                continue
            tuned[step.name] = best
            self._times[step.name] = (best.time_ns, roof)
            below = self._best[step.name] = best.configuration
        return tuned

    def _best_of(
        self,
        step: StepSpec,
        problem: Problem,
        conditions: Conditions,
        nearby: Sequence[Configuration],
        expected_ns: float,
    ) -> Tuned | Absence:
        """Return the best configuration of a step for a problem, or say why there is none.

        It is an earlier equal run's, or the result of an ordinary run in a narrowed space, whose trials the database
        keeps like any others. There is no race of finalists and no fresh process: those are ``tune run``'s business.

        Args:
            step: which one.
            problem: of the step, at one size.
            conditions: how the problem is timed.
            nearby: configurations of other steps or sizes, whose values are tried first where the step has them.
            expected_ns: what the step's configurations take, roughly; 0 where it is not known.

        Raises:
            Interrupted: ``stop`` returned true.
        """
        sweep = self._sweep
        options = replace(sweep.search, variants=(step.variant,), fixed=step.parameters, part=True)
        request = Request(sweep.kernel, problem, options, expected_ns=expected_ns)
        try:
            if not sweep.search.from_scratch:
                earlier, equal = self._earlier(step, problem, conditions)
                trial = fastest([trial for _, trial in earlier])
                if trial is not None:
                    if (reused := self._reusable(trial, earlier, equal)) is not None:
                        return reused
                    nearby = [trial.configuration, *nearby]  # a time of another day: it is timed again
            request = replace(request, first=self._nearest(request, nearby))
            result = tune(request, self._device, self._database, Observer(), self._stop, finish=False)
            trials, best = result.state.trials, fastest(result.state.trials)
            if best is None or not best.time_ns:
                return Absence(why_nothing(result, self._database.path))
            return Tuned(best.configuration, best.time_ns, best.id, result.state.run.id, len(trials))
        except Interrupted:
            raise
        except SpaceError as error:
            refused = sweep.kernel.usable_variants(problem, self._device.gpu)[1].get(step.variant)
            whose = "" if step.variant == step.name else f"variant {step.variant} "
            return Absence(f"{whose}{refused}" if refused else error.problem, failed=False)
        except TunerError as error:
            return Absence(str(error))

    def _nearest(self, request: Request, others: Sequence[Configuration]) -> list[Configuration]:
        """Return the configurations of a step's space that are nearest to others, which may be of other variants."""
        options, gpu = request.options, self._device.gpu
        space = SearchSpace.from_kernel(request.kernel, request.problem, gpu, options.variants, options.fixed)
        (variant,) = space.variants
        names = {parameter.name for parameter in variant.parameters}
        wanted = ({name: value for name, value in one.parameters if name in names} for one in others)
        return [variant.configuration(variant.nearest_to(values)) for values in wanted]

    def _earlier(
        self, step: StepSpec, problem: Problem, conditions: Conditions
    ) -> tuple[list[Tried], dict[str, Run]]:
        """Return the trials of all runs that tried some of a step, and the runs that searched just this step, by id."""
        device = self._device
        filters = Filters(
            problem_key=problem.key,
            variant=step.variant,
            mode=str(conditions.mode),
            regime=str(conditions.regime),
            replayed=device.recorded,
        )
        fixed = {name: tuple(values) for name, values in step.parameters.items()}
        wanted = ((step.variant,), fixed, None)
        identity = KernelIdentity(self._sweep.kernel)
        earlier: list[Tried] = []
        equal: dict[str, Run] = {}
        for stored in self._database.query(filters).rows:
            run, trial = stored.run, stored.trial
            here = run.device == device.name if device.recorded else run.gpu.name == device.gpu.name
            values = trial.configuration.values
            allowed = step.parameters.items()
            inside = all(index_of(values.get(name, ""), choices) is not None for name, choices in allowed)
            if not here or not inside or not identity.same_text(run):
                continue
            searched = run.options
            if (searched.variants, dict(searched.fixed), searched.max_error) == wanted:
                equal.setdefault(run.id, run)
            earlier.append((run, trial))
        return earlier, equal

    def _reusable(self, best: Trial, earlier: Sequence[Tried], equal: Mapping[str, Run]) -> Tuned | None:
        """Return the best trial of a step, if an equal run searched as much as one would search now."""
        where = next(run.id for run, trial in earlier if trial is best)
        for run in reversed(list(equal.values())):
            trials = [trial for of, trial in earlier if of.id == run.id]
            if best.time_ns is not None and self._is_finished(run, trials):
                return Tuned(best.configuration, best.time_ns, best.id, where, len(trials), reused=True)
        return None

    def _is_finished(self, run: Run, trials: Sequence[Trial]) -> bool:
        """Return whether a run ended by itself: with the trials or time that is asked for, or with nothing left."""
        how = self._database.run_state(run.id)
        if how["state"] != "finished":
            return False
        limits, took_s = self._sweep.search, how["stats"].get("search_s", 0.0)
        late = limits.time_s is not None and took_s >= limits.time_s
        if late or len(trials) >= limits.trials:
            return True
        space = SearchSpace.from_kernel(
            self._sweep.kernel, run.problem, self._device.gpu, run.options.variants, run.options.fixed
        )
        # A run that knew earlier ones tries only what those had not.
        tried = {trial.configuration for trial in trials}
        tried |= {trial.configuration for trial in self._database.earlier_trials(run)}
        return sum(map(space.contains, tried)) >= len(space)

    def _baselines(self, problem: Problem) -> tuple[list[Contestant], list[Failure]]:
        """Return the baselines that can be timed, and those that cannot; a recording has no times of others."""
        entries: list[Contestant] = []
        failures: list[Failure] = []
        for baseline in () if self._device.recorded else self._sweep.against.baselines:
            if baseline.name in self._missing:
                continue
            try:
                entries.append(Contestant.of(settle_baseline(baseline, self._sweep.kernel, problem)))
            except TunerError as error:
                failures.append(Failure(Contestant.of(baseline), error.problem))
        return entries, failures

    def _timed(
        self, level: ladder.Level, tuned: Mapping[str, Tuned], baselines: Sequence[Contestant]
    ) -> Comparison:
        """Time all of them in turn, as long as there is a step among them; one that fails is absent."""
        self._check_stop()
        steps = [Contestant(one.configuration, one.time_ns, name=name) for name, one in tuned.items()]
        contestants = [*steps, *baselines]

        def failing(index: int, failed: RaceFailed) -> None:
            if index < len(steps):
                level.absent[steps[index].name] = Absence(f"{steps[index].text}: {failed.error}")
            self._check_stop()

        once_ns = sum(one.time_ns for one in contestants)
        most = int(COMPARISON_NS / once_ns) if once_ns else self._sweep.rounds
        rounds, seed = max(MIN_SAMPLES, min(self._sweep.rounds, most)), self._sweep.search.seed
        return compare(self._device, contestants, rounds, seed, needed=len(steps), failing=failing)

    def _expected_ns(self, name: str, roof: Roof) -> float:
        """Return a time extrapolated from the one before, in proportion to the work; 0 if there is none."""
        if name not in self._times:
            return 0.0
        time_ns, then = self._times[name]
        pairs = ((roof.flops, then.flops), (roof.bytes, then.bytes))
        return time_ns * max((now / before for now, before in pairs if before), default=1.0)

    def _check_stop(self) -> None:
        if self._stop():
            raise Interrupted("stopped")
