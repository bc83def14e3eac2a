"""What each choice of a configuration is worth: one parameter at a time takes its other values, and is timed in turn.

Everything but one parameter stays. Where that is not valid (deeper stages, and as many of them as before, say) the
smallest change of one other parameter that makes it so comes with it; where there is none, the reason is the answer.
What a choice is worth *here* is then the time of the best of its alternatives over the time with it. Two choices that
only pay together are each worth what undoing one of them costs, and two that can stand in for each other may both look
worthless: a table of single changes says nothing about pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Protocol

from tuner.bench.bench import OPPOSITE, SAMPLES, Timed
from tuner.conditions import Calibration, Conditions
from tuner.database.records import Benchmark
from tuner.devices.base import Contestant, Device, Occupancy, Outcome, RaceRound
from tuner.errors import UsageError, suggestion
from tuner.hardware.roofline import Roof, roof_of
from tuner.kernel.load import content_digest
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem, Value
from tuner.space.validity import invalid_reason, pruning_reason
from tuner.stats import Ratio, Verdict, median_interval, paired_ratio, verdict

TOGETHER = 8
"""Alternatives in one contest with the configuration itself. Fewer would time it more often than needed; with more the
memory of all that are loaded at once, scratch included, adds up."""
WAIT_S = 0.2
"""Between two looks at whether the user wants it to end."""
ITSELF = "chosen"
"""Name of the configuration itself among the contestants."""


@dataclass(frozen=True)
class Change:
    """One parameter with another value."""

    parameter: str
    value: Value
    configuration: Configuration
    objection: str = ""
    """Why the configuration is not valid; empty if it is."""
    besides: tuple[str, Value] | None = None
    """Another parameter that had to change with it, and its value."""
    unsearched: str = ""
    """Why a search would not try it; empty if it would."""

    @property
    def name(self) -> str:
        """As tables show it."""
        besides = f" {self.besides[0]}={self.besides[1]}" if self.besides else ""
        return f"{self.parameter}={self.value}{besides}"


@dataclass(frozen=True)
class Alternative:
    """A change with what it took."""

    change: Change
    time_ns: float | None = None
    """Median of the rounds' medians, and the ends of its 95 % interval; None where it has no time."""
    low_ns: float | None = None
    high_ns: float | None = None
    ratio: Ratio | None = None
    """Its time over that of the configuration itself."""
    verdict: Verdict | None = None
    """Of the configuration itself against it."""
    error: str = ""
    """Why it has no time."""
    samples_ns: tuple[float, ...] = ()
    sm_clock_hz: float = 0.0


@dataclass(frozen=True)
class Choice:
    """One parameter: what was chosen, and what else there was."""

    parameter: str
    doc: str
    value: Value
    alternatives: tuple[Alternative, ...]
    """In the order of the parameter's values."""

    @property
    def worth(self) -> Alternative | None:
        """The fastest of the alternatives: what is left without this choice; None where none has a time."""
        timed = [one for one in self.alternatives if one.ratio is not None]
        return min(timed, key=lambda one: one.ratio.median if one.ratio else 0.0, default=None)


@dataclass(frozen=True)
class Ablation:
    """A configuration, and what each of its choices is worth."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    conditions: Conditions
    why: str
    """Why these conditions."""
    roof: Roof
    calibration: Calibration | None
    configuration: Configuration
    noise_floor: float
    time_ns: float | None
    """Of the configuration itself, over all contests; None where it has no time."""
    low_ns: float | None
    high_ns: float | None
    samples_ns: tuple[float, ...]
    sm_clock_hz: float
    choices: tuple[Choice, ...]
    """In the order of the kernel's file."""
    tags: tuple[str, ...] = ()
    error: str = ""
    """Why the configuration itself has no time."""
    complete: bool = True
    """Whether everything that is valid was timed, or its end was not awaited."""

    @property
    def faster(self) -> list[Alternative]:
        """Return the alternatives that are faster beyond the noise: the configuration is not the best there is."""
        found = [one for choice in self.choices for one in choice.alternatives]
        return [one for one in found if one.verdict is Verdict.SLOWER]


class Progress(Protocol):
    """Who watches."""

    def expect(self, steps: int) -> None:
        """So many steps there will be."""

    def step(self, what: str) -> None:
        """A step begins."""

    def done(self) -> None:
        """It is over."""


def changes(
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration,
    only: Sequence[str] = (),
) -> list[Change]:
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
    found = []
    values = configuration.values
    for name, parameter in variant.parameters.items():
        if only and name not in only:
            continue
        for value in parameter.values:
            if (type(value), value) == (type(values[name]), values[name]):
                continue
            changed = Configuration.of(variant.name, {**values, name: value})
            reason = invalid_reason(kernel, problem, gpu, changed)
            besides = _companion(kernel, problem, gpu, changed, name) if reason else None
            if besides is not None:
                changed = Configuration.of(variant.name, {**changed.values, besides[0]: besides[1]})
                reason = ""
            left_out = "" if reason else pruning_reason(kernel, problem, gpu, changed)
            found.append(Change(name, value, changed, reason, besides, left_out))
    return found


