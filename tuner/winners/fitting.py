"""What a portfolio decides by, fitted to what its members took at the measured problems: costs, and their corrections.

A variant of ``[costs]`` has one summand or several, such as the products of all waves, and the bytes of memory. A time
is taken for their sum with factors from 0, and a constant. Written out with whole factors it is a member's cost, which
launchers evaluate; the tuner works out summands of many configurations at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.expressions.folding import fold
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import value_array
from tuner.runtime.dispatch import APART, MAX_RESIDUAL, UNIT, cost_of, log2_units
from tuner.runtime.expressions import Expression, Tree
from tuner.runtime.launch_limits import DEVICE_LIMITS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NEIGHBOURS = (6, 3, 4, 8, 12, 1)
REACHES = (UNIT // 4, UNIT // 8, UNIT // 2, UNIT)
COST_WEIGHTS = (1024, 768, 512, 256, 0)
"""Values among which leaving one problem out chooses; of equal ones the first."""
TAIL = 0.1
"""The worst share of the problems, which counts as much as all do."""


@dataclass(frozen=True)
class Fit:
    """A decision, and how it does on each problem when that one is left out.

    Attributes:
        neighbours, reach, cost_weight: of :class:`tuner.runtime.entries.PortfolioEntry`.
        residuals: by problem and member; None where the member was not timed.
        chosen: the slowdown of what is chosen for each problem, by what was measured at the others, in octaves; NaN for
            a problem that cannot be left out.
        said: the slowdown that was expected of it.
        kept: that of the best member at each problem, as a factor.
    """

    neighbours: int
    reach: int
    cost_weight: int
    residuals: tuple[tuple[int | None, ...], ...]
    chosen: Floats
    said: Floats
    kept: Floats


def fit(
    sizes: Sequence[Sequence[int]],
    slowdowns: Floats,
    costs: Ints,
    neighbours: Sequence[int] = NEIGHBOURS,
    cost_weights: Sequence[int] = COST_WEIGHTS,
) -> Fit:
    """Return the decision that does best on problems that are left out.

    Args:
        sizes: of each problem.
        slowdowns: in octaves, by problem and member; NaN where a member cannot run it, or was not timed.
        costs: likewise, from 1.
        neighbours, cost_weights: among which it chooses.
    """
    units = np.rint(slowdowns * UNIT)
    timed = np.isfinite(units)
    excess = np.asarray(
        [_excess(row, here) for row, here in zip(costs, timed, strict=True)], dtype=np.float64
    )
    model = _LeftOut(sizes, units, timed, excess)
    choices = itertools.product(neighbours, REACHES, cost_weights)
    outcomes = [(model.outcome(*choice), choice) for choice in choices]
    (chosen, said), (count, reach, weight) = min(outcomes, key=lambda item: _loss(item[0][0]))
    residuals = tuple(
        tuple(
            int(np.clip(slow - above * weight // UNIT, -MAX_RESIDUAL, MAX_RESIDUAL)) if there else None
            for slow, above, there in zip(*row, strict=True)
        )
        for row in zip(np.nan_to_num(units).astype(np.int64), excess.astype(np.int64), timed, strict=True)
    )
    kept = np.exp2(np.nanmin(slowdowns, axis=1))
    return Fit(count, reach, weight, residuals, chosen / UNIT, said / UNIT, kept)


def _excess(costs: Any, timed: Any) -> list[int]:
    logs = [log2_units(int(cost)) for cost in costs]
    smallest = min((log for log, there in zip(logs, timed, strict=True) if there), default=0)
    return [max(0, log - smallest) for log in logs]


def _loss(chosen: Floats) -> float:
    """Return what is minimized: the mean, and that of the worst problems."""
    there = np.sort(chosen[np.isfinite(chosen)])
    if not len(there):
        return 0.0
    return float(there.mean() + there[-max(1, int(TAIL * len(there))) :].mean())


class _LeftOut:
    """What is chosen for each problem by what was measured at the others."""

    def __init__(
        self, sizes: Sequence[Sequence[int]], units: Floats, timed: npt.NDArray[np.bool_], excess: Floats
    ) -> None:
        self._units, self._timed, self._excess = units, timed, excess
        logs = np.asarray([[log2_units(size) for size in row] for row in sizes], dtype=np.float64)
        distances = ((logs[:, None, :] - logs[None, :, :]) ** 2).sum(axis=2)
        distances += APART * (timed[:, None, :] != timed[None, :, :]).sum(axis=2)
        np.fill_diagonal(distances, np.inf)
        most = max(NEIGHBOURS)
        self._near: list[tuple[Any, Any]] = []
        for member in range(units.shape[1]):
            own = np.where(timed[None, :, member], distances, np.inf)
            order = np.argsort(own, axis=1, kind="stable")[:, :most]
            self._near.append((order, np.take_along_axis(own, order, axis=1)))

    def outcome(self, neighbours: int, reach: int, weight: int) -> tuple[Floats, Floats]:
        """Return the slowdown of the chosen, and the one expected of it, in units."""
        excess = np.floor(self._excess * weight / UNIT)
        residuals = np.nan_to_num(self._units) - excess
        expected = np.full(self._units.shape, np.nan)
        for member, (order, squared) in enumerate(self._near):
            weights = 1.0 / (squared[:, :neighbours] + float(reach) ** 2)
            total = weights.sum(axis=1)
            mean = (weights * residuals[order[:, :neighbours], member]).sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                expected[:, member] = excess[:, member] + mean / total
        expected[~self._timed] = np.nan
        can = np.isfinite(expected).any(axis=1)
        best = np.argmin(np.where(np.isfinite(expected), expected, np.inf), axis=1)
        rows = np.arange(len(best))
        chosen = np.where(can, self._units[rows, best], np.nan)
        return chosen, np.where(can, np.maximum(expected[rows, best], 0), np.nan)


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


def summands_at(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configurations: Sequence[Configuration]
) -> Floats:
    """Return the summands of configurations of one variant, by configuration and summand, and a constant 1 behind."""
    names = dict(kernel.environment(problem, gpu))
    for name in configurations[0].values:
        names[name] = value_array([one.values[name] for one in configurations])
    expressions = kernel.costs.get(configurations[0].variant, ())
    columns = [np.broadcast_to(one.numbers(names), len(configurations)) for one in expressions]
    columns.append(np.ones(len(configurations)))
    return np.asarray(np.maximum(np.nan_to_num(np.stack(columns, axis=1), nan=1.0), 0.0))


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
        constants = {**problem.dtypes, **problem.options, "cc": gpu.cc, **configuration.values}
        try:
            self.folded = fold(_sum(kernel.costs.get(configuration.variant, ()), factors), constants)
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
