"""Portfolios in the database: what ``tune portfolio`` timed and kept, for bundles and ``tuner.load``.

All of it are rows of ``benchmarks``: an interleaved comparison has a row :data:`TIMED` for each configuration, a
finished portfolio a row :data:`MEMBER` for each configuration that it keeps. The decision is fitted anew from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from math import log2
from statistics import median

import numpy as np

from tuner.core.errors import TunerError
from tuner.core.groups import grouped
from tuner.core.model import Configuration, Gpu, Problem
from tuner.database.database import Database
from tuner.database.records import Benchmark, Filters, StoredWinner
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.winners.current import Kernels, misfit
from tuner.winners.fitting import Cost, Fit, Floats, Ints, fit, fit_factors, summands_at


@dataclass(frozen=True)
class Timings:
    """Slowdowns of configurations at problems.

    Attributes:
        problems: one a row.
        configurations: one a column.
        slowdowns: log2 of the time over the best that was timed at the problem; NaN where it was not timed.
        best_ns: that time, of each problem.
    """

    problems: tuple[Problem, ...]
    configurations: tuple[Configuration, ...]
    slowdowns: Floats
    best_ns: Floats

    def of(self, problem: Problem) -> dict[Configuration, float]:
        """Return the slowdowns at one problem; empty where nothing was timed."""
        if problem not in self.problems:
            return {}
        row = self.slowdowns[self.problems.index(problem)]
        return {one: float(at) for one, at in zip(self.configurations, row, strict=True) if at == at}


def timings_of(rows: Iterable[Benchmark]) -> Timings:
    """Return slowdowns from the rows of interleaved comparisons, in the order in which they were recorded.

    The same ``bench`` and problem are one comparison. Times of different ones differ by drift: a later one is brought
    to the level of the earlier ones by the configurations that it shares with them, and its times replace theirs.
    Only a problem's last conditions count, and a comparison that shares nothing is left out.
    """
    timed = [row for row in rows if row.configuration is not None]
    races = grouped(timed, lambda row: (row.problem.key, row.bench))
    last = {row.problem.key: row for row in timed}
    times: dict[str, dict[Configuration, float]] = {}
    for (key, _), race in races.items():
        if race[0].conditions == last[key].conditions:
            _add(times.setdefault(key, {}), race)
    return table([last[key].problem for key in times], list(times.values()))


def table(problems: Sequence[Problem], times: Sequence[Mapping[Configuration, float]]) -> Timings:
    """Return slowdowns from the logarithms of times at each problem."""
    columns = {one: number for number, one in enumerate(dict.fromkeys(chain(*times)))}
    slowdowns = np.full((len(times), len(columns)), np.nan)
    bests = [min(row.values()) for row in times]
    for number, (row, best) in enumerate(zip(times, bests, strict=True)):
        for one, at in row.items():
            slowdowns[number, columns[one]] = at - best
    return Timings(tuple(problems), tuple(columns), slowdowns, np.exp2(bests))


def _add(times: dict[Configuration, float], race: Sequence[Benchmark]) -> None:
    new = {row.configuration: log2(row.time_ns) for row in race if row.configuration is not None}
    shared = [times[one] - new[one] for one in new if one in times]
    if times and not shared:
        return
    level = median(shared) if shared else 0.0
    times.update({one: at + level for one, at in new.items()})


TIMED = "portfolio"
MEMBER = "portfolio member"
"""Names of contestants."""
BOUND = "bound="
"""Begins the tag that says which slowdown was allowed."""
MOST_BOUND = 10.0
"""That `tune portfolio` allows."""
SHORTEST_NS, LONGEST_NS = 1e-3, 1e15
"""Of what can be meant: a time of eleven days."""


@dataclass(frozen=True)
class Portfolio:
    """Few configurations that run all sizes of a computation on one model of GPU.

    Attributes:
        kernel: whose they are.
        gpu: on which they were timed.
        bound: the slowdown that was allowed.
        members: each with a problem that it runs.
        costs: of the members.
        problems: at which they were timed, all of the same dtypes and options.
        fit: the decision.
    """

    kernel: KernelSpec
    gpu: Gpu
    bound: float
    members: tuple[tuple[Configuration, Problem], ...]
    costs: tuple[Cost, ...]
    problems: tuple[Problem, ...]
    fit: Fit


def portfolio_rows(database: Database, kernel: KernelSpec, filters: Filters | None = None) -> list[Benchmark]:
    """Return what was timed for portfolios of the kernel as its file is now, in the order in which it was recorded."""
    filters = filters or Filters(kernel=kernel.name)
    text = KernelIdentity(kernel).text
    rows = [
        row
        for row in database.benchmarks(filters).rows
        if row.kernel_digest == text and row.contestant in (TIMED, MEMBER) and _sound(row, kernel)
    ]
    return sorted(rows, key=lambda row: row.id or 0)


def _sound(row: Benchmark, kernel: KernelSpec) -> bool:
    """Return whether a row can be meant: others may have written it."""
    return (
        row.configuration is not None
        and not misfit(kernel, row.problem, row.configuration)
        and (row.contestant == MEMBER or SHORTEST_NS <= (row.time_ns or 0.0) <= LONGEST_NS)
    )


def stored_portfolios(
    database: Database, kernel: KernelSpec, filters: Filters | None = None
) -> list[Portfolio]:
    """Return the portfolios of the kernel as its file is now: the last of each computation and model of GPU.

    Args:
        database: has them.
        kernel: whose file decides which of them are current.
        filters: which GPUs, dtypes and conditions count.
    """
    recorded = portfolio_rows(database, kernel, filters)
    groups = grouped(recorded, lambda row: (row.problem.kind, row.gpu.name))
    portfolios = []
    for rows in groups.values():
        kept = [row for row in rows if row.contestant == MEMBER]
        kept = [row for row in kept if row.bench == kept[-1].bench]
        timings = timings_of(row for row in rows if row.contestant == TIMED)
        members = [
            (row.configuration, row.problem) for row in kept if row.configuration in timings.configurations
        ]
        if members:
            portfolios.append(make_portfolio(kernel, rows[-1].gpu, bound_of(kept[0]), members, timings))
    return portfolios


def portfolios_of(
    database: Database, filters: Filters, kernels: Kernels, winners: Sequence[StoredWinner]
) -> list[Portfolio]:
    """Return the portfolios that leave the database with some winners.

    Args:
        database, filters: as for the winners.
        kernels: those of the winners.
        winners: of one kernel; without any, the kernel is the named or the built-in one.
    """
    kernel = kernels.named
    if kernel is None and winners:
        with suppress(TunerError):  # its file is gone: it has winners, but no portfolio
            kernel = kernels.kernel(winners[0].run)
    elif kernel is None and filters.kernel in builtin_kernels():
        kernel = load_kernel(filters.kernel)
    if kernel is None:
        return []
    which = replace(filters, kernel=kernel.name, computations=(), exportable=None, replayed=None)
    return stored_portfolios(database, kernel, which)


def bound_of(row: Benchmark) -> float:
    """Return the slowdown that was allowed, from a member's tags."""
    said = next((tag.removeprefix(BOUND) for tag in row.tags if tag.startswith(BOUND)), "")
    with suppress(ValueError):
        if 1.0 <= (bound := float(said)) <= MOST_BOUND:
            return bound
    return 1.0


