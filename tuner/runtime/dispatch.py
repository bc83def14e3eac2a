"""Which configuration runs a problem on a GPU: the winner of these sizes, the best of a portfolio, the nearest winner
that can run, or the default.

How near two problems are is the sum of ``|log2(a / b)|`` over their sizes: twice as many rows and half as many columns
are two steps apart.

A portfolio's member takes at other sizes what its cost says (an expression of the kernel's file, which knows of waves
and tiles), corrected by how far the cost was off at the nearest measured sizes, weighted by inverse squared distances
(Shepard, Proc. ACM National Conference, 1968). All of it is whole numbers, logarithms in parts of an octave, so that
``include/kernel_tune/dispatch.hpp`` ranks alike to the bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.errors import BundleError, CallError
from .entries import Manifest, PortfolioEntry, WinnerEntry
from .expressions import Expression, NoValueError
from .interpret import ConcretePlan, InvalidForProblemError, check_sizes, interpret
from .launch_limits import DEVICE_LIMITS


class Policy(StrEnum):
    """Which configurations may run a problem."""

    NEAREST_VALID = "nearest valid"
    """The winner of these sizes, the best of a portfolio, the nearest winner that can, else the default."""
    RAISE = "raise"
    """The same, but an error where only the default is left."""
    EXACT = "exact"
    """The winner of exactly these sizes on this model of GPU, else an error."""
    DEFAULT = "default"
    """The default, always."""


class Match(StrEnum):
    """How well a configuration fits a problem."""

    EXACT = "exact"
    """It won at these sizes on this model of GPU."""
    PORTFOLIO = "portfolio"
    """It is expected to be the best of a portfolio that was made on this model of GPU."""
    NEAREST = "nearest"
    """It won at other sizes on this model of GPU."""
    OTHER_GPU = "other GPU"
    """It won, or is of a portfolio that was made, on another model with the same compute capability."""
    DEFAULT = "default"
    """It was not tuned for anything like it."""


@dataclass(frozen=True)
class Dispatched:
    """The configuration that runs a problem, and why."""

    concrete: ConcretePlan
    match: Match
    tuned_at: Mapping[str, int] | None
    """The sizes at which it won; None for a default, and for a portfolio."""
    expected_slowdown: float | None
    """Its expected time over the best for this problem; None if nothing is known of it."""
    reason: str
    ranking: tuple[tuple[int, float | None], ...] = ()
    """Of a portfolio: the configurations that can run the problem with their expected slowdowns, the best first."""


def dispatch(
    manifest: Manifest,
    computation: int,
    sizes: Mapping[str, int],
    limits: Mapping[str, int],
    gpu: str,
    policy: str = Policy.NEAREST_VALID,
    *,
    apart: bool = False,
) -> Dispatched:
    """Return the configuration that runs a problem.

    Args:
        manifest: of the bundle.
        computation: an index of its computations.
        sizes: by name, all of the manifest's.
        limits: of the GPU, by the names of :data:`tuner.runtime.launch_limits.DEVICE_LIMITS`.
        gpu: the GPU's name.
        policy: one of :class:`Policy`.
        apart: whether rows of outputs lie apart.

    Raises:
        BundleError: nothing was compiled for this compute capability.
        CallError: the policy or a size does not exist, or no configuration can run the problem.
    """
    if policy not in list(Policy):
        raise CallError(f"there is no policy {policy!r}", f"choose from: {', '.join(Policy)}")
    check_sizes(manifest, sizes)
    _check_capability(manifest, computation, limits["cc"])
    reasons: dict[str, None] = {}

    def attempt(configuration: int) -> ConcretePlan | None:
        try:
            return interpret(manifest, configuration, sizes, limits, apart=apart)
        except InvalidForProblemError as error:
            reasons[str(error)] = None
            return None

    winners = [] if policy == Policy.DEFAULT else _winners(manifest, computation, sizes, limits["cc"], gpu)
    portfolio = policy in (Policy.NEAREST_VALID, Policy.RAISE)
    for winner in winners:
        match = _match(winner, sizes, gpu)
        if match != Match.EXACT:
            if policy == Policy.EXACT:
                break
            if portfolio and (chosen := _of_portfolio(manifest, computation, sizes, limits, gpu, attempt)):
                return chosen
            portfolio = False
        if concrete := attempt(winner.configuration):
            slowdown = 1.0 if match == Match.EXACT else None
            reason = _reason(winner, match, len(winners), reasons)
            return Dispatched(concrete, match, winner.sizes, slowdown, reason)
    if portfolio and (chosen := _of_portfolio(manifest, computation, sizes, limits, gpu, attempt)):
        return chosen
    if policy in (Policy.EXACT, Policy.RAISE):
        wanted = "exactly these sizes on this GPU" if policy == Policy.EXACT else "sizes like these"
        raise CallError(
            f"{manifest.kernel} has no winner for {wanted} ({_shown(sizes)} on {gpu}){_because(reasons)}",
            f'tune it there, or allow more with policy="{Policy.NEAREST_VALID}"',
        )
    for default in manifest.defaults:
        if (default.computation, default.cc) == (computation, limits["cc"]) and (
            concrete := attempt(default.configuration)
        ):
            why = (
                "it was asked for"
                if policy == Policy.DEFAULT
                else f"no winner can run this{_because(reasons)}"
            )
            return Dispatched(concrete, Match.DEFAULT, None, None, f"the default configuration: {why}")
    raise CallError(
        f"no configuration of {manifest.kernel} can run {_shown(sizes)} on {gpu}{_because(reasons)}",
        "tune it for sizes like these, or give others",
    )


def _of_portfolio(
    manifest: Manifest,
    computation: int,
    sizes: Mapping[str, int],
    limits: Mapping[str, int],
    gpu: str,
    attempt: Callable[[int], ConcretePlan | None],
) -> Dispatched | None:
    """Return the best member of a portfolio that can run a problem: of this model of GPU's first, then of others."""
    fitting = [
        portfolio
        for portfolio in manifest.portfolios
        if portfolio.computation == computation
        and manifest.configurations[portfolio.members[0].configuration].cc == limits["cc"]
    ]
    for portfolio in sorted(fitting, key=lambda one: one.gpu != gpu):
        plans = [attempt(member.configuration) for member in portfolio.members]
        names = {**sizes, **{name: limits[name] for name in DEVICE_LIMITS}}
        costs = [
            None if plan is None else cost_of(member.cost, names)
            for member, plan in zip(portfolio.members, plans, strict=True)
        ]
        ranked = rank(portfolio, sizes, costs)
        if not ranked or ranked[0].units is None:
            continue
        concrete = plans[ranked[0].member]
        assert concrete is not None
        on = "" if portfolio.gpu == gpu else f" on {portfolio.gpu}"
        return Dispatched(
            concrete,
            Match.PORTFOLIO if portfolio.gpu == gpu else Match.OTHER_GPU,
            None,
            ranked[0].slowdown,
            f"of {len(ranked)} configurations of a portfolio that can run this, measured at "
            f"{len(portfolio.points)} sizes{on}, the one expected to be fastest",
            tuple((portfolio.members[one.member].configuration, one.slowdown) for one in ranked),
        )
    return None


