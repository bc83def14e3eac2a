"""What configurations would take where they were not timed: by their costs, their parameters' values, and near times.

The kernel's file gives costs. What was timed says by how much values of parameters differ from that, as a sum over
parameters that changes slowly with the sizes; so it also says something of configurations that were timed nowhere. What
is left of a configuration's own times is taken from the nearest problems.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.spec import KernelSpec
from tuner.winners.costs import Summands, fit_factors
from tuner.winners.portfolios import kind_of
from tuner.winners.timings import Floats, Timings

NEIGHBOURS = 4
REACH = 0.25
"""Octaves within which problems are equally near."""
ANOTHER_KIND = 1.0
"""Octaves that a problem with other dtypes or options is farther away."""
SHRINKAGE = 0.3
"""Observations, in which no value of a parameter matters."""
OF_SLOW = 0.2
"""Octaves: a time so far from the best counts half."""
MIDDLE, SPAN = 11.0, 4.0
"""Octaves of a size: an effect of a value is linear in (log2(size) - MIDDLE) / SPAN."""
GROWTH = 0.2
"""Of what was timed, after which the values are estimated anew: it takes a quarter of a second."""

NEAR = 6
"""Problems from which those between take sizes."""


class Predictor:
    """Predicts times of a kernel on one GPU."""

    def __init__(self, kernel: KernelSpec, gpu: Gpu) -> None:
        self._kernel, self._summands = kernel, Summands(kernel, gpu)
        self._rows: dict[tuple[Configuration, str], Floats] = {}
        """Summands of costs, by configuration and problem."""
        self._factors: dict[str, Floats] = {}
        """Of the summands, by variant."""
        self._columns: dict[tuple[object, ...], int] = {}
        self._values: dict[Configuration, list[int]] = {}
        self._timings: Timings | None = None
        self._effects: Floats = np.zeros((0, 1 + len(kernel.sizes)))
        self._learnt = 0
        self._residuals = (np.zeros(0, int), np.zeros(0, int), np.zeros(0))
        """Problems, configurations and residuals of all that was timed."""

    def costs(self, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return log2 of configurations' costs at a problem."""
        rows = self._summands_of(problem, configurations)
        sums = [
            float(row @ self._factors[one.variant]) if one.variant in self._factors else float(row.sum())
            for one, row in zip(configurations, rows, strict=True)
        ]
        return np.log2(np.maximum(sums, 1e-3))

    def _summands_of(self, problem: Problem, configurations: Sequence[Configuration]) -> list[Floats]:
        key = problem.key
        new: dict[str, list[Configuration]] = {}
        for one in configurations:
            if (one, key) not in self._rows:
                new.setdefault(one.variant, []).append(one)
        for ones in new.values():
            rows = self._summands.at(problem, ones)
            self._rows |= {(one, key): row for one, row in zip(ones, rows, strict=True)}
        return [self._rows[one, key] for one in configurations]

    def estimate(self, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return log2 of what configurations would take by their costs and values, all off by the same."""
        here = self._effects @ self._sizes(problem)
        columns = [self._columns_of(one) for one in configurations]
        effects = [sum(float(here[at]) for at in ones if at < len(here)) for ones in columns]
        return self.costs(problem, configurations) + effects

    def predict(self, timings: Timings, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return log2 of what configurations would take at a problem, all off by the same.

        Args:
            timings: of all that was timed.
            problem: where.
            configurations: any.
        """
        if not timings.problems:
            return self.estimate(problem, configurations)
        self._learn(timings)
        expected = self.estimate(problem, configurations)
        here = np.log2(list(problem.sizes.values()))
        there = np.log2([list(one.sizes.values()) for one in timings.problems])
        kind = kind_of(problem)
        other = [kind_of(one) != kind for one in timings.problems]
        distances = ((there - here) ** 2).sum(axis=1) + ANOTHER_KIND**2 * np.asarray(other)
        rows, columns, residuals = self._residuals
        order = np.lexsort((distances[rows], columns))
        rank = np.arange(len(order)) - np.searchsorted(columns[order], columns[order])
        near = order[rank < NEIGHBOURS]
        weights, width = 1.0 / (distances[rows[near]] + REACH**2), len(timings.configurations)
        sums = np.bincount(columns[near], weights * residuals[near], width)
        # As if there were one more at a distance of an octave, with what the values say.
        corrections = sums / (np.bincount(columns[near], weights, width) + 1.0)
        numbers = {one: number for number, one in enumerate(timings.configurations)}
        own = [numbers.get(one, width) for one in configurations]
        result: Floats = expected + np.append(corrections, 0.0)[own]
        return result

    def _sizes(self, problem: Problem) -> Floats:
        logs = np.log2([problem.sizes[name] for name in self._kernel.sizes])
        return np.concatenate([[1.0], (logs - MIDDLE) / SPAN])

    def _columns_of(self, configuration: Configuration) -> list[int]:
        if configuration not in self._values:
            variant, columns = configuration.variant, self._columns
            keys: list[tuple[object, ...]] = [(variant,)]
            keys += [(variant, name, value) for name, value in configuration.values.items()]
            self._values[configuration] = [columns.setdefault(key, len(columns)) for key in keys]
        return self._values[configuration]

    def _learn(self, timings: Timings) -> None:
        """Estimate what values are worth, if much was timed since the last time, and what is left of each time."""
        if timings is self._timings:
            return
        self._timings = timings
        timed = np.argwhere(np.isfinite(timings.slowdowns))
        if len(timed) > (1 + GROWTH) * self._learnt:
            self._learnt = len(timed)
            self._fit_costs(timings)
            costs = np.full(timings.slowdowns.shape, np.nan)
            for row, problem in enumerate(timings.problems):
                there = np.flatnonzero(np.isfinite(timings.slowdowns[row]))
                costs[row, there] = self.costs(problem, [timings.configurations[at] for at in there])
            self._effects = self._ridge(timings, timed, timings.slowdowns - costs)
        left = np.zeros(timings.slowdowns.shape)
        for row, problem in enumerate(timings.problems):
            there = np.flatnonzero(np.isfinite(timings.slowdowns[row]))
            estimate = self.estimate(problem, [timings.configurations[column] for column in there])
            off = timings.slowdowns[row, there] - estimate
            weights = _weights(timings.slowdowns[row, there])
            left[row, there] = off - np.average(off, weights=weights)
        self._residuals = (timed[:, 0], timed[:, 1], left[timed[:, 0], timed[:, 1]])

    def _fit_costs(self, timings: Timings) -> None:
        """Fit the factors of each variant's summands."""
        times: dict[str, list[tuple[Floats, float, float]]] = {}
        for row, problem in enumerate(timings.problems):
            there = np.flatnonzero(np.isfinite(timings.slowdowns[row]))
            ones = [timings.configurations[at] for at in there]
            for at, one, summands in zip(there, ones, self._summands_of(problem, ones), strict=True):
                slow = float(timings.slowdowns[row, at])
                times.setdefault(one.variant, []).append((summands, timings.best_ns[row] * 2**slow, slow))
        for variant, rows in times.items():
            summands, ns, slowdowns = (np.asarray(column) for column in zip(*rows, strict=True))
            self._factors[variant] = fit_factors(summands, ns, slowdowns)

    def _ridge(self, timings: Timings, timed: np.typing.NDArray[np.int64], targets: Floats) -> Floats:
        """Return the effects of values: by least squares, each problem about its own level."""
        columns = [self._columns_of(one) for one in timings.configurations]
        width = 1 + len(self._kernel.sizes)
        matrix = np.zeros((len(timed), len(self._columns) * width))
        sizes = [self._sizes(problem) for problem in timings.problems]
        for number, (row, column) in enumerate(timed):
            for at in columns[column]:
                matrix[number, at * width : (at + 1) * width] = sizes[row]
        slow = timings.slowdowns[timed[:, 0], timed[:, 1]]
        wanted, weights = targets[timed[:, 0], timed[:, 1]], _weights(slow)
        for row in range(len(timings.problems)):
            own = timed[:, 0] == row
            share = weights[own] / weights[own].sum()
            matrix[own] -= share @ matrix[own]
            wanted[own] -= share @ wanted[own]
        weighted = matrix * weights[:, None]
        square = weighted.T @ matrix + SHRINKAGE * np.eye(matrix.shape[1])
        return np.asarray(np.linalg.solve(square, weighted.T @ wanted).reshape(-1, width), np.float64)


def _weights(slowdowns: Floats) -> Floats:
    return 1.0 / (1.0 + (slowdowns / OF_SLOW) ** 2)


def between(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Return a problem for each of some of one computation: each size is its own, or that of one of the nearest others.

    So sizes keep what they are: a multiple of 64 where the problems have such.
    """
    if len(problems) < 2:
        return []
    logs = np.log2([list(problem.sizes.values()) for problem in problems])
    others: dict[str, Problem] = {}
    for number, problem in enumerate(problems):
        draw = random.Random(f"{seed} {problem.key}")
        order = np.argsort(((logs - logs[number]) ** 2).sum(axis=1), kind="stable")[1 : 1 + NEAR]
        sizes = {
            name: problems[draw.choice(list(order))].sizes[name] if draw.random() < 0.5 else size
            for name, size in problem.sizes.items()
        }
        other = replace(problem, sizes=sizes)
        others[other.key] = other
    for problem in problems:
        others.pop(problem.key, None)
    return list(others.values())


def spread(problems: Sequence[Problem]) -> list[int]:
    """Return the numbers of problems in an order in which each is the farthest from those before.

    Problems that differ in dtypes or options alternate.
    """
    if not problems:
        return []
    logs = np.log2([list(problem.sizes.values()) for problem in problems])
    waiting: dict[str, list[int]] = {}
    for number, problem in enumerate(problems):
        waiting.setdefault(kind_of(problem), []).append(number)
    orders = [_farthest(logs, numbers) for numbers in waiting.values()]
    longest = max(map(len, orders))
    return [order[at] for at in range(longest) for order in orders if at < len(order)]


def _farthest(logs: Floats, numbers: Sequence[int]) -> list[int]:
    left = list(numbers)
    middle = np.median(logs[left], axis=0)
    order = [min(left, key=lambda number: float(((logs[number] - middle) ** 2).sum()))]
    nearest = dict.fromkeys(left, np.inf)
    while len(order) < len(left):
        for number in left:
            nearest[number] = min(nearest[number], float(((logs[number] - logs[order[-1]]) ** 2).sum()))
        taken = set(order)
        order.append(max((n for n in left if n not in taken), key=lambda number: nearest[number]))
    return order
