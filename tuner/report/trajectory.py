"""A run evaluation by evaluation: what was tried, how it ended, and the best so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tuner.core.model import Trial


def trajectory(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return the trials in the order in which they were proposed, each with the best time up to it."""
    best: float | None = None
    evaluations: list[dict[str, Any]] = []
    for trial in sorted(trials, key=lambda trial: trial.number):
        time_ns = trial.time_ns if trial.status.ranked else None
        if time_ns is not None and not trial.suspect and (best is None or time_ns < best):
            best = time_ns
        evaluations.append(
            {
                "evaluation": len(evaluations) + 1,
                "variant": trial.configuration.variant,
                "configuration": trial.configuration.values,
                "status": str(trial.status),
                "time_ns": time_ns,
                "best_ns": best,
                "error": trial.error,
            }
        )
    return evaluations
