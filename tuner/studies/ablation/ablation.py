"""An ablation: one parameter of a configuration at a time takes its other values, and is timed in turn with it.

Everything but one parameter stays. Where that is not valid (deeper stages, and as many of them as before, say) the
smallest change of one other parameter that makes it so comes with it; where there is none, the reason is the answer.
What a value is worth *here* is then the time of the best of its alternatives over the time with it. Two values that
only pay together are each worth what undoing one of them costs, and two that can stand in for each other may both look
worthless: a table of single changes says nothing about pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Protocol

from tuner.core.model import Configuration
from tuner.core.stats import median_interval, paired_ratio, reference_verdict
from tuner.devices.base import Contestant, Device, Outcome, RaceRequest, RaceResult
from tuner.kernel.roofline import roof_of
from tuner.kernel.spec import KernelSpec
from tuner.studies.ablation.changes import Change, changes
from tuner.studies.ablation.results import AblatedParameter, Ablation, AblationRequest, Alternative
from tuner.studies.bench.bench import SAMPLES, RaceSamples
from tuner.tuning.ceiling import roof_under

TOGETHER = 8
"""Alternatives in one comparison with the configuration itself. Fewer would time it more often than needed; with more
the memory of all that are loaded at once, scratch included, adds up."""
WAIT_S = 0.2
"""Between two looks at whether the user wants it to end."""


class AblationProgress(Protocol):
    """What is told of an ablation's steps."""

    def expect(self, steps: int) -> None:
        """Learn how many steps there will be."""

    def step(self, what: str) -> None:
        """Begin a step."""

    def done(self) -> None:
        """End a step."""


