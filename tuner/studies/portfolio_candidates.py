"""Which configurations are timed at a problem: few, from where good ones usually come."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.default import default_configuration
from tuner.kernel.spec import KernelSpec
from tuner.kernel.validity import invalid_reason, pruning_reason
from tuner.search.initial import settle
from tuner.studies.portfolio_prediction import Predictor
from tuner.winners.timings import Timings

PREDICTED = 8
"""Configurations of other problems that are expected to be the fastest here."""
CHANGES = 12
"""Configurations that were timed nowhere: a promising one, changed."""
PROMISING = 4
DRAWS = 150
LOOKED_AT = 8
"""Problems at which a change is looked at: an estimate takes 30 us, and a check half a millisecond."""


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
        winners: configurations that won anywhere, on this model of GPU first.
        seed: of the changes that are drawn.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu, winners: Sequence[Configuration], seed: int) -> None:
        self._kernel, self._gpu, self._winners, self._seed = kernel, gpu, winners, seed
        self._spaces: dict[str, ValidConfigurations] = {}
        self._defaults: dict[str, Configuration | None] = {}
        self.predictor = Predictor(kernel, gpu)

    def valid(self, problem: Problem) -> ValidConfigurations:
        """Return what can run a problem."""
        if problem.key not in self._spaces:
            self._spaces[problem.key] = ValidConfigurations(self._kernel, problem, self._gpu)
        return self._spaces[problem.key]

    def default(self, problem: Problem) -> Configuration | None:
        """Return the kernel's default configuration of a problem."""
        if problem.key not in self._defaults:
            self._defaults[problem.key] = default_configuration(self._kernel, problem, self._gpu)
        return self._defaults[problem.key]

    def first(self, problem: Problem, timings: Timings) -> list[Configuration]:
        """Return what to time at a problem at which nothing was.

        Args:
            problem: where.
            timings: of all that was timed.
        """
        space = self.valid(problem)
        default = self.default(problem)
        chosen = {} if default is None else {default: None}
        for settled in settle(self._kernel, problem, self._gpu, space):
            if settled.configuration is not None:
                chosen[settled.configuration] = None
        timed = set(timings.configurations)
        untimed = (one for one in self._winners if one not in timed and space.runs(one))
        chosen |= dict.fromkeys(_first(untimed, PREDICTED))
        ranked = self.expected(problem, timings, timings.configurations, PREDICTED + len(chosen))
        chosen |= dict.fromkeys(_first((one for one in ranked if one not in chosen), PREDICTED))
        promising = (ranked or list(chosen))[:PROMISING]
        return [*chosen, *self.changes(promising, [problem], {*chosen, *timed}, CHANGES)]

    def expected(
        self, problem: Problem, timings: Timings, configurations: Sequence[Configuration], count: int
    ) -> list[Configuration]:
        """Return those that are expected to be the fastest at a problem, of those that can run it."""
        order = np.argsort(self.predictor.predict(timings, problem, configurations), kind="stable")
        runs = self.valid(problem).runs
        return _first((configurations[number] for number in order if runs(configurations[number])), count)

    def changes(
        self,
        promising: Sequence[Configuration],
        problems: Sequence[Problem],
        seen: Iterable[Configuration],
        count: int,
    ) -> list[Configuration]:
        """Return valid configurations that differ from a promising one in one parameter or two.

        Many are drawn; those that are expected to be the fastest are taken, and as many at random.

        Args:
            promising: which are changed.
            problems: where they are to run, and to be fast.
            seen: what is not wanted.
            count: of the result, at most.
        """
        draw = random.Random(f"{self._seed} {[problem.key for problem in problems]} {promising[:1]}")
        taken, drawn = set(seen), list[Configuration]()
        for number in range(DRAWS if promising else 0):
            one = promising[number % len(promising)]
            parameters = self._kernel.variants[one.variant].parameters
            names = draw.sample(list(parameters), min(len(parameters), draw.choice((1, 1, 2))))
            changed = {name: draw.choice(parameters[name].values) for name in names}
            other = Configuration.of(one.variant, {**one.values, **changed})
            if other not in taken:
                taken.add(other)
                drawn.append(other)
        if not drawn:
            return []
        expected = sum(self.predictor.estimate(problem, drawn) for problem in problems[:LOOKED_AT])
        ranked = [drawn[number] for number in np.argsort(expected, kind="stable")]
        spaces = [self.valid(problem) for problem in problems[:LOOKED_AT]]
        valid = (one for one in ranked if all(space.contains(one) for space in spaces))
        best = _first(valid, (count + 1) // 2)
        others = (one for one in drawn if one not in best and all(space.contains(one) for space in spaces))
        return best + _first(others, count - len(best))


def _first(items: Iterable[Configuration], count: int) -> list[Configuration]:
    return [one for one, _ in zip(items, range(count), strict=False)]
