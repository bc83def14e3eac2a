"""Conversions: a device's answer to a trial, a trial to what a search is told, a finish to what is kept of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.core.model import Resources, Status, Trial
from tuner.core.stats import median_interval, ratio_record
from tuner.database.records import Metrics, WarmTime, Winner
from tuner.devices.base import Outcome
from tuner.kernel.roofline import Roof
from tuner.tuning.state import Finish, InRace, WarmFinish


def trial_of(outcome: Outcome, max_error: float | None = None) -> Trial:
    """Return an answer as a trial.

    Args:
        outcome: the answer.
        max_error: how far from the true result an output may be; beyond that the trial is ``inaccurate``.
    """
    compilation, measurement = outcome.compilation, outcome.measurement
    samples = measurement.samples_ns
    low, high = median_interval(samples) if len(samples) > 1 else (None, None)
    resources = compilation.resources
    wrong = measurement.status in (Status.WRONG_RESULT, Status.WRONG_AFTER_TIMING)
    trial = Trial(
        number=outcome.number,
        configuration=outcome.configuration,
        status=measurement.status,
        time_ns=statistics.median(samples) if samples and not wrong else None,
        ci_low_ns=low,
        ci_high_ns=high,
        samples_ns=samples,
        resources=Resources.of(resources) if resources else None,
        verification=measurement.verification,
        error=measurement.error,
        sources=compilation.sources,
        implementation=compilation.implementation,
        compile_log=compilation.log,
        compile_s=compilation.compile_s,
        measure_s=measurement.measure_s,
        tags=measurement.tags,
        sm_clock_hz=measurement.sm_clock_hz,
        capped_samples=measurement.capped_samples,
    )
    return _bounded(trial, max_error)


def _bounded(trial: Trial, max_error: float | None) -> Trial:
    if max_error is None or not trial.status.ranked:
        return trial
    error = trial.verification.true_error if trial.verification else None
    if error is not None and error <= max_error:
        return trial
    far = "is not known" if error is None else f"of {error:.3g} is above {max_error:.3g}"
    return replace(trial, status=Status.INACCURATE, error=f"its error {far}")


def told_time(trial: Trial) -> float | None:
    """Return what a search is told: the time in nanoseconds, or None for a failure."""
    return trial.time_ns if trial.status.ranked and trial.time_ns else None


def metrics(roof: Roof, time_ns: float | None) -> Metrics:
    """Return the throughput of a time and its share of the speed of light; None where no ceiling is known."""
    if not time_ns:
        return Metrics()
    return Metrics(
        tflops=roof.flops / time_ns * 1e-3 or None,
        gbytes_per_s=roof.bytes / time_ns or None,
        speed_of_light=roof.speed_of_light_ns / time_ns or None,
    )


def winner_of(
    finish: Finish, ids: Mapping[int, int], *, replayed: bool, known_before: bool = False
) -> Winner:
    """Return what the database keeps of a finish.

    Args:
        finish: how the run ended.
        ids: rows of the run's trials, by number.
        replayed: whether the samples were recorded earlier.
        known_before: whether the database knew a best before.
    """
    confirmed = finish.confirmed
    return Winner(
        trial_id=ids[finish.winner.number],
        configuration=finish.winner.configuration,
        time_ns=finish.time_ns,
        default_trial_id=ids[finish.default.number] if finish.default and finish.default_ns else None,
        default_time_ns=finish.default_ns,
        **ratio_record(finish.ratio),
        verdict=finish.verdict,
        confirmed_ns=statistics.median(confirmed.samples_ns) if confirmed and confirmed.samples_ns else None,
        edges_verified=bool(finish.edge_cases) and not finish.reason,
        exportable=finish.exportable,
        reason=finish.reason,
        race={
            **_race_record(finish),
            "tied": finish.tied,
            "edges": [str(problem) for problem, _ in finish.edge_cases],
            "replayed": replayed,
            "behind": finish.behind,
            "incumbent": _against_incumbent(finish, ids),
        }
        | ({} if finish.warm is None else {"warm_race": _warm_record(finish.warm)}),
        warm=None if finish.warm is None else _warm_time(finish, finish.warm, known_before=known_before),
    )


def _warm_time(finish: Finish, warm: WarmFinish, *, known_before: bool) -> WarmTime:
    return WarmTime(
        time_ns=warm.time_ns,
        **ratio_record(warm.ratio),
        verdict=str(warm.verdict),
        behind=warm.behind,
        behind_in_mode=warm.behind_in_mode,
        counts=finish.incumbent_ns is not None or not known_before,
    )


def _race_record(race: InRace) -> dict[str, Any]:
    return {
        "medians_ns": [[str(configuration), time_ns] for configuration, time_ns in race.medians_ns],
        "noise_floor": race.noise_floor,
        "verdict": str(race.race_verdict),
        "rounds": race.rounds,
        "heats": race.heats,
        "seconds": round(race.race_s, 3),
    }


def _warm_record(warm: WarmFinish) -> dict[str, Any]:
    return {
        **_race_record(warm),
        "passed_over": str(warm.passed_over.configuration) if warm.passed_over else None,
        "passed_over_behind": warm.passed_over_behind,
    }


def _against_incumbent(finish: Finish, ids: Mapping[int, int]) -> dict[str, Any] | None:
    if finish.incumbent is None or finish.versus_incumbent is None:
        return None
    return {
        "trial_id": ids[finish.incumbent.number],
        "time_ns": finish.incumbent_ns,
        **ratio_record(finish.versus_incumbent),
        "verdict": str(finish.incumbent_verdict),
    }