def ablate(
    device: Device, request: AblationRequest, progress: AblationProgress, stop: Callable[[], bool]
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
    kernel, problem, configuration = request.kernel, request.problem, request.configuration
    every = changes(kernel, problem, device.gpu, configuration, request.only)
    valid = [change for change in every if not change.objection]
    # Two changes that need each other lead to one configuration.
    different = list(dict.fromkeys([configuration, *(change.configuration for change in valid)]))
    progress.expect(1 + -(-len(valid) // TOGETHER))
    progress.step(f"compiling and checking {len(different)} configurations")
    device.prepare(kernel, problem, request.seed, request.conditions)
    outcomes, complete = _outcomes(device, different, request.known_ns, stop)
    progress.done()
    own = outcomes.get(configuration)
    error = "" if own is None or own.measurement.status.ranked else _reason(own)
    compared = _Comparisons(device, request, progress, stop)
    if own is not None and not error:
        compared.run(_timeable(valid, outcomes), outcomes)
    alternatives = [
        compared.alternatives.get(change) or Alternative(change, error=_why_not(change, outcomes))
        for change in every
    ]
    low, high = median_interval(compared.medians) if compared.medians else (None, None)
    return Ablation(
        request,
        device.gpu,
        roof_under(roof_of(kernel, problem, device.gpu), request.conditions.mode),
        device.calibration,
        noise_floor=compared.noise_floor,
        time_ns=median(compared.medians) if compared.medians else None,
        low_ns=low,
        high_ns=high,
        samples_ns=tuple(compared.samples),
        sm_clock_hz=fmean(compared.clocks_hz) if compared.clocks_hz else 0.0,
        parameters=_by_parameter(kernel, configuration, alternatives),
        tags=tuple(sorted(compared.tags)),
        error=error or compared.error,
        complete=complete and compared.complete,
    )


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


def _outcomes(
    device: Device,
    configurations: Sequence[Configuration],
    known_ns: float | None,
    stop: Callable[[], bool],
) -> tuple[dict[Configuration, Outcome], bool]:
    """Have all compiled, verified and timed once; return the outcomes, and whether all were awaited."""
    outcomes: dict[Configuration, Outcome] = {}

    def own_ns() -> float | None:
        own = outcomes.get(configurations[0])
        if own is None or not own.measurement.status.ranked:
            return known_ns
        return median(own.measurement.samples_ns)

    for number, configuration in enumerate(configurations):
        device.submit(number, configuration, own_ns)
    while len(outcomes) < len(configurations):
        for outcome in device.collect(WAIT_S):
            outcomes[outcome.configuration] = outcome
        if stop():
            return outcomes, len(outcomes) == len(configurations)
    return outcomes, True


def _timeable(valid: Sequence[Change], outcomes: Mapping[Configuration, Outcome]) -> list[Change]:
    return [
        change
        for change in valid
        if change.configuration in outcomes and outcomes[change.configuration].measurement.status.ranked
    ]


def _reason(outcome: Outcome) -> str:
    error = next((line.strip() for line in outcome.measurement.error.splitlines() if line.strip()), "")
    return ": ".join(filter(None, (str(outcome.measurement.status), error)))


def _why_not(change: Change, outcomes: Mapping[Configuration, Outcome]) -> str:
    """Return why a change has no time."""
    if change.objection:
        return f"not valid: {change.objection}"
    outcome = outcomes.get(change.configuration)
    return "not timed" if outcome is None or outcome.measurement.status.ranked else _reason(outcome)


@dataclass
class _Comparisons:
    """Interleaved comparisons of the configuration itself with its alternatives, and their results."""

    device: Device
    request: AblationRequest
    progress: AblationProgress
    stop: Callable[[], bool]
    alternatives: dict[Change, Alternative] = field(default_factory=dict)
    medians: list[float] = field(default_factory=list)
    """Of the configuration itself, a round each."""
    samples: list[float] = field(default_factory=list)
    clocks_hz: list[float] = field(default_factory=list)
    """Of it, a comparison each, where they were counted."""
    tags: set[str] = field(default_factory=set)
    noise_floor: float = 0.0
    error: str = ""
    complete: bool = True

    def run(self, changes: Sequence[Change], outcomes: Mapping[Configuration, Outcome]) -> None:
        """Time the changes in groups of about the same length, so that no group is far longer than the others."""
        times = {
            configuration: median(outcome.measurement.samples_ns)
            for configuration, outcome in outcomes.items()
            if outcome.measurement.samples_ns
        }
        order = sorted(changes, key=lambda change: times.get(change.configuration, 0.0))
        groups = [order[i : i + TOGETHER] for i in range(0, len(order), TOGETHER)] or [[]]
        for number, group in enumerate(groups):
            if self.stop():
                self.complete = False
                return
            first = number * TOGETHER + 1
            self.progress.step(f"timing {first} to {first + len(group) - 1} of {len(order)} in turn with it")
            self._compare(list(group), times, number)
            self.progress.done()
            if self.error:
                return

    def _compare(self, group: list[Change], times: Mapping[Configuration, float], number: int) -> None:
        """Time one group in turn with the configuration itself; if one fails, the others start again without it."""
        while True:
            contestants = [
                Contestant(configuration, times.get(configuration, 0.0))
                for configuration in (self.request.configuration, *(change.configuration for change in group))
            ]
            request = self.request
            race = self.device.race(RaceRequest(contestants, request.rounds, SAMPLES, request.seed + number))
            if race.failed is None:
                break
            if race.failed == 0:
                self.error = race.error
                return
            failed = group.pop(race.failed - 1)
            self.alternatives[failed] = Alternative(failed, error=race.error)
        self._keep(group, race)

    def _keep(self, group: Sequence[Change], race: RaceResult) -> None:
        own = RaceSamples.of(race, 0, on_host=False, ours=True)
        self.medians += own.medians_ns
        self.samples += own.samples_ns
        self.clocks_hz += [own.sm_clock_hz] if own.sm_clock_hz else []
        self.tags |= set(race.tags)
        self.noise_floor = self.device.noise_floor(median(self.medians))
        for index, change in enumerate(group, 1):
            timed = RaceSamples.of(race, index, on_host=False, ours=True)
            ratio = paired_ratio(timed.medians_ns, own.medians_ns)
            self.alternatives[change] = Alternative(
                change,
                timed.time_ns,
                *timed.interval_ns,
                ratio,
                reference_verdict(ratio, self.noise_floor),
                samples_ns=timed.samples_ns,
                sm_clock_hz=timed.sm_clock_hz,
            )
