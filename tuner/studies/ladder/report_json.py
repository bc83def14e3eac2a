"""What ``tune ladder`` found, for programs."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from tuner.report.tables import configuration_record, picked
from tuner.studies.ladder.ladder import InterleavedComparison, Ladder, Level, Timing


def ladder_as_json(ladder: Ladder) -> dict[str, Any]:
    """Return everything for programs, samples included."""
    return {
        "kernel": ladder.kernel.name,
        "gpu": ladder.gpu.name,
        "gpu_uuid": ladder.gpu.uuid,
        "driver": ladder.gpu.driver,
        **picked(ladder, "device replayed complete swept"),
        "rungs": [picked(step, "name doc variant parameters dtypes options") for step in ladder.steps],
        "levels": [_level(ladder, level) for level in ladder.levels],
    }


def _level(ladder: Ladder, level: Level) -> dict[str, Any]:
    absent = {name: picked(absence, "reason failed") for name, absence in level.absent.items()}
    first = level.first(ladder.steps)
    comparisons = [_comparison(level, comparison, first) for comparison in level.comparisons]
    return {"sizes": dict(level.sizes), "first": first or None, "contests": comparisons, "absent": absent}


def _comparison(level: Level, comparison: InterleavedComparison, first: str) -> dict[str, Any]:
    fastest, best_baseline = comparison.fastest, comparison.best_baseline
    launch_ns = comparison.calibration.launch_ns if comparison.calibration else {}
    return {
        "problem": comparison.problem.to_json(),
        **picked(comparison.conditions, "mode regime"),
        "why": comparison.why,
        **picked(comparison.roof, "flops bytes"),
        "noise_floor": comparison.noise_floor(fastest) if fastest else None,
        "launch_ns": launch_ns.get(str(comparison.conditions.mode)),
        "launch_decides": comparison.launch_decides,
        "fastest": fastest.name if fastest else None,
        "tied": [timing.name for timing in comparison.tied],
        "against": best_baseline.name if best_baseline else None,
        "tags": list(comparison.tags),
        "contestants": [_timing(level, comparison, timing, first) for timing in comparison.timings],
        "failed": [failure.to_json() for failure in comparison.failures],
    }


def _timing(level: Level, comparison: InterleavedComparison, timing: Timing, first: str) -> dict[str, Any]:
    tuned, best_baseline = timing.tuned, comparison.best_baseline
    over = level.speed_up(comparison, timing, first)
    against = (
        comparison.against(timing, best_baseline) if tuned is not None and best_baseline is not None else None
    )
    low, high = timing.interval_ns
    return {
        "contestant": timing.name,
        "rung": tuned is not None,
        **configuration_record(tuned.configuration if tuned else None),
        "call": None if tuned else timing.text,
        "trial": tuned.trial_id if tuned else None,
        "run": tuned.run if tuned else None,
        "trials": tuned.trials if tuned else None,
        "known": tuned.reused if tuned else None,
        "time_ns": timing.time_ns,
        "ci_low_ns": low,
        "ci_high_ns": high,
        **structs.asdict(comparison.metrics(timing)),
        "over_first": {**vars(over.ratio), "paired": over.paired} if over else None,
        "versus": {**vars(against.ratio), "verdict": against.verdict} if against else None,
        "by_launch": comparison.by_launch(timing),
        **picked(timing, "verified on_host"),
        "sm_clock_hz": timing.sm_clock_hz or None,
        "samples_ns": timing.samples_ns,
    }
