"""An ablation: one parameter of a configuration at a time takes its other values, and is timed in turn with it.

Everything but one parameter stays. Where that is not valid (deeper stages, and as many of them as before, say) the
smallest change of one other parameter that makes it so comes with it; where there is none, the reason is the answer.
What a value is worth *here* is then the time of the best of its alternatives over the time with it. Two values that
only pay together are each worth what undoing one of them costs, and two that can stand in for each other may both look
worthless: a table of single changes says nothing about pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from tuner.core.conditions import Conditions
from tuner.core.errors import UsageError, first_line, suggestion
from tuner.core.groups import grouped
from tuner.core.model import Configuration, Gpu, Problem, Trial, Value
from tuner.core.observer import Observer
from tuner.core.stats import Ratio, Verdict
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device, Timed
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.plan import invalid_reason, pruning_reason
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec, indices, typed
from tuner.studies import interleaved

ITSELF = "chosen"
"""Name of the configuration itself among the contestants."""
TOGETHER = 8
"""Alternatives in one comparison with the configuration itself. Fewer would time it more often than needed; with more
the memory of all that are loaded at once, scratch included, adds up."""
WAIT_S = 0.2
"""Between two looks at whether the user wants it to end."""


@dataclass(frozen=True)
class Alternative:
    """One parameter with another value, and its time."""

    parameter: str
    value: Value
    configuration: Configuration
    objection: str = ""
    """Why the configuration is not valid; empty if it is."""
    besides: tuple[str, Value] | None = None
    """Another parameter that had to change with it, and its value."""
    unsearched: str = ""
    """Why a search would not try it; empty if it would."""
    timing: Timed | None = None
    """None if it has no time."""
    compared: interleaved.Compared | None = None
    """The configuration itself against it."""
    error: str = ""
    """Why it has no time."""

    @property
    def name(self) -> str:
        """As tables show it."""
        besides = f" {self.besides[0]}={self.besides[1]}" if self.besides else ""
        return f"{self.parameter}={self.value}{besides}"

    @property
    def ratio(self) -> Ratio | None:
        """Its time over that of the configuration itself."""
        return self.compared.ratio if self.compared else None

    @property
    def verdict(self) -> Verdict | None:
        """Of the configuration itself against it."""
        return self.compared.verdict if self.compared else None


@dataclass(frozen=True)
class AblationRequest:
    """The configuration whose values are changed, and how all are timed."""

    kernel: KernelSpec
    problem: Problem
    conditions: Conditions
    why: str
    """Why these conditions."""
    configuration: Configuration
    rounds: int
    """Groups of each."""
    seed: int
    """Of the inputs and the order."""
    only: Sequence[str] = ()
    """Names of parameters; all when empty."""
    known_ns: float | None = None
    """An earlier time of the configuration under these conditions, if there is one: far slower alternatives then get
    few samples before the comparisons."""


@dataclass(frozen=True, kw_only=True)
class Ablation(interleaved.Comparison):
    """A configuration alone, over all comparisons, and what each of its values is worth."""

    request: AblationRequest
    alternatives: tuple[Alternative, ...]
    """In the order of the kernel's file, and of each parameter's values."""
    error: str = ""
    """Why the configuration itself has no time."""
    complete: bool = True
    """Whether everything that is valid was timed; False if it was stopped."""

    @property
    def itself(self) -> Timed | None:
        """The configuration itself; None if it has no time."""
        return next(iter(self.timings), None)

    @property
    def choices(self) -> dict[str, list[Alternative]]:
        """The alternatives to each value, by parameter."""
        return grouped(self.alternatives, lambda one: one.parameter)

    @property
    def faster(self) -> list[Alternative]:
        """The alternatives that are faster beyond the noise: the configuration is not the best there is."""
        return [one for one in self.alternatives if one.verdict is Verdict.SLOWER]


def worth(alternatives: Sequence[Alternative]) -> Alternative | None:
    """Return the fastest of the alternatives to a value: what is left without this choice; None if none has a time."""
    timed = [(one.ratio.median, number, one) for number, one in enumerate(alternatives) if one.ratio]
    return min(timed)[-1] if timed else None


def records_of(ablation: Ablation, device: Device, bench: str) -> list[Benchmark]:
    """Return the rows for the database: the configuration itself, and each alternative under its change's name."""
    request = ablation.request
    if ablation.itself is None:
        return []
    rows = interleaved.rows_of(KernelIdentity(request.kernel), device, bench)
    row = partial(rows, tags=ablation.tags, noise_floor=ablation.reference_noise)
    timed = [one for one in ablation.alternatives if one.timing is not None]
    return [row(ITSELF, ablation.itself), *(row(one.name, one.timing, one.compared) for one in timed)]


