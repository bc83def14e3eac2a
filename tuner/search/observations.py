"""The observations of a model, results of this run and of other tasks, on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.search.base import Location
from tuner.search.features import Codes, Floats

FAILURE = 1.0
"""A failure counts as twice as slow as the slowest result, in log2."""


@dataclass
class OtherTask:
    """Results of another task, best first."""

    locations: list[Location]
    codes: Codes
    objectives: Floats
    max_correlation: float
    """The most that it can be correlated with this task, by its distance."""
    correlation: float = -1.0
    """The correlation that is assumed."""

    def __post_init__(self) -> None:
        self.correlation = self.max_correlation if self.correlation < 0 else self.correlation
        results = zip(self.codes, self.objectives, strict=True)
        self._by_code = {code.tobytes(): float(objective) for code, objective in reversed(list(results))}

    def shift(self, codes: Codes, objectives: Floats) -> float:
        """Return by how much this task is slower: where both were measured, or else by their medians' best halves."""
        pairs = []
        for code, objective in zip(codes, objectives, strict=True):
            there = self._by_code.get(code.tobytes())
            if there is not None and np.isfinite(objective):
                pairs.append(there - float(objective))
        if pairs:
            return float(np.median(pairs))
        finite = objectives[np.isfinite(objectives)]
        return float(np.median(self.objectives) - np.median(finite)) if len(finite) else 0.0


@dataclass(frozen=True)
class Observations:
    """Results for the model: codes and targets, each with the number of its task; 0 is this run."""

    codes: Codes
    targets: Floats
    tasks: NDArray[np.int64]
    correlations: Floats
    """Of each task with this run."""
    unit: float
    """Log2 of the time for one unit of the targets."""

    @property
    def own(self) -> NDArray[np.bool_]:
        """Which are results of this run."""
        return np.asarray(self.tasks == 0)

    @property
    def correlation(self) -> Floats | None:
        """Correlation of each result's task with this run; None where there is no other task."""
        return None if len(self.correlations) == 1 else self.correlations[self.tasks]

    @property
    def between_tasks(self) -> Floats | None:
        """Correlation of the tasks of each two results; None where there is no other task."""
        if (correlation := self.correlation) is None:
            return None
        return np.where(self.tasks[:, None] == self.tasks, 1.0, correlation[:, None] * correlation)

    def subset(self, rows: NDArray[np.int64]) -> Observations:
        """Return some of the results."""
        return replace(self, codes=self.codes[rows], targets=self.targets[rows], tasks=self.tasks[rows])


def observe(tasks: Sequence[OtherTask], codes: Codes, objectives: Floats, knee: float) -> Observations:
    """Return the observations of the model: other tasks shifted to this one, then this run's results.

    Args:
        tasks: other tasks.
        codes: of this run's results, one row each.
        objectives: of this run's results; NaN for a failure.
        knee: as :func:`standardise`.
    """
    columns = [task.objectives - task.shift(codes, objectives) for task in tasks]
    targets, unit = standardise(np.concatenate([*columns, objectives]), knee)
    numbers = [np.full(len(task.codes), number) for number, task in enumerate(tasks, 1)]
    return Observations(
        np.concatenate([*(task.codes for task in tasks), codes]),
        targets,
        np.concatenate([*numbers, np.zeros(len(objectives), dtype=np.int64)]),
        np.array([1.0, *(task.correlation for task in tasks)]),
        unit,
    )


def standardise(objectives: Floats, knee: float) -> tuple[Floats, float]:
    """Return results as targets of mean 0 and deviation 1, and the log2 of the time for one unit of them.

    The slow ones are compressed, and a failure counts like the slowest: a result much slower than the best says little
    about how the best differ, and would stretch the model.

    Args:
        objectives: log2 of times, NaN for failures; at least one is finite.
        knee: results worse than this quantile are compressed.
    """
    ok = objectives[np.isfinite(objectives)]
    bend = float(np.quantile(ok, knee))
    scale = max(bend - float(ok.min()), 0.1)
    values = np.where(np.isfinite(objectives), objectives, ok.max() + FAILURE)
    over = np.maximum(values - bend, 0.0) / scale
    values = np.minimum(values, bend) + scale * np.log1p(over)
    unit = float(values.std()) or 1.0
    return (values - values.mean()) / unit, unit


NEAREST, FARTHEST, PER_UNIT = 0.99, 0.5, 0.05
"""The most that two tasks can be correlated: the nearest ones, the farthest, and what a distance of 1 takes away."""


def correlation_limit(apart: float) -> float:
    """Return the most that two tasks at a distance can be correlated."""
    return min(NEAREST, max(FARTHEST, 1 - PER_UNIT * apart))
