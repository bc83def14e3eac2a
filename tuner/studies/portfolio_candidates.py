"""Which configurations are timed at a problem: few, from where good ones usually come, by what they should take there.

The kernel's file gives costs, whose factors are fitted to what was timed. A configuration that was timed is corrected
by how far its times at the nearest problems are from its cost there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice

import numpy as np

from tuner.core.groups import grouped
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.default import default_configuration
from tuner.kernel.initial import settle
from tuner.kernel.plan import invalid_reason, pruning_reason
from tuner.kernel.spec import KernelSpec
from tuner.winners.fitting import Floats, fit_factors, summands_at
from tuner.winners.portfolios import Timings

EXPECTED = 8
"""Configurations of other problems that are expected to be the fastest here."""
CHANGES = 12
"""Configurations that were timed nowhere: a promising one, changed."""
PROMISING = 4
DRAWS = 150
LOOKED_AT = 8
"""Problems at which a change is looked at: a check takes half a millisecond."""

NEIGHBOURS = 4
REACH = 0.25
"""Octaves within which problems are equally near."""
ANOTHER_KIND = 1.0
"""Octaves that a problem with other dtypes or options is farther away."""
OF_SLOW = 0.2
"""Octaves: a time so far from the best counts half in the level of a problem."""
GROWTH = 0.2
"""Of what was timed, after which factors are fitted anew."""

NEAR = 6
"""Problems from which those between take sizes."""


class Costs:
    """What configurations of a kernel should take on a GPU.

    Args:
        kernel, gpu: whose and where.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu) -> None:
        self._kernel, self._gpu = kernel, gpu
        self._rows: dict[tuple[Configuration, str], Floats] = {}
        """Summands of costs, by configuration and problem."""
        self._factors: dict[str, Floats] = {}
        """Of the summands, by variant."""
        self._learnt = 0
        self._timings: Timings | None = None
        self._errors: Floats = np.zeros((0, 0))
        """Of what was timed: how far each time is from its cost, in octaves; NaN where there is no time."""

    def at(self, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return log2 of configurations' costs at a problem."""
        sums = [
            float(row @ self._factors.get(one.variant, np.ones_like(row)))
            for one, row in zip(configurations, self._summands_of(problem, configurations), strict=True)
        ]
        return np.log2(np.maximum(sums, 1e-3))

    def expected(self, timings: Timings, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return log2 of what configurations should take at a problem, all off by the same.

        Args:
            timings: of all that was timed.
            problem: where.
            configurations: any.
        """
        if not timings.problems:
            return self.at(problem, configurations)
        self._learn(timings)
        here = np.log2(list(problem.sizes.values()))
        there = np.log2([list(one.sizes.values()) for one in timings.problems])
        other = np.asarray([one.kind != problem.kind for one in timings.problems])
        distances = ((there - here) ** 2).sum(axis=1) + ANOTHER_KIND**2 * other
        order = np.argsort(distances, kind="stable")
        errors = self._errors[order]
        timed = np.isfinite(errors)
        weights = (timed & (timed.cumsum(axis=0) <= NEIGHBOURS)) / (distances[order, None] + REACH**2)
        # As if there were one more at a distance of an octave, with what the costs say.
        corrections = (weights * np.nan_to_num(errors)).sum(axis=0) / (weights.sum(axis=0) + 1.0)
        columns = {one: column for column, one in enumerate(timings.configurations)}
        own = [columns.get(one, len(columns)) for one in configurations]
        result: Floats = self.at(problem, configurations) + np.append(corrections, 0.0)[own]
        return result

    def _summands_of(self, problem: Problem, configurations: Sequence[Configuration]) -> list[Floats]:
        key = problem.key
        new = [one for one in configurations if (one, key) not in self._rows]
        for ones in grouped(new, lambda one: one.variant).values():
            rows = summands_at(self._kernel, problem, self._gpu, ones)
            self._rows |= {(one, key): row for one, row in zip(ones, rows, strict=True)}
        return [self._rows[one, key] for one in configurations]

    def _learn(self, timings: Timings) -> None:
        """Fit the factors, if much was timed since the last time, and find what they leave of each time."""
        if timings is self._timings:
            return
        self._timings = timings
        timed = int(np.isfinite(timings.slowdowns).sum())
        if timed > (1 + GROWTH) * self._learnt:
            self._learnt = timed
            self._fit(timings)
        self._errors = np.full(timings.slowdowns.shape, np.nan)
        for row, problem in enumerate(timings.problems):
            there, ones, slowdowns = _timed(timings, row)
            errors = slowdowns - self.at(problem, ones)
            weights = 1 / (1 + (slowdowns / OF_SLOW) ** 2)
            self._errors[row, there] = errors - np.average(errors, weights=weights)

    def _fit(self, timings: Timings) -> None:
        times: dict[str, list[tuple[Floats, float, float]]] = {}
        for row, problem in enumerate(timings.problems):
            _, ones, slowdowns = _timed(timings, row)
            for one, summands, slow in zip(ones, self._summands_of(problem, ones), slowdowns, strict=True):
                times.setdefault(one.variant, []).append((summands, timings.best_ns[row] * 2**slow, slow))
        for variant, rows in times.items():
            summands, ns, slowdowns = (np.asarray(column) for column in zip(*rows, strict=True))
            self._factors[variant] = fit_factors(summands, ns, slowdowns)


def _timed(timings: Timings, row: int) -> tuple[list[int], list[Configuration], Floats]:
    """Return the columns, the configurations and the slowdowns of what was timed at a problem."""
    there = [int(at) for at in np.flatnonzero(np.isfinite(timings.slowdowns[row]))]
    return there, [timings.configurations[at] for at in there], timings.slowdowns[row, there]


class CandidateChoice:
    """Chooses candidates, and remembers what can run where.

    Args:
        kernel, gpu: whose and where.
        winners: configurations that won anywhere, on this model of GPU first.
        seed: of the changes that are drawn.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu, winners: Sequence[Configuration], seed: int) -> None:
        self.kernel, self.gpu, self._winners, self._seed = kernel, gpu, winners, seed
        self.costs = Costs(kernel, gpu)
        self.runs = cache(lambda problem, one: not invalid_reason(kernel, problem, gpu, one))
        """Whether a problem can run a configuration; decided one by one, as a whole space takes a second to list."""
        self.default = cache(lambda problem: default_configuration(kernel, problem, gpu))
        """The kernel's default configuration of a problem."""

    def contains(self, problem: Problem, configuration: Configuration) -> bool:
        """Return whether a search of a problem may try a configuration."""
        return self.runs(problem, configuration) and not pruning_reason(
            self.kernel, problem, self.gpu, configuration
        )

    def first(self, problem: Problem, timings: Timings) -> list[Configuration]:
        """Return what to time at a problem at which nothing was.

        Args:
            problem: where.
            timings: of all that was timed.
        """
        default = self.default(problem)
        chosen = {} if default is None else {default: None}
        for settled in settle(self.kernel, problem, self.gpu, partial(self.contains, problem)):
            if settled.configuration is not None:
                chosen[settled.configuration] = None
        timed = set(timings.configurations)
        untimed = (one for one in self._winners if one not in timed and self.runs(problem, one))
        chosen |= dict.fromkeys(islice(untimed, EXPECTED))
        ranked = self.expected(problem, timings, EXPECTED + len(chosen))
        chosen |= dict.fromkeys(islice((one for one in ranked if one not in chosen), EXPECTED))
        promising = (ranked or list(chosen))[:PROMISING]
        return [*chosen, *self.changes(promising, [problem], {*chosen, *timed})]

    def expected(self, problem: Problem, timings: Timings, count: int) -> list[Configuration]:
        """Return what should be the fastest at a problem, of what was timed anywhere and can run it."""
        ones = timings.configurations
        order = np.argsort(self.costs.expected(timings, problem, ones), kind="stable")
        return list(islice((ones[number] for number in order if self.runs(problem, ones[number])), count))

    def changes(
        self, promising: Sequence[Configuration], problems: Sequence[Problem], seen: Iterable[Configuration]
    ) -> list[Configuration]:
        """Return configurations that are valid at some problems and differ from a promising one in a parameter or two.

        Many are drawn; those with the least costs are taken, and as many at random.
        """
        draw = random.Random(f"{self._seed} {[problem.key for problem in problems]} {promising[:1]}")
        problems = problems[:LOOKED_AT]
        taken, drawn = set(seen), list[Configuration]()
        for number in range(DRAWS if promising else 0):
            one = promising[number % len(promising)]
            parameters = self.kernel.variants[one.variant].parameters
            names = draw.sample(list(parameters), min(len(parameters), draw.choice((1, 1, 2))))
            changed = {name: draw.choice(parameters[name].values) for name in names}
            other = Configuration.of(one.variant, {**one.values, **changed})
            if other not in taken:
                taken.add(other)
                drawn.append(other)
        if not drawn:
            return []
        costs = sum(self.costs.at(problem, drawn) for problem in problems)
        ranked = [drawn[number] for number in np.argsort(costs, kind="stable")]

        def valid(one: Configuration) -> bool:
            return all(self.contains(problem, one) for problem in problems)

        best = list(islice(filter(valid, ranked), (CHANGES + 1) // 2))
        others = (one for one in drawn if one not in best and valid(one))
        return [*best, *islice(others, CHANGES - len(best))]


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
    waiting = grouped(range(len(problems)), lambda number: problems[number].kind)
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
