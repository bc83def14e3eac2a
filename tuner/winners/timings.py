"""What configurations took at several problems, put together from interleaved comparisons, as slowdowns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import median

import numpy as np
import numpy.typing as npt

from tuner.core.model import Configuration, Problem
from tuner.database.records import Benchmark

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Timings:
    """Slowdowns of configurations at problems.

    Attributes:
        problems: one a row.
        configurations: one a column.
        slowdowns: log2 of the time over the best that was timed at the problem; NaN where it was not timed.
        best_ns: that time, of each problem.
    """

    problems: tuple[Problem, ...]
    configurations: tuple[Configuration, ...]
    slowdowns: Floats
    best_ns: Floats

    def of(self, problem: Problem) -> dict[Configuration, float]:
        """Return the slowdowns at one problem; empty where nothing was timed."""
        if problem not in self.problems:
            return {}
        row = self.slowdowns[self.problems.index(problem)]
        return {one: float(at) for one, at in zip(self.configurations, row, strict=True) if at == at}


def timings_of(rows: Iterable[Benchmark]) -> Timings:
    """Return slowdowns from the rows of interleaved comparisons, in the order in which they were recorded.

    The same ``bench`` and problem are one comparison. Times of different ones differ by drift: a later one is brought
    to the level of the earlier ones by the configurations that it shares with them, and its times replace theirs.
    Only a problem's last conditions count, and a comparison that shares nothing is left out.
    """
    races: dict[tuple[str, str], list[Benchmark]] = {}
    last: dict[str, Benchmark] = {}
    for row in rows:
        if row.configuration is not None:
            races.setdefault((row.problem.key, row.bench), []).append(row)
            last[row.problem.key] = row
    times: dict[str, dict[Configuration, float]] = {}
    for (key, _), race in races.items():
        if race[0].conditions == last[key].conditions:
            _add(times.setdefault(key, {}), race)
    problems = [last[key].problem for key in times]
    return table(problems, [times[problem.key] for problem in problems])


def _add(times: dict[Configuration, float], race: Sequence[Benchmark]) -> None:
    new = {row.configuration: log2(row.time_ns) for row in race if row.configuration is not None}
    shared = [times[one] - new[one] for one in new if one in times]
    if times and not shared:
        return
    level = median(shared) if shared else 0.0
    times.update({one: at + level for one, at in new.items()})


def table(problems: Sequence[Problem], times: Sequence[Mapping[Configuration, float]]) -> Timings:
    """Return slowdowns from the logarithms of times at each problem."""
    columns = {one: None for row in times for one in row}
    numbers = {one: number for number, one in enumerate(columns)}
    slowdowns = np.full((len(problems), len(columns)), np.nan)
    bests = [min(row.values()) for row in times]
    for number, (row, best) in enumerate(zip(times, bests, strict=True)):
        for one, at in row.items():
            slowdowns[number, numbers[one]] = at - best
    return Timings(tuple(problems), tuple(columns), slowdowns, np.exp2(bests))
