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
from statistics import fmean

from tuner.core.conditions import Conditions
from tuner.core.model import Configuration, Problem, Trial, Value
from tuner.core.observer import Observer
from tuner.core.stats import Ratio, Verdict
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import roof_of, roof_under
from tuner.kernel.spec import KernelSpec
from tuner.studies.ablation_changes import Change, changes
from tuner.studies.interleaved import (
    Compared,
    Comparison,
    Timing,
    blank_row,
    compare,
    filled,
)

ITSELF = "chosen"
"""Name of the configuration itself among the contestants."""
TOGETHER = 8
"""Alternatives in one comparison with the configuration itself. Fewer would time it more often than needed; with more
the memory of all that are loaded at once, scratch included, adds up."""
WAIT_S = 0.2
"""Between two looks at whether the user wants it to end."""


@dataclass(frozen=True)
class Alternative:
    """A change with its time."""

    change: Change
    timing: Timing | None = None
    """None if it has no time."""
    compared: Compared | None = None
    """The configuration itself against it."""
    error: str = ""
    """Why it has no time."""

    @property
    def ratio(self) -> Ratio | None:
        """Its time over that of the configuration itself."""
        return self.compared.ratio if self.compared else None

    @property
    def verdict(self) -> Verdict | None:
        """Of the configuration itself against it."""
        return self.compared.verdict if self.compared else None


@dataclass(frozen=True)
class AblatedParameter:
    """One parameter: the chosen value, and the others."""

    parameter: str
    doc: str
    value: Value
    alternatives: tuple[Alternative, ...]
    """In the order of the parameter's values."""

    @property
    def worth(self) -> Alternative | None:
        """The fastest of the alternatives: what is left without this choice; None if none has a time."""
        timed = [one for one in self.alternatives if one.ratio is not None]
        return min(timed, key=lambda one: one.ratio.median if one.ratio else 0.0, default=None)


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


@dataclass(frozen=True)
class Ablation:
    """A configuration, and what each of its values is worth."""

    request: AblationRequest
    comparison: Comparison
    """The configuration itself alone, over all comparisons; without a timing if it has none."""
    parameters: tuple[AblatedParameter, ...]
    """In the order of the kernel's file."""
    error: str = ""
    """Why the configuration itself has no time."""
    complete: bool = True
    """Whether everything that is valid was timed; False if it was stopped."""

    @property
    def itself(self) -> Timing | None:
        """The configuration itself; None if it has no time."""
        return next(iter(self.comparison.timings), None)

    @property
    def alternatives(self) -> list[Alternative]:
        """The alternatives of all parameters."""
        return [one for parameter in self.parameters for one in parameter.alternatives]

    @property
    def faster(self) -> list[Alternative]:
        """The alternatives that are faster beyond the noise: the configuration is not the best there is."""
        return [one for one in self.alternatives if one.verdict is Verdict.SLOWER]


def records_of(ablation: Ablation, device: Device, bench: str) -> list[Benchmark]:
    """Return the rows for the database: the configuration itself, and each alternative under its change's name."""
    request = ablation.request
    if ablation.itself is None:
        return []
    row = replace(
        blank_row(KernelIdentity(request.kernel), request.problem, device, bench),
        noise_floor=ablation.comparison.reference_noise,
        tags=ablation.comparison.tags,
    )
    return [
        filled(row, ITSELF, request.configuration, ablation.itself),
        *(
            filled(row, one.change.name, one.change.configuration, one.timing, one.compared)
            for one in ablation.alternatives
            if one.timing is not None
        ),
    ]


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
    valid = [change for change in every if not change.objection]
    # Two changes that need each other lead to one configuration.
    different = list(dict.fromkeys([itself, *(change.configuration for change in valid)]))
    progress.phase("", 1 + -(-len(valid) // TOGETHER))
    progress.step(f"compiling and checking {len(different)} configurations")
    device.prepare(kernel, problem, request.seed, request.conditions)
    trials = _trials(device, different, request.known_ns, stop)
    complete, error = len(trials) == len(different), ""
    if itself in trials:
        error = _objection(trials[itself])
    timed: dict[Change, Alternative] = {}
    comparisons: list[Comparison] = []
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
        found = compare(device, kernel, problem, contestants, request.rounds, request.seed + number, needed=1)
        named = {change.name: change for change in group}
        for failure in found.failures:
            if failure.name == ITSELF:
                error = failure.error
            else:
                timed[named[failure.name]] = Alternative(named[failure.name], error=failure.error)
        if error:
            break
        comparisons.append(found)
        own, *others = found.timings
        for timing in others:
            change = named[timing.name]
            timed[change] = Alternative(change, timing, found.against(own, timing))
    roof = roof_under(roof_of(kernel, problem, device.gpu), request.conditions.mode)
    return Ablation(
        request,
        Comparison(
            kernel,
            problem,
            device.gpu,
            request.conditions,
            roof,
            device.calibration,
            _joined(comparisons),
            tags=tuple(sorted({tag for comparison in comparisons for tag in comparison.tags})),
        ),
        _by_parameter(
            kernel,
            itself,
            [timed.get(change) or Alternative(change, error=_why_not(change, trials)) for change in every],
        ),
        error,
        complete,
    )


def _groups(valid: Sequence[Change], trials: Mapping[Configuration, Trial]) -> list[list[Change]]:
    """Return what can be timed in groups of about the same length, so that no group is far longer than the others."""
    timeable = [
        change
        for change in valid
        if change.configuration in trials and not _objection(trials[change.configuration])
    ]
    order = sorted(timeable, key=lambda change: _time_ns(trials[change.configuration]))
    return [order[i : i + TOGETHER] for i in range(0, len(order), TOGETHER)] or [[]]


def _joined(comparisons: Sequence[Comparison]) -> tuple[Timing, ...]:
    """Return the configuration itself over all comparisons, in each of which it is the first."""
    own = [comparison.timings[0] for comparison in comparisons]
    clocks_hz = [timing.sm_clock_hz for timing in own if timing.sm_clock_hz]
    groups_ns = [group for timing in own for group in timing.groups_ns]
    clock_hz = fmean(clocks_hz) if clocks_hz else 0.0
    return tuple(Timing(groups_ns, sm_clock_hz=clock_hz, contestant=one.contestant) for one in own[:1])


def _by_parameter(
    kernel: KernelSpec, configuration: Configuration, alternatives: Sequence[Alternative]
) -> tuple[AblatedParameter, ...]:
    parameters = kernel.variants[configuration.variant].parameters
    return tuple(
        AblatedParameter(
            name,
            parameters[name].doc,
            configuration.values[name],
            tuple(one for one in alternatives if one.change.parameter == name),
        )
        for name in dict.fromkeys(one.change.parameter for one in alternatives)
    )


def _trials(
    device: Device,
    configurations: Sequence[Configuration],
    known_ns: float | None,
    stop: Callable[[], bool],
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
    error = next((line.strip() for line in trial.error.splitlines() if line.strip()), "")
    return ": ".join(filter(None, (str(trial.status), error)))


def _why_not(change: Change, trials: Mapping[Configuration, Trial]) -> str:
    """Return why a change has no time."""
    if change.objection:
        return f"not valid: {change.objection}"
    trial = trials.get(change.configuration)
    return (_objection(trial) if trial else "") or "not timed"