def make_portfolio(
    kernel: KernelSpec,
    gpu: Gpu,
    bound: float,
    members: Sequence[tuple[Configuration, Problem]],
    timings: Timings,
) -> Portfolio:
    """Fit the costs and the decision of some members to what was timed, of one computation."""
    problems, costs, inputs = measured(kernel, gpu, members, timings)
    return Portfolio(kernel, gpu, bound, tuple(members), tuple(costs), tuple(problems), fit(*inputs))


def measured(
    kernel: KernelSpec, gpu: Gpu, members: Sequence[tuple[Configuration, Problem]], timings: Timings
) -> tuple[list[Problem], list[Cost], tuple[list[list[int]], Floats, Ints]]:
    """Return the problems at which a member was timed, the members' costs, and what a decision is fitted to."""
    columns = [timings.configurations.index(one) for one, _ in members]
    slowdowns = timings.slowdowns[:, columns]
    there = [number for number, row in enumerate(slowdowns) if np.isfinite(row).any()]
    problems, slowdowns = [timings.problems[number] for number in there], slowdowns[there]
    own = _costs(kernel, gpu, members, problems, slowdowns, timings.best_ns[there])
    costs = [[one.at(problem) for one in own] for problem in problems]
    sizes = [[problem.sizes[name] for name in kernel.sizes] for problem in problems]
    return problems, own, (sizes, slowdowns, np.asarray(costs, dtype=np.int64))


def _costs(
    kernel: KernelSpec,
    gpu: Gpu,
    members: Sequence[tuple[Configuration, Problem]],
    problems: Sequence[Problem],
    slowdowns: Floats,
    best_ns: Floats,
) -> list[Cost]:
    """Return the costs of members: factors of their variant first, then their own."""
    times = best_ns[:, None] * np.exp2(slowdowns)
    costs: dict[int, Cost] = {}
    for variant in dict.fromkeys(one.variant for one, _ in members):
        columns = [number for number, (one, _) in enumerate(members) if one.variant == variant]
        own = [members[number][0] for number in columns]
        every = np.stack([summands_at(kernel, problem, gpu, own) for problem in problems])
        timed = np.isfinite(slowdowns[:, columns])
        shared = fit_factors(every[timed], times[:, columns][timed], slowdowns[:, columns][timed])
        for at, number in enumerate(columns):
            rows = timed[:, at]
            factors = fit_factors(every[rows, at], times[rows, number], slowdowns[rows, number], shared)
            one, problem = members[number]
            costs[number] = Cost(kernel, problem, gpu, one, factors)
    return [costs[number] for number in range(len(members))]
