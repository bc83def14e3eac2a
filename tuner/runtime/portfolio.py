"""Which members of a portfolio run a problem best, by what they took at the sizes that were measured.

A member's slowdown at other sizes is what its cost says (an expression of the kernel's file, which knows of waves and
tiles), corrected by how far the cost was off at the nearest measured sizes, weighted by inverse squared distances
(Shepard, Proc. ACM National Conference, 1968). All of it is whole numbers, logarithms in parts of an octave, so that
``include/kernel_tune/portfolio.hpp`` and exported headers rank alike to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .entries import PortfolioEntry
from .expressions import Expression, NoValueError

UNIT = 1024
"""Parts of an octave: a factor of 1.0007."""
MAX_RESIDUAL = 1 << 20
APART = (UNIT // 2) ** 2
"""Added to a squared distance for each member that can run only one of both problems: half an octave. Sizes that tiles
divide and odd ones beside them are far apart by it."""
MAX_COST = 1 << 62
NEAREST = 1 << 40
"""Divided by the squared distance it is a point's weight."""


@dataclass(frozen=True)
class Ranked:
    """A member that can run a problem."""

    member: int
    units: int | None
    """Its expected slowdown, as a logarithm in :data:`UNIT` parts of an octave; None if nothing is known of it."""

    @property
    def slowdown(self) -> float | None:
        """Its expected time over the best for this problem; at smallest 1."""
        return None if self.units is None else power_of_two(max(0, self.units))


@functools.lru_cache(maxsize=1 << 14)
def log2_units(value: int) -> int:
    """Return the logarithm of a number from 1 to 2**62, in parts of an octave, rounded down."""
    octaves = value.bit_length() - 1
    mantissa = value << (31 - octaves) if octaves <= 31 else value >> (octaves - 31)
    units = octaves
    for _ in range(10):
        mantissa = mantissa * mantissa >> 31
        units *= 2
        if mantissa >> 32:
            mantissa >>= 1
            units += 1
    return units


def power_of_two(units: int) -> float:
    """Return 2 ** (units / 1024), by products of ten constants: the same in all languages."""
    result = float(1 << min(units // UNIT, 60))
    for bit, root in enumerate(ROOTS):
        if units >> bit & 1:
            result *= root
    return result


ROOTS = (
    1.0006771306930664, 1.0013547198921082, 1.0027112750502025, 1.0054299011128027, 1.0108892860517005,
    1.0218971486541166, 1.0442737824274138, 1.0905077326652577, 1.189207115002721, 1.4142135623730951,
)  # fmt: skip
"""2 ** (1 / 1024), 2 ** (2 / 1024), and so on to 2 ** (1 / 2)."""


def costs_of(portfolio: PortfolioEntry, names: Mapping[str, int], valid: Sequence[bool]) -> list[int | None]:
    """Return what each member's cost is for a problem; None for one that cannot run it.

    Args:
        portfolio: has the members.
        names: sizes and limits of the GPU.
        valid: whether each member can run it.
    """
    return [
        cost_of(member.cost, names) if can else None
        for member, can in zip(portfolio.members, valid, strict=True)
    ]


def cost_of(expression: Expression, names: Mapping[str, int]) -> int:
    """Return a cost as a whole number from 1; 1 where it has no value."""
    try:
        value = expression.evaluate(names)
    except NoValueError:
        return 1
    return int(min(max(value, 1), MAX_COST))


def rank(portfolio: PortfolioEntry, sizes: Mapping[str, int], costs: Sequence[int | None]) -> list[Ranked]:
    """Return the members that can run a problem, the best first; of equal ones the first in the portfolio.

    Args:
        portfolio: has members and measured sizes.
        sizes: of the problem, all of the manifest's.
        costs: of each member, None for one that cannot run it.
    """
    wanted = {name: log2_units(size) for name, size in sizes.items()}
    nearest = sorted(
        (_squared_distance(point.sizes, point.residuals, sizes, wanted, costs), index)
        for index, point in enumerate(portfolio.points)
    )
    ranked = []
    excess = excesses(costs, portfolio.cost_weight)
    for member, above in enumerate(excess):
        if above is None:
            continue
        correction = _correction(portfolio, nearest, member)
        ranked.append(Ranked(member, None if correction is None else above + correction))
    return sorted(ranked, key=lambda one: (one.units is None, one.units or 0, one.member))


def excesses(costs: Sequence[int | None], weight: int) -> list[int | None]:
    """Return how far each cost is above the smallest, as a logarithm in units, times ``weight`` / 1024."""
    logs = [None if cost is None else log2_units(cost) for cost in costs]
    smallest = min((log for log in logs if log is not None), default=0)
    return [None if log is None else (log - smallest) * weight // UNIT for log in logs]


def _squared_distance(
    sizes: Mapping[str, int],
    residuals: Sequence[int | None],
    wanted: Mapping[str, int],
    logs: Mapping[str, int],
    costs: Sequence[int | None],
) -> int:
    """Return how far a measured point is, in squared units; -1 for the same sizes."""
    if all(sizes[name] == size for name, size in wanted.items()):
        return -1
    apart = sum((cost is None) != (residual is None) for cost, residual in zip(costs, residuals, strict=True))
    return APART * apart + sum((log2_units(sizes[name]) - log) ** 2 for name, log in logs.items())


def _correction(portfolio: PortfolioEntry, nearest: Sequence[tuple[int, int]], member: int) -> int | None:
    """Return a member's residual: that of the same sizes, else the mean of the nearest, the nearer the heavier."""
    total = weights = count = 0
    for distance, index in nearest:
        residual = portfolio.points[index].residuals[member]
        if residual is None:
            continue
        if distance < 0:
            return residual
        weight = NEAREST // (distance + portfolio.reach**2)
        total += weight * (residual + MAX_RESIDUAL)
        weights += weight
        count += 1
        if count == portfolio.neighbours:
            break
    return None if count == 0 else total // weights - MAX_RESIDUAL
