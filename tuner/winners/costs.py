"""Costs: how long configurations take by the summands of a kernel's file, with factors fitted to what was timed.

A variant of ``[costs]`` has one summand or several, such as the products of all waves, and the bytes of memory. A time
is taken for their sum with factors from 0, and a constant. Written out with whole factors it is a member's cost, which
launchers evaluate; the tuner works out summands of many configurations at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions.folding import fold
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import value_array
from tuner.runtime.dispatch import cost_of
from tuner.runtime.expressions import Expression, Tree
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.winners.timings import Floats

UNITS_A_NS = 1024
"""Costs are whole numbers, and times are from a microsecond: they are good to a thousandth."""
FACTOR_BITS = 10
OF_SLOW = 0.3
"""Octaves: a time so far from the best counts half in a fit."""
PRIOR = 0.05
"""Of the number of times, what the factors of a variant count among those of a configuration."""
SWEEPS = 300


def fit_factors(summands: Floats, times: Floats, slowdowns: Floats, prior: Floats | None = None) -> Floats:
    """Return factors from 0 with which the sum of summands is nearest to times, relatively.

    A non-negative least-squares fit with a ridge, by coordinate descent.

    Args:
        summands: by time and summand.
        times: in any unit.
        slowdowns: in octaves, of these times: fast ones count more.
        prior: factors to which those without enough times are drawn.
    """
    weights = np.sqrt(1.0 / (1.0 + (slowdowns / OF_SLOW) ** 2))
    matrix = summands / times[:, None]
    scale = np.maximum(matrix.max(axis=0), 1e-300)
    matrix = matrix / scale * weights[:, None]
    start = np.zeros(summands.shape[1]) if prior is None else prior * scale
    strength = PRIOR * len(times) * (1e-2 if prior is None else 1.0)
    square = matrix.T @ matrix + strength * np.eye(len(start))
    wanted = matrix.T @ weights + strength * start
    factors = start.copy()
    for _ in range(SWEEPS):  # of coordinate descent: few factors, one answer
        for at in range(len(factors)):
            left = wanted[at] - square[at] @ factors + square[at, at] * factors[at]
            factors[at] = max(0.0, left / square[at, at])
    unscaled: Floats = factors / scale
    return unscaled


class Summands:
    """The summands of a kernel's variants on a GPU, each with a constant 1 behind those of the file.

    Args:
        kernel, gpu: whose and where.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu) -> None:
        self._kernel, self._gpu = kernel, gpu

    def at(self, problem: Problem, configurations: Sequence[Configuration]) -> Floats:
        """Return the summands of configurations of one variant at a problem, by configuration and summand."""
        variant = configurations[0].variant
        expressions = self._kernel.costs.get(variant, ())
        names = dict(self._kernel.environment(problem, self._gpu))
        for name in configurations[0].values:
            names[name] = value_array([one.values[name] for one in configurations])
        columns = [np.ones(len(configurations))]
        columns[:0] = [np.broadcast_to(one.numbers(names), len(configurations)) for one in expressions]
        return np.maximum(np.nan_to_num(np.stack(columns, axis=1), nan=1.0), 0.0)


class Cost:
    """How long a configuration takes at any sizes, as the launchers work it out.

    Args:
        kernel, gpu: whose and where.
        problem: has the dtypes and options.
        configuration: which.
        factors: of the summands, in nanoseconds, the constant's last.
    """

    def __init__(
        self, kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, factors: Floats
    ) -> None:
        self._limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
        self.expression = _sum(kernel.costs.get(configuration.variant, ()), factors)
        constants = {**problem.dtypes, **problem.options, "cc": gpu.cc, **configuration.values}
        try:
            self.folded = fold(self.expression, constants)
        except KernelError:
            self.folded = Expression(1)

    def at(self, problem: Problem) -> int:
        """Return it for a problem, as a whole number from 1."""
        return cost_of(self.folded, {**problem.sizes, **self._limits})


def _sum(summands: Sequence[Expression], factors: Floats) -> Expression:
    """Return the sum of summands with whole factors over powers of two."""
    constant = max(1, round(float(factors[-1]) * UNITS_A_NS))
    tree: Tree = constant
    text = str(constant)
    for summand, factor in zip(summands, factors, strict=False):
        whole, halvings = _as_whole(float(factor) * UNITS_A_NS)
        if whole:
            product, written = ("*", summand.tree, whole), f"({summand.text}) * {whole}"
            if halvings:
                product, written = ("//", product, 1 << halvings), f"{written} // {1 << halvings}"
            tree, text = ("+", tree, product), f"{text} + {written}"
    return Expression(tree, text, "a sum of costs")


def _as_whole(factor: float) -> tuple[int, int]:
    """Return a whole number and how often it is halved to give a factor."""
    halvings = 0
    while factor < 1 << (FACTOR_BITS - 1) and halvings < 50:
        factor, halvings = factor * 2, halvings + 1
    return round(factor), halvings
