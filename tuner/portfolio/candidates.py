"""Which configurations are timed at a problem: few, from where good ones usually come."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.portfolio.prediction import Predictor
from tuner.search.kernel_initial import settle
from tuner.space.default import default_configuration
from tuner.space.validity import invalid_reason, pruning_reason
from tuner.winners.portfolios import kind_of
from tuner.winners.timings import Timings

PREDICTED = 6
"""Configurations of other problems that are expected to be the fastest here."""
NEIGHBOURS = 8
"""Configurations that were not timed anywhere: one of the most promising, with one parameter changed."""
PROMISING = 4
DRAWS = 100


class ValidConfigurations:
    """What a search of a problem may try, decided one by one: the whole space of gemm takes a second to list.

    Args:
        kernel, problem, gpu: of the search.
    """

    def __init__(self, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
        self._of = (kernel, problem, gpu)
        self._validity: dict[Configuration, bool] = {}

    def contains(self, configuration: Configuration) -> bool:
        """Return whether a search may try a configuration."""
        return self.runs(configuration) and not pruning_reason(*self._of, configuration)

    def runs(self, configuration: Configuration) -> bool:
        """Return whether a configuration is valid."""
        if configuration not in self._validity:
            self._validity[configuration] = not invalid_reason(*self._of, configuration)
        return self._validity[configuration]


class CandidateChoice:
    """Chooses candidates, and remembers what can run where.

    Args:
        kernel, gpu: whose and where.
        winners: configurations that won anywhere, by computation (:func:`kind_of`).
        seed: of the neighbours that are drawn.
    """

    def __init__(
        self, kernel: KernelSpec, gpu: Gpu, winners: dict[str, list[Configuration]], seed: int
    ) -> None:
        self._kernel, self._gpu, self._winners, self._seed = kernel, gpu, winners, seed
        self._spaces: dict[str, ValidConfigurations] = {}
        self._predictors: dict[str, Predictor] = {}
        self._defaults: dict[str, Configuration | None] = {}

    def valid(self, problem: Problem) -> ValidConfigurations:
        """Return what can run a problem."""
        if problem.key not in self._spaces:
            self._spaces[problem.key] = ValidConfigurations(self._kernel, problem, self._gpu)
        return self._spaces[problem.key]

    def predictor(self, problem: Problem) -> Predictor:
        """Return what predicts times of a problem's computation."""
        kind = kind_of(problem)
        if kind not in self._predictors:
            self._predictors[kind] = Predictor(self._kernel, self._gpu, problem)
        return self._predictors[kind]

    def default(self, problem: Problem) -> Configuration | None:
        """Return the kernel's default configuration of a problem."""
        if problem.key not in self._defaults:
            self._defaults[problem.key] = default_configuration(self._kernel, problem, self._gpu)
        return self._defaults[problem.key]

    def at(self, problem: Problem, timings: Timings) -> list[Configuration]:
        """Return what to time at a problem.

        Args:
            problem: where.
            timings: of the same computation, at other problems.
        """
        space = self.valid(problem)
        default = self.default(problem)
        chosen = {} if default is None else {default: None}
        for settled in settle(self._kernel, problem, self._gpu, space):
            if settled.configuration is not None:
                chosen[settled.configuration] = None
        pool = [one for one in timings.configurations if space.runs(one)]
        expected = self.predictor(problem).predict(timings, problem, pool)
        ranked = [
            pool[number]
            for number in np.argsort(expected, kind="stable")
            if expected[number] == expected[number]
        ]
        untimed = (
            one for one in self._winners.get(kind_of(problem), ()) if one not in pool and space.runs(one)
        )
        chosen |= dict.fromkeys(_first(untimed, PREDICTED))
        chosen |= dict.fromkeys(_first((one for one in ranked if one not in chosen), PREDICTED))
        chosen |= dict.fromkeys(self._neighbours(problem, ranked or list(chosen), {*chosen, *pool}))
        return list(chosen)

    def _neighbours(
        self, problem: Problem, promising: Sequence[Configuration], seen: Iterable[Configuration]
    ) -> list[Configuration]:
        """Return valid configurations, timed nowhere, that differ from a promising one in one parameter."""
        draw = random.Random(f"{self._seed} {problem.key}")
        space, taken, drawn = self.valid(problem), set(seen), list[Configuration]()
        for _ in range(DRAWS if promising else 0):
            if len(drawn) == NEIGHBOURS:
                break
            one = promising[len(drawn) % min(PROMISING, len(promising))]
            variant = self._kernel.variants[one.variant]
            name = draw.choice(list(variant.parameters))
            value = draw.choice(variant.parameters[name].values)
            other = Configuration.of(one.variant, {**one.values, name: value})
            if other not in taken and space.contains(other):
                taken.add(other)
                drawn.append(other)
        return drawn


def _first(items: Iterable[Configuration], count: int) -> list[Configuration]:
    return [one for one, _ in zip(items, range(count), strict=False)]
