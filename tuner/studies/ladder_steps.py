"""The best configuration of one step of a ladder: an earlier equal run's, or the result of an ordinary run.

That run has a narrowed space; the database keeps its trials like any others. There is no race of finalists and no
fresh process: those are ``tune run``'s business. A step gets a few dozen trials of what can be thousands of
configurations, and what is nearest to the best of the step before or of the size before is worth one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.core.conditions import Conditions
from tuner.core.errors import Interrupted, SpaceError, TunerError
from tuner.core.model import Configuration, Problem, Run, Trial
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import StepSpec
from tuner.kernel.variant_spec import index_of
from tuner.report.summary import why_nothing
from tuner.studies.ladder import Absence, Sweep, Tuned
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import fastest

Tried = tuple[Run, Trial]


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
        nearby: Sequence[Configuration],
        expected_ns: float,
    ) -> Tuned | Absence:
        """Return the best configuration of a step for a problem, or say why there is none.

        Args:
            step: which one.
            problem: of the step, at one size.
            conditions: how the problem is timed.
            nearby: configurations of other steps or sizes, whose values are tried first where the step has them.
            expected_ns: what the step's configurations take, roughly; 0 where it is not known.

        Raises:
            Interrupted: ``stop`` returned true.
        """
        sweep = self.sweep
        request = Request(
            sweep.kernel,
            problem,
            replace(sweep.search, variants=(step.variant,), fixed=step.parameters, part=True),
            expected_ns=expected_ns,
        )
        try:
            if not sweep.search.from_scratch:
                earlier, equal = self._earlier(step, problem, conditions)
                trial = fastest([trial for _, trial in earlier])
                if trial is not None:
                    if (reused := self._reusable(trial, earlier, equal)) is not None:
                        return reused
                    nearby = [trial.configuration, *nearby]  # a time of another day: it is timed again
            request = replace(request, first=self._nearest(request, nearby))
            result = tune(request, self.device, self.database, Observer(), self.stop, finish=False)
            trials, best = result.state.trials, fastest(result.state.trials)
            if best is None or not best.time_ns:
                return Absence(why_nothing(result, self.database.path))
            return Tuned(best.configuration, best.time_ns, best.id, result.state.run.id, len(trials))
        except Interrupted:
            raise
        except SpaceError as error:
            refused = sweep.kernel.usable_variants(problem, self.device.gpu)[1].get(step.variant)
            whose = "" if step.variant == step.name else f"variant {step.variant} "
            return Absence(f"{whose}{refused}" if refused else error.problem, failed=False)
        except TunerError as error:
            return Absence(str(error))

    def _nearest(self, request: Request, others: Sequence[Configuration]) -> list[Configuration]:
        """Return the configurations of a step's space that are nearest to others, which may be of other variants."""
        options, gpu = request.options, self.device.gpu
        space = SearchSpace.from_kernel(request.kernel, request.problem, gpu, options.variants, options.fixed)
        (variant,) = space.variants
        names = {parameter.name for parameter in variant.parameters}
        wanted = ({name: value for name, value in one.parameters if name in names} for one in others)
        return [variant.configuration(variant.nearest_to(values)) for values in wanted]

    def _earlier(
        self, step: StepSpec, problem: Problem, conditions: Conditions
    ) -> tuple[list[Tried], dict[str, Run]]:
        """Return the trials of all runs that tried some of a step, and the runs that searched just this step, by id."""
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
        earlier: list[Tried] = []
        equal: dict[str, Run] = {}
        for stored in self.database.query(filters).rows:
            run, trial = stored.run, stored.trial
            here = run.device == device.name if device.recorded else run.gpu.name == device.gpu.name
            values = trial.configuration.values
            allowed = step.parameters.items()
            inside = all(index_of(values.get(name, ""), choices) is not None for name, choices in allowed)
            if not here or not inside or not identity.same_text(run):
                continue
            searched = run.options
            if (searched.variants, dict(searched.fixed), searched.max_error) == (
                (step.variant,),
                fixed,
                None,
            ):
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
        how = self.database.run_state(run.id)
        if how["state"] != "finished":
            return False
        limits, took_s = self.sweep.search, how["stats"].get("search_s", 0.0)
        late = limits.time_s is not None and took_s >= limits.time_s
        if late or len(trials) >= limits.trials:
            return True
        space = SearchSpace.from_kernel(
            self.sweep.kernel, run.problem, self.device.gpu, run.options.variants, run.options.fixed
        )
        # A run that knew earlier ones tries only what those had not.
        tried = {trial.configuration for trial in trials}
        tried |= {trial.configuration for trial in self.database.earlier_trials(run)}
        return sum(map(space.contains, tried)) >= len(space)
