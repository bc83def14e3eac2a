"""What configurations would take where they were not timed: by their costs, and their times at the nearest problems."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.winners.portfolios import Cost
from tuner.winners.timings import Floats, Timings

NEIGHBOURS = 4
REACH = 0.25
"""Octaves within which problems are equally near."""
NEAR = 6
"""Problems from which those between take sizes."""


class Predictor:
    """Predicts times of one computation.

    Args:
        kernel, gpu: whose and where.
        problem: has the dtypes and options.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu, problem: Problem) -> None:
        self._kernel, self._gpu, self._problem = kernel, gpu, problem
        self._costs: dict[Configuration, Cost] = {}
        self._logs: dict[tuple[Configuration, str], float] = {}

    def cost(self, configuration: Configuration, problem: Problem) -> float:
        """Return log2 of a configuration's cost at a problem."""
        key = (configuration, problem.key)
        if key not in self._logs:
            if configuration not in self._costs:
                self._costs[configuration] = Cost(self._kernel, self._problem, self._gpu, configuration)
            self._logs[key] = float(np.log2(self._costs[configuration].at(problem)))
        return self._logs[key]

    def predict(self, timings: Timings, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return log2 of what configurations would take at a problem, all off by the same; NaN where nothing is known.

        Args:
            timings: at other problems.
            problem: where.
            configurations: of the timings.
        """
        if not timings.problems:
            return np.full(len(configurations), np.nan)
        names = list(self._kernel.sizes)
        here = np.log2([problem.sizes[name] for name in names])
        there = np.log2([[one.sizes[name] for name in names] for one in timings.problems])
        distances = ((there - here) ** 2).sum(axis=1)
        order = np.argsort(distances, kind="stable")
        bases: dict[int, float] = {}
        expected = np.full(len(configurations), np.nan)
        for number, configuration in enumerate(configurations):
            column = timings.configurations.index(configuration)
            near = [row for row in order if np.isfinite(timings.slowdowns[row, column])][:NEIGHBOURS]
            if not near:
                continue
            residuals = [self._residual(timings, row, column, bases) for row in near]
            weights = 1.0 / (distances[near] + REACH**2)
            expected[number] = self.cost(configuration, problem) + np.average(residuals, weights=weights)
        return expected

    def _residual(self, timings: Timings, row: int, column: int, bases: dict[int, float]) -> float:
        problem = timings.problems[row]
        if row not in bases:  # the cost of the best there
            best = timings.configurations[int(np.nanargmin(timings.slowdowns[row]))]
            bases[row] = self.cost(best, problem)
        cost = self.cost(timings.configurations[column], problem)
        return float(timings.slowdowns[row, column]) - cost + bases[row]


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
    kinds = [str([problem.dtypes, problem.options]) for problem in problems]
    waiting: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        waiting.setdefault(kind, []).append(number)
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
