"""The results of an ablation: each parameter of a configuration with the times of its other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.core.conditions import Calibration, Conditions
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.core.stats import Ratio, Verdict
from tuner.database.records import Benchmark
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import Roof
from tuner.kernel.spec import KernelSpec
from tuner.studies.ablation.changes import Change
from tuner.studies.bench.bench import ratio_columns

ITSELF = "chosen"
"""Name of the configuration itself among the contestants."""


@dataclass(frozen=True)
class Alternative:
    """A change with its time."""

    change: Change
    time_ns: float | None = None
    """Median of the rounds' medians, and the ends of its 95 % interval; None if it has no time."""
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
    gpu: Gpu
    roof: Roof
    """Under these conditions."""
    calibration: Calibration | None
    noise_floor: float
    time_ns: float | None
    """Of the configuration itself, over all comparisons; None if it has no time."""
    low_ns: float | None
    high_ns: float | None
    samples_ns: tuple[float, ...]
    sm_clock_hz: float
    parameters: tuple[AblatedParameter, ...]
    """In the order of the kernel's file."""
    tags: tuple[str, ...] = ()
    error: str = ""
    """Why the configuration itself has no time."""
    complete: bool = True
    """Whether everything that is valid was timed; False if it was stopped."""

    @property
    def alternatives(self) -> list[Alternative]:
        """The alternatives of all parameters."""
        return [one for parameter in self.parameters for one in parameter.alternatives]

    @property
    def faster(self) -> list[Alternative]:
        """The alternatives that are faster beyond the noise: the configuration is not the best there is."""
        return [one for one in self.alternatives if one.verdict is Verdict.SLOWER]


def records_of(ablation: Ablation, bench_id: str, versions: Mapping[str, str]) -> list[Benchmark]:
    """Return the rows for the database: the configuration itself, and each alternative under its change's name."""
    if ablation.time_ns is None or ablation.low_ns is None or ablation.high_ns is None:
        return []
    request, identity = ablation.request, KernelIdentity(ablation.request.kernel)
    itself = Benchmark(
        bench=bench_id,
        problem=request.problem,
        gpu=ablation.gpu,
        conditions=request.conditions,
        contestant=ITSELF,
        configuration=request.configuration,
        kernel_digest=identity.text,
        computation=identity.computation,
        time_ns=ablation.time_ns,
        ci_low_ns=ablation.low_ns,
        ci_high_ns=ablation.high_ns,
        samples_ns=ablation.samples_ns,
        noise_floor=ablation.noise_floor,
        sm_clock_hz=ablation.sm_clock_hz,
        tags=ablation.tags,
        versions=versions,
    )
    rows = [itself]
    for one in ablation.alternatives:
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
                **ratio_columns(one.ratio, one.verdict),
                sm_clock_hz=one.sm_clock_hz,
            )
        )
    return rows