def _check_capability(manifest: Manifest, computation: int, cc: int) -> None:
    compiled = {item.cc for item in manifest.configurations if item.computation == computation}
    if cc not in compiled:
        has = ", ".join(str(item / 10) for item in sorted(compiled)) or "none"
        raise BundleError(
            f"{manifest.kernel} was not compiled for compute capability {cc / 10}, only for {has}",
            "write a bundle that has this GPU's winners",
        )


def _winners(
    manifest: Manifest, computation: int, sizes: Mapping[str, int], cc: int, gpu: str
) -> list[WinnerEntry]:
    """Return the winners in the order in which they are tried: this model of GPU first, then the nearest sizes."""
    ranked = [
        ((winner.gpu != gpu, winner.sizes != sizes, distance(manifest.sizes, sizes, winner.sizes)), winner)
        for winner in manifest.winners
        if winner.computation == computation and manifest.configurations[winner.configuration].cc == cc
    ]
    return [winner for _, winner in sorted(ranked, key=lambda item: item[0])]


def distance(names: Iterable[str], sizes: Mapping[str, int], others: Mapping[str, int]) -> float:
    """Return how many doublings are between two problems' sizes; 0 for equal ones."""
    return sum(abs(math.log2(float(sizes[name]) / float(others[name]))) for name in names)


def _match(winner: WinnerEntry, sizes: Mapping[str, int], gpu: str) -> Match:
    if winner.gpu != gpu:
        return Match.OTHER_GPU
    return Match.EXACT if winner.sizes == sizes else Match.NEAREST


def _reason(winner: WinnerEntry, match: Match, count: int, reasons: Mapping[str, None]) -> str:
    if match == Match.EXACT:
        return "it won at these sizes on this model of GPU"
    where = f"it won at {_shown(winner.sizes)}"
    if match == Match.OTHER_GPU:
        where += f" on {winner.gpu}; none of this model can run this"
    return f"{where}, the nearest of {count} that can{_because(reasons)}"


def _because(reasons: Mapping[str, None]) -> str:
    """Return why configurations were refused, the first three."""
    shown = list(reasons)[:3]
    more = f"; {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
    return f" ({'; '.join(shown)}{more})" if shown else ""


def _shown(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


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
    mantissa = (value << 31) >> octaves
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