def _companion(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, changed: Configuration, kept: str
) -> tuple[str, Value] | None:
    """Return the change of one more parameter that makes a configuration valid: the one with the fewest steps in its
    parameter's list of values, of equals the first in the kernel's file; None where there is none."""
    steps: list[tuple[int, str, Value]] = []
    for name, parameter in kernel.variants[changed.variant].parameters.items():
        if name != kept:
            here = _place(parameter.values, changed.values[name])
            steps += [
                (abs(there - here), name, value)
                for there, value in enumerate(parameter.values)
                if there != here
            ]
    for _, name, value in sorted(steps, key=lambda step: step[0]):
        other = Configuration.of(changed.variant, {**changed.values, name: value})
        if not invalid_reason(kernel, problem, gpu, other):
            return name, value
    return None


def _place(values: Sequence[Value], value: Value) -> int:
    """Find a value in a list; True is not 1."""
    return next(i for i, one in enumerate(values) if (type(one), one) == (type(value), value))


def ablate(
    device: Device,
    kernel: KernelSpec,
    problem: Problem,
    conditions: Conditions,
    why: str,
    configuration: Configuration,
    rounds: int,
    seed: int,
    progress: Progress,
    stop: Callable[[], bool],
    only: Sequence[str] = (),
    known_ns: float | None = None,
) -> Ablation:
    """Time a configuration in turn with all that differ from it in one parameter.

    All are compiled at once, and verified; what does not compile, cannot be launched or is wrong has its reason in
    place of a time.

    Args:
        device: where.
        kernel: what computes.
        problem: what is computed.
        conditions: how it is timed.
        why: these conditions.
        configuration: whose choices they are.
        rounds: groups of each.
        seed: of the inputs and the order.
        progress: told of every step.
        stop: asked often; once it is true nothing new is begun, and the result says that it is not complete.
        only: names of parameters; all when empty.
        known_ns: what the configuration took earlier under these conditions, if that is known: what is far slower then
            gets few samples before the contests.

    Raises:
        UsageError: no such parameter.
        TunerError: the problem cannot be measured.
    """
    found = changes(kernel, problem, device.gpu, configuration, only)
    valid = [change for change in found if not change.objection]
    # Two changes that need each other lead to one configuration.
    different = list(dict.fromkeys([configuration, *(change.configuration for change in valid)]))
    device.incumbent_ns, device.occupancy = known_ns, Occupancy()
    progress.expect(1 + -(-len(valid) // TOGETHER))
    progress.step(f"compiling and checking {len(different)} configurations")
    device.prepare(kernel, problem, seed, conditions)
    answers, complete = _answers(device, different, stop)
    progress.done()
    own = answers.get(configuration)
    error = "" if own is None or own.measurement.status.ranked else _reason(own)
    work = _Work(device, configuration, rounds, seed, progress, stop)
    if own is not None and not error:
        work.run(_timeable(valid, answers), answers)
    alternatives = {
        change: work.found.get(change) or Alternative(change, error=_why_not(change, answers))
        for change in found
    }
    variant = kernel.variants[configuration.variant]
    low, high = median_interval(work.medians) if work.medians else (None, None)
    return Ablation(
        kernel,
        problem,
        device.gpu,
        conditions,
        why,
        roof_of(kernel, problem, device.gpu),
        device.calibration,
        configuration,
        work.noise_floor,
        median(work.medians) if work.medians else None,
        low,
        high,
        tuple(work.samples),
        fmean(work.clocks_hz) if work.clocks_hz else 0.0,
        tuple(
            Choice(
                name,
                variant.parameters[name].doc,
                configuration.values[name],
                tuple(one for change, one in alternatives.items() if change.parameter == name),
            )
            for name in dict.fromkeys(change.parameter for change in found)
        ),
        tuple(sorted(work.tags)),
        error or work.error,
        complete and work.complete,
    )


def records_of(found: Ablation, bench_id: str, versions: Mapping[str, str]) -> list[Benchmark]:
    """Return what the database keeps of it: the configuration itself, and each alternative under its change's name."""
    if found.time_ns is None or found.low_ns is None or found.high_ns is None:
        return []
    digest = content_digest(found.kernel)
    itself = Benchmark(
        bench=bench_id,
        problem=found.problem,
        gpu=found.gpu,
        conditions=found.conditions,
        contestant=ITSELF,
        configuration=found.configuration,
        winner_id=None,
        kernel_digest=digest,
        time_ns=found.time_ns,
        ci_low_ns=found.low_ns,
        ci_high_ns=found.high_ns,
        samples_ns=found.samples_ns,
        ratio=None,
        ratio_low=None,
        ratio_high=None,
        verdict="",
        noise_floor=found.noise_floor,
        sm_clock_hz=found.sm_clock_hz,
        tags=found.tags,
        versions=versions,
    )
    rows = [itself]
    for one in (one for choice in found.choices for one in choice.alternatives):
        if one.time_ns is None or one.low_ns is None or one.high_ns is None or one.ratio is None:
            continue
        rows.append(
            replace(
                itself,
                contestant=one.change.name,
                configuration=one.change.configuration,
                time_ns=one.time_ns,
                ci_low_ns=one.low_ns,
                ci_high_ns=one.high_ns,
                samples_ns=one.samples_ns,
                ratio=one.ratio.median,
                ratio_low=one.ratio.low,
                ratio_high=one.ratio.high,
                verdict=str(one.verdict),
                sm_clock_hz=one.sm_clock_hz,
            )
        )
    return rows


def _answers(
    device: Device, configurations: Sequence[Configuration], stop: Callable[[], bool]
) -> tuple[dict[Configuration, Outcome], bool]:
    """Have all compiled, verified and timed once; gives the answers, and whether all were awaited."""
    for number, configuration in enumerate(configurations):
        device.submit(number, configuration)
    answers: dict[Configuration, Outcome] = {}
    while len(answers) < len(configurations):
        for outcome in device.collect(WAIT_S):
            answers[outcome.configuration] = outcome
            if outcome.number == 0 and outcome.measurement.status.ranked:
                device.incumbent_ns = median(outcome.measurement.samples_ns)
        if stop():
            return answers, len(answers) == len(configurations)
    return answers, True


def _timeable(valid: Sequence[Change], answers: Mapping[Configuration, Outcome]) -> list[Change]:
    return [
        change
        for change in valid
        if change.configuration in answers and answers[change.configuration].measurement.status.ranked
    ]


def _reason(outcome: Outcome) -> str:
    said = next((line.strip() for line in outcome.measurement.error.splitlines() if line.strip()), "")
    return ": ".join(filter(None, (str(outcome.measurement.status), said)))


def _why_not(change: Change, answers: Mapping[Configuration, Outcome]) -> str:
    """Say why a change has no time."""
    if change.objection:
        return f"not valid: {change.objection}"
    outcome = answers.get(change.configuration)
    return "not timed" if outcome is None or outcome.measurement.status.ranked else _reason(outcome)


@dataclass
class _Work:
    """The contests."""

    device: Device
    configuration: Configuration
    rounds: int
    seed: int
    progress: Progress
    stop: Callable[[], bool]
    found: dict[Change, Alternative] = field(default_factory=dict)
    medians: list[float] = field(default_factory=list)
    """Of the configuration itself, a round each."""
    samples: list[float] = field(default_factory=list)
    clocks_hz: list[float] = field(default_factory=list)
    """Of it, a contest each, where they were counted."""
    tags: set[str] = field(default_factory=set)
    noise_floor: float = 0.0
    error: str = ""
    complete: bool = True

    def run(self, left: Sequence[Change], answers: Mapping[Configuration, Outcome]) -> None:
        """Time them, some at once; those of about the same length together, so that no group of them is far longer."""
        times = {
            configuration: median(outcome.measurement.samples_ns)
            for configuration, outcome in answers.items()
            if outcome.measurement.samples_ns
        }
        order = sorted(left, key=lambda change: times.get(change.configuration, 0.0))
        groups = [order[i : i + TOGETHER] for i in range(0, len(order), TOGETHER)] or [[]]
        for number, group in enumerate(groups):
            if self.stop():
                self.complete = False
                return
            first = number * TOGETHER + 1
            self.progress.step(f"timing {first} to {first + len(group) - 1} of {len(order)} in turn with it")
            self._contest(list(group), times, number)
            self.progress.done()
            if self.error:
                return

    def _contest(self, group: list[Change], times: Mapping[Configuration, float], number: int) -> None:
        """Time one group in turn with the configuration itself; who fails is left out, and the others start again."""
        while True:
            contestants = [
                Contestant(configuration, times.get(configuration, 0.0))
                for configuration in (self.configuration, *(change.configuration for change in group))
            ]
            race = self.device.race(contestants, self.rounds, SAMPLES, self.seed + number)
            if race.lost is None:
                break
            if race.lost == 0:
                self.error = race.error
                return
            lost = group.pop(race.lost - 1)
            self.found[lost] = Alternative(lost, error=race.error)
        self._judge(group, race)

    def _judge(self, group: Sequence[Change], race: RaceRound) -> None:
        own = Timed.of(race, 0, on_host=False, ours=True)
        self.medians += own.medians_ns
        self.samples += own.samples_ns
        self.clocks_hz += [own.sm_clock_hz] if own.sm_clock_hz else []
        self.tags |= set(race.tags)
        self.noise_floor = self.device.noise_floor(median(self.medians))
        for place, change in enumerate(group, 1):
            timed = Timed.of(race, place, on_host=False, ours=True)
            ratio = paired_ratio(timed.medians_ns, own.medians_ns, self.seed)
            against_it = verdict(ratio, self.noise_floor)
            low, high = median_interval(timed.medians_ns)
            self.found[change] = Alternative(
                change,
                median(timed.medians_ns),
                low,
                high,
                ratio,
                OPPOSITE.get(against_it, against_it),
                samples_ns=timed.samples_ns,
                sm_clock_hz=timed.sm_clock_hz,
            )
