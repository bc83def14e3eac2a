"""The best configuration of one rung of a ladder: what an equal run has found already, or an ordinary run's search.

The search is a run with a narrowed space, whose trials the database keeps like any others. There is no race of
finalists and no fresh process: those are ``tune run``'s business. Before it come runs of one trial each: a rung
gets a few dozen trials of what can be thousands of configurations, and what was best one rung or one size below is a
good place to begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from tuner.conditions import Conditions
from tuner.database.database import Database
from tuner.database.records import SUSPECT, Filters
from tuner.devices.base import Device, Outcome
from tuner.errors import Interrupted, SpaceError, TunerError
from tuner.kernel.load import content_digest
from tuner.kernel.spec import KernelSpec, StepSpec
from tuner.ladder.ladder import Absence, Climb, Tuned
from tuner.model import Configuration, Problem, Run, Status, Trial, Value
from tuner.space.space import SearchSpace
from tuner.tuning.session import tune
from tuner.tuning.state import Observer, Request, Result

LONG_NS = 50e6
"""A kernel of such a time is not asked for ahead: what is asked for has to be waited for when the time is over."""
AHEAD = 2
"""Then one is compiled while another is timed."""


class KeptDevice:
    """A device that stays prepared: asked for the problem that it holds, it does nothing. Else it is the device.

    Each run of a session prepares its problem, and the rungs at one size are runs of the same problem. Only after a run
    that did not wait for all its answers the device is prepared once more: the next run would take them for its own.
    """

    _device: Device
    _pending: set[int]
    _held: tuple[Any, ...] | None
    _refusal: TunerError | None
    expected_ns: float
    """Guess of what the next candidates take."""

    def __init__(self, device: Device) -> None:
        self.__dict__.update(_device=device, _pending=set(), _held=None, _refusal=None, expected_ns=0.0)

    @classmethod
    def of(cls, device: Device) -> tuple[KeptDevice, Device]:
        """Return the keeper, and the same as a device."""
        kept = cls(device)
        return kept, cast(Device, kept)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_device"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
        else:
            setattr(self._device, name, value)

    @property
    def lookahead(self) -> int:
        """As the device's, unless candidates take so long that few fit into the time there is."""
        known_ns = max(self._device.incumbent_ns or 0.0, self.expected_ns)
        most = int(self._device.lookahead)
        return most if known_ns < LONG_NS else min(most, AHEAD)

    def prepare(self, kernel: KernelSpec, problem: Problem, seed: int, *others: Any) -> None:
        """Prepare the device, or say again why it cannot be, unless it holds this already."""
        wanted = (kernel, problem, seed, *others)
        if wanted != self._held or self._pending:
            self._held, self._refusal = None, None
            self._pending.clear()
            try:
                self._device.prepare(kernel, problem, seed, *others)
            except TunerError as error:
                self._refusal = error
            self._held = wanted
        if self._refusal is not None:
            raise self._refusal

    def submit(self, number: int, configuration: Configuration) -> None:
        """Submit it to the device, and note that its answer is to come."""
        self._pending.add(number)
        self._device.submit(number, configuration)

    def collect(self, timeout_s: float) -> list[Outcome]:
        """Return what the device has answered."""
        found = self._device.collect(timeout_s)
        self._pending.difference_update(outcome.number for outcome in found)
        return found


def best_of_rung(
    asked: Climb,
    rung: StepSpec,
    problem: Problem,
    conditions: Conditions,
    device: Device,
    database: Database,
    observer: Observer,
    stop: Callable[[], bool],
    hints: Sequence[Configuration] = (),
) -> Tuned | Absence:
    """Return the best configuration of a rung for a problem, or say why there is none.

    Args:
        asked: what is asked of all rungs.
        rung: which one.
        problem: of the rung, at one size.
        conditions: how the problem is timed.
        device: where to measure; it is prepared here.
        database: where the trials go.
        observer: told of the search.
        stop: asked often; once it is true nothing new is tried.
        hints: configurations of other rungs or sizes, whose values are tried first where the rung has them.

    Raises:
        Interrupted: ``stop`` said so.
    """
    request = Request(
        asked.kernel,
        problem,
        asked.trials,
        seed=asked.seed,
        variants=(rung.variant,),
        fixed=rung.parameters,
        time_s=asked.time_s,
        from_scratch=asked.from_scratch,
        mode=asked.mode,
        regime=asked.regime,
    )
    try:
        if not asked.from_scratch:
            earlier = _earlier(asked.kernel, rung, problem, conditions, device, database)
            known = _known(asked, earlier, device, database)
            if known is not None:
                return known
            if earlier.best is not None:  # a figure of another day: it is timed again today
                hints = [earlier.best[1].configuration, *hints]
        first = []
        for fixed in _carried(asked.kernel, rung, hints):
            with suppress(SpaceError):  # what was good elsewhere is not even valid here
                one = replace(request, trials=1, fixed=fixed)
                first.append(_found(tune(one, device, database, observer, stop, finish=False)))
        found = _found(tune(request, device, database, observer, stop, finish=False))
        # The search does not try again what was tried before.
        return min((found, *first), key=lambda one: one.time_ns if isinstance(one, Tuned) else math.inf)
    except Interrupted:
        raise
    except SpaceError as error:
        refused = asked.kernel.usable_variants(problem, device.gpu)[1].get(rung.variant)
        whose = "" if rung.variant == rung.name else f"variant {rung.variant} "
        return Absence(f"{whose}{refused}" if refused else error.problem, failed=False)
    except TunerError as error:
        return Absence(str(error))