# -- the measurement


def ablate(
    device: Device, request: AblationRequest, progress: Observer[str], stop: Callable[[], bool]
) -> Ablation:
    """Time a configuration in turn with all that differ from it in one parameter.

    All are compiled at once, and verified; what does not compile, cannot be launched or is wrong has its reason in
    place of a time.

    Args:
        device: where.
        request: what is timed, and how.
        progress: told of every step.
        stop: called often; once it returns true, nothing new is begun, and the result says that it is not complete.

    Raises:
        UsageError: no such parameter.
        TunerError: the problem cannot be measured.
    """
    kernel, problem, itself = request.kernel, request.problem, request.configuration
    every = changes(kernel, problem, device.gpu, itself, request.only)
    valid = [one for one in every if not one.objection]
    # Two changes that need each other lead to one configuration.
    different = list(dict.fromkeys([itself, *(one.configuration for one in valid)]))
    progress.phase("ablation", 1 + -(-len(valid) // TOGETHER))
    progress.step(f"compiling and checking {len(different)} configurations")
    device.prepare(kernel, problem, request.seed, request.conditions)
    trials = _trials(device, different, request.known_ns, stop)
    complete, error = len(trials) == len(different), ""
    if itself in trials:
        error = _objection(trials[itself])
    timed: dict[str, Alternative] = {}
    comparisons: list[interleaved.Comparison] = []
    groups = _groups(valid, trials) if itself in trials and not error else []
    count = sum(map(len, groups))
    for number, group in enumerate(groups):
        if stop():
            complete = False
            break
        first = number * TOGETHER + 1
        progress.step(f"timing {first} to {first + len(group) - 1} of {count} in turn with it")
        contestants = [
            Contestant(configuration, _time_ns(trials[configuration]), name=name)
            for name, configuration in [(ITSELF, itself), *((one.name, one.configuration) for one in group)]
        ]
        found = interleaved.compare(device, contestants, request.rounds, request.seed + number, needed=1)
        named = {one.name: one for one in group}
        failed = {failure.name: failure.error for failure in found.failures}
        if error := failed.pop(ITSELF, ""):
            break
        timed |= {name: replace(named[name], error=why) for name, why in failed.items()}
        comparisons.append(found)
        own, *others = found.timings
        for timing in others:
            compared = found.against(own, timing)
            timed[timing.name] = replace(named[timing.name], timing=timing, compared=compared)
    tags = sorted({tag for comparison in comparisons for tag in comparison.tags})
    return Ablation(
        **vars(interleaved.comparison_on(device, _joined(comparisons), tags=tags)),
        request=request,
        alternatives=tuple(timed.get(one.name) or _untimed(one, trials) for one in every),
        error=error,
        complete=complete,
    )


def _groups(valid: Sequence[Alternative], trials: Mapping[Configuration, Trial]) -> list[list[Alternative]]:
    """Return what can be timed in groups of about the same length, so that no group is far longer than the others."""
    timeable = [
        one for one in valid if one.configuration in trials and not _objection(trials[one.configuration])
    ]
    order = sorted(timeable, key=lambda one: _time_ns(trials[one.configuration]))
    return [order[i : i + TOGETHER] for i in range(0, len(order), TOGETHER)] or [[]]


def _joined(comparisons: Sequence[interleaved.Comparison]) -> list[Timed]:
    """Return the configuration itself over all comparisons, in each of which it is the first; nothing without any."""
    own = [comparison.timings[0] for comparison in comparisons]
    clocks_hz = [timing.sm_clock_hz for timing in own if timing.sm_clock_hz]
    groups_ns = [group for timing in own for group in timing.groups_ns]
    clock_hz = fmean(clocks_hz) if clocks_hz else 0.0
    return [Timed(one.contestant, groups_ns, sm_clock_hz=clock_hz) for one in own[:1]]


def _trials(
    device: Device, configurations: Sequence[Configuration], known_ns: float | None, stop: Callable[[], bool]
) -> dict[Configuration, Trial]:
    """Have all compiled, verified and timed once; return the trials, all unless it was stopped."""
    trials: dict[Configuration, Trial] = {}

    def own_ns() -> float | None:
        own = trials.get(configurations[0])
        return known_ns if own is None or _objection(own) else _time_ns(own)

    for number, configuration in enumerate(configurations):
        device.submit(number, configuration, own_ns)
    while len(trials) < len(configurations):
        for trial in device.collect(WAIT_S):
            trials[trial.configuration] = trial
        if stop():
            break
    return trials


def _time_ns(trial: Trial) -> float:
    return trial.time_ns or 0.0


def _objection(trial: Trial) -> str:
    """Return why a configuration cannot be timed in turn with others; empty if it can."""
    if trial.status.ranked:
        return ""
    return ": ".join(filter(None, (str(trial.status), first_line(trial.error))))


def _untimed(one: Alternative, trials: Mapping[Configuration, Trial]) -> Alternative:
    """Return an alternative with the reason why it has no time."""
    trial = trials.get(one.configuration)
    reason = f"not valid: {one.objection}" if one.objection else _objection(trial) if trial else ""
    return replace(one, error=reason or "not timed")


# -- which changes there are: one parameter changes, and as little else as possible


def changes(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, only: Sequence[str] = ()
) -> list[Alternative]:
    """Return every other value of each parameter, with everything else as it is, or as little else changed as can be.

    Args:
        kernel: whose configuration it is.
        problem: for which it is to be valid.
        gpu: on which.
        configuration: where to start.
        only: names of parameters; all when empty.

    Raises:
        UsageError: no such parameter.
    """
    variant = kernel.variants[configuration.variant]
    for name in only:
        if name not in variant.parameters:
            raise UsageError(
                f"{variant.name} has no parameter {name!r}", suggestion(name, variant.parameters)
            )

    def change(name: str, value: Value) -> Alternative:
        changed, besides = _with(configuration, name, value), None
        reason = invalid_reason(kernel, problem, gpu, changed)
        for companion in _companions(variant, changed, name) if reason else ():
            if not invalid_reason(kernel, problem, gpu, other := _with(changed, *companion)):
                changed, besides, reason = other, companion, ""
                break
        left_out = "" if reason else pruning_reason(kernel, problem, gpu, changed)
        return Alternative(name, value, changed, reason, besides, left_out)

    return [
        change(name, value)
        for name, parameter in variant.parameters.items()
        if not only or name in only
        for value in parameter.values
        if typed(value) != typed(configuration.values[name])
    ]


def _with(configuration: Configuration, name: str, value: Value) -> Configuration:
    return Configuration.of(configuration.variant, {**configuration.values, name: value})


def _companions(variant: VariantSpec, changed: Configuration, kept: str) -> list[tuple[str, Value]]:
    """Return all changes of one more parameter: first those with the fewest steps in its parameter's list of values, of
    equals those that are first in the kernel's file."""
    steps: list[tuple[int, str, Value]] = []
    for name, parameter in variant.parameters.items():
        if name != kept:
            here = indices(parameter.values)[typed(changed.values[name])]
            others = enumerate(parameter.values)
            steps += [(abs(there - here), name, value) for there, value in others if there != here]
    return [(name, value) for _, name, value in sorted(steps, key=lambda step: step[0])]
