"""From a compiled configuration to a candidate, and to its trial with what was measured."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from tuner.children.compilation import Compilation
from tuner.children.measuring import Candidate
from tuner.core.model import Configuration, Measurement, Resources, Status, Trial
from tuner.core.stats import median_interval


def trial_of(number: int, configuration: Configuration, compilation: Compilation) -> Trial:
    """Return the trial of what was compiled and has not been measured, or will not be."""
    return Trial(
        number,
        configuration,
        compilation.status,
        resources=Resources.of(compilation.resources) if compilation.resources else None,
        error=compilation.error,
        sources=compilation.sources,
        implementation=compilation.implementation,
        compile_log=compilation.log,
        compile_s=compilation.compile_s,
    )


def candidate_of(compilation: Compilation) -> Candidate:
    """Return what a measuring process gets of a compiled configuration."""
    assert compilation.plan is not None
    return Candidate(compilation.plan, compilation.cubins, compilation.entries, compilation.call)


def measured(trial: Trial, measurement: Measurement) -> Trial:
    """Return a compiled trial with what was measured of it."""
    samples = measurement.samples_ns
    low, high = median_interval(samples) if len(samples) > 1 else (None, None)
    wrong = measurement.status in (Status.WRONG_RESULT, Status.WRONG_AFTER_TIMING)
    return replace(
        trial,
        status=measurement.status,
        time_ns=median(samples) if samples and not wrong else None,
        ci_low_ns=low,
        ci_high_ns=high,
        samples_ns=samples,
        verification=measurement.verification,
        error=measurement.error,
        measure_s=measurement.measure_s,
        tags=measurement.tags,
        sm_clock_hz=measurement.sm_clock_hz,
        capped_samples=measurement.capped_samples,
        drifted=measurement.drifted,
    )