def _carried(
    kernel: KernelSpec, rung: StepSpec, hints: Sequence[Configuration]
) -> list[dict[str, tuple[Value, ...]]]:
    """Narrow a rung to the values that other configurations have, as far as it knows and allows them."""
    parameters = kernel.variants[rung.variant].parameters
    found: list[dict[str, tuple[Value, ...]]] = []
    for hint in hints:
        fixed = dict(rung.parameters)
        for name, value in hint.parameters:
            allowed = fixed.get(name, parameters[name].values if name in parameters else ())
            if _among(value, allowed):
                fixed[name] = (value,)
        if fixed != rung.parameters and fixed not in found:
            found.append(fixed)
    return found


def _found(result: Result) -> Tuned | Absence:
    state = result.state
    best = _fastest(state.trials)
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


def _fastest(trials: Sequence[Trial]) -> Trial | None:
    """Return the fastest trial that is verified and believed."""
    good = [t for t in trials if t.status is Status.OK and t.time_ns and SUSPECT not in t.tags]
    return min(good, key=lambda trial: trial.time_ns or math.inf, default=None)


@dataclass(frozen=True)
class _Earlier:
    """What the database knows of a rung: the trials of all runs that tried some of it, by run, the oldest first."""

    runs: dict[str, tuple[Run, list[Trial]]]
    equal: list[str]
    """The runs that searched just this rung."""

    @property
    def best(self) -> tuple[Run, Trial] | None:
        """The fastest trial of all."""
        trial = _fastest([trial for _, trials in self.runs.values() for trial in trials])
        if trial is None:
            return None
        run = next(run for run, trials in self.runs.values() if any(other is trial for other in trials))
        return run, trial


def _earlier(
    kernel: KernelSpec,
    rung: StepSpec,
    problem: Problem,
    conditions: Conditions,
    device: Device,
    database: Database,
) -> _Earlier:
    filters = Filters(
        problem_key=problem.key,
        variant=rung.variant,
        mode=str(conditions.mode),
        regime=str(conditions.regime),
        replayed=device.recorded,
    )
    fixed = {name: list(values) for name, values in rung.parameters.items()}
    kernel_digest = content_digest(kernel)
    found = _Earlier({}, [])
    for stored in database.query(filters).rows:
        run, trial = stored.run, stored.trial
        where = run.device == device.name if device.recorded else run.gpu.name == device.gpu.name
        values = trial.configuration.values
        inside = all(_among(values.get(name, ""), allowed) for name, allowed in rung.parameters.items())
        if not where or not inside or run.kernel_digest != kernel_digest:
            continue
        if run.id not in found.runs and _searched(run) == ([rung.variant], fixed, None):
            found.equal.append(run.id)
        found.runs.setdefault(run.id, (run, []))[1].append(trial)
    return found


def _searched(run: Run) -> tuple[list[str], dict[str, list[Value]], float | None]:
    """Return to what a run was narrowed."""
    narrowing = run.narrowing
    return list(narrowing.get("variants", ())), narrowing.get("fixed", {}), narrowing.get("max_error")


def _among(value: Value, values: Sequence[Value]) -> bool:
    """Whether a value is one of several; True is not 1 here."""
    return any(type(other) is type(value) and other == value for other in values)


def _known(asked: Climb, earlier: _Earlier, device: Device, database: Database) -> Tuned | None:
    """Return the best that is known of a rung, if an equal run went as far as one would go now."""
    best = earlier.best
    if best is None or best[1].time_ns is None:
        return None
    for name in reversed(earlier.equal):
        run, trials = earlier.runs[name]
        if _is_enough(asked, run, trials, device, database):
            where, trial = best
            return Tuned(trial.configuration, best[1].time_ns, trial.id, where.id, len(trials), known=True)
    return None


def _is_enough(asked: Climb, run: Run, trials: Sequence[Trial], device: Device, database: Database) -> bool:
    """Whether a run ended by itself, with as many trials or after as long as is asked for, or with nothing left."""
    how = database.run_state(run.id)
    if how["state"] != "finished":
        return False
    if len(trials) >= asked.trials or how["stats"].get("search_s", 0.0) >= asked.time_s:
        return True
    space = SearchSpace.from_kernel(
        asked.kernel, run.problem, device.gpu, run.narrowing["variants"], run.narrowing["fixed"]
    )
    # A run that was told of earlier ones tries only what those had not.
    everything = [*trials, *database.earlier_trials(run)]
    tried = {trial.configuration for trial in everything if space.contains(trial.configuration)}
    return len(tried) >= len(space)
