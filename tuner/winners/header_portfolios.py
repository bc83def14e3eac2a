"""Portfolios in a header: members with when they are valid and what they cost, and measured points with residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuner.core.model import Problem
from tuner.expressions.cpp import Untranslatable, integer
from tuner.runtime.portfolio import log2_units
from tuner.winners import cpp
from tuner.winners.header_conditions import Launchable, launchable
from tuner.winners.header_structs import Structs
from tuner.winners.portfolios import Portfolio

INVALID = -2000000
"""Stands for no residual: below all that there may be."""


class HeaderPortfolios:
    """The portfolios of one kernel, for the template.

    Args:
        portfolios: what there is. One whose conditions or costs C++ cannot say in whole numbers is left out.
        structs: the kernel's types.
        case: returns the number of a case of validity.
    """

    def __init__(
        self, portfolios: list[Portfolio], structs: Structs, case: Callable[[Launchable], int]
    ) -> None:
        self._structs, self._case = structs, case
        self._costs: dict[str, int] = {}
        self.invalid = INVALID
        self.left_out: list[str] = []
        self.rows: list[dict[str, Any]] = []
        for portfolio in portfolios:
            try:
                self.rows.append(self._row(portfolio))
            except Untranslatable:
                self.left_out.append(f"{portfolio.kernel.name} on {portfolio.gpu.name}")

    @property
    def costs(self) -> list[str]:
        """What members cost, each once, as C++ over the sizes of ``p``."""
        return list(self._costs)

    @property
    def most_points(self) -> int:
        """Of any portfolio."""
        return max(len(row["points"]) for row in self.rows)

    @property
    def most_members(self) -> int:
        """Of any portfolio."""
        return max(len(row["members"]) for row in self.rows)

    def _row(self, portfolio: Portfolio) -> dict[str, Any]:
        fit, first = portfolio.fit, portfolio.problems[0]
        return {
            "cc": cpp.integer(portfolio.gpu.cc, "the compute capability"),
            "device": cpp.string(portfolio.gpu.name),
            "problem": self._structs.problem(first, sizes={}),
            "members": [self._member(portfolio, number) for number in range(len(portfolio.members))],
            "points": [
                {
                    "sizes": self._numbers(problem, logs=False),
                    "logs": self._numbers(problem, logs=True),
                    "residuals": ", ".join(str(INVALID if one is None else one) for one in residuals),
                }
                for problem, residuals in zip(portfolio.problems, fit.residuals, strict=True)
            ],
            "neighbours": fit.neighbours,
            "reach": fit.reach,
            "cost_weight": fit.cost_weight,
        }

    def _numbers(self, problem: Problem, *, logs: bool) -> str:
        sizes = [problem.sizes.get(name, 1) for name in self._structs.sizes]
        return ", ".join(str(log2_units(size) if logs else size) for size in sizes)

    def _member(self, portfolio: Portfolio, number: int) -> dict[str, Any]:
        kernel, gpu = portfolio.kernel, portfolio.gpu
        configuration, problem = portfolio.members[number]
        when = launchable(kernel, problem, gpu, configuration)
        if when is None:
            raise Untranslatable(str(configuration))
        names = {**kernel.environment(problem, gpu), **configuration.values}
        constants = {name: value for name, value in names.items() if name not in problem.sizes}
        cost = integer(portfolio.costs[number].expression, constants, lambda name: f"p.{name}")
        return {
            "configuration": self._structs.configuration(configuration),
            "case": self._case(when),
            "cost": self._costs.setdefault(cost, len(self._costs)),
        }
