"""A portfolio's decision, fitted to what its members took at the measured problems."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.runtime.dispatch import APART, MAX_RESIDUAL, UNIT, log2_units
from tuner.winners.timings import Floats

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
