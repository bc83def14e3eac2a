"""What each problem of a file is worth to the program that it was recorded in, and what time it gets for that."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from tuner.core.errors import ExpressionError, UsageError
from tuner.core.model import Problem
from tuner.kernel.spec import KernelSpec

TIMES_US = {
    "time_us": 1.0,
    "time_ns": 1e-3,
    "time_ms": 1e3,
    "time_s": 1e6,
    "time_\u00b5s": 1.0,
    "time_\u03bcs": 1.0,
}
"""Columns of a file of problems that say what one call takes now, in microseconds: with u, the micro sign or a mu."""
COLUMNS = ("calls", *TIMES_US)
"""The same, and the one that says how often a problem is called."""
MOST = 1e18
"""Of either: products and sums of them stay numbers."""


@dataclass(frozen=True)
class ProblemWorth:
    """What a problem is worth."""

    calls: float
    share: float
    """Of all problems of the file."""
    measure: str
    """Of what: operations or time."""

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % of the {self.measure}, {self.calls:g} calls"


def amounts(row: Mapping[str, str], names: Iterable[str]) -> dict[str, float]:
    """Return calls and time of a row, as far as it has them and they are not names of the kernel.

    Raises:
        UsageError: one is no number above 0.
    """
    given = {}
    for column in COLUMNS:
        if column not in row or column in names:
            continue
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not 0 < value <= MOST:
            raise UsageError(
                f"{column}={row[column]}", f"give a number above 0, at most {MOST:g}, or leave the column out"
            )
        if column in TIMES_US and "time_us" in given:
            raise UsageError(f"{column} beside another time", "give one of them")
        given["time_us" if column in TIMES_US else column] = value * TIMES_US.get(column, 1.0)
    return given


def worths(
    kernel: KernelSpec, rows: Sequence[tuple[Problem, Mapping[str, float]]]
) -> dict[str, ProblemWorth]:
    """Return what problems are worth, by their keys: the time of their calls where all rows have one, else operations.

    Args:
        kernel: of all of them.
        rows: each problem with its :func:`amounts`. Without any there is nothing to go by.
    """
    if not any(of for _, of in rows):
        return {}
    timed = all("time_us" in of for _, of in rows)
    total: dict[str, float] = {}
    calls: dict[str, float] = {}
    for problem, of in rows:
        count = of.get("calls", 1.0)
        each = of["time_us"] if timed else _operations(kernel, problem)
        total[problem.key] = total.get(problem.key, 0.0) + count * each
        calls[problem.key] = calls.get(problem.key, 0.0) + count
    whole = sum(total.values()) or 1.0
    measure = "time" if timed else "operations"
    return {key: ProblemWorth(calls[key], total[key] / whole, measure) for key in total}


def _operations(kernel: KernelSpec, problem: Problem) -> float:
    try:
        return kernel.work.flops.number({**problem.sizes, **problem.dtypes, **problem.options})
    except ExpressionError:  # it depends on the GPU
        return 1.0


class Budget:
    """A time for several problems, shared by what they are worth; what one leaves over goes to the others.

    Args:
        total_s: the time; None for no limit.
        shares: of each problem, by its number.
    """

    def __init__(self, total_s: float | None, shares: Sequence[float]) -> None:
        self._until = math.inf if total_s is None else monotonic() + total_s
        self._shares = shares

    def of(self, number: int, ended: Collection[int], devices: int = 1) -> float | None:
        """Return the seconds of a problem that begins now: 0 or less where nothing is left; None without a limit.

        Args:
            number: the problem's.
            ended: numbers of those that need no time any more.
            devices: how many problems are tuned at a time.
        """
        if math.isinf(self._until):
            return None
        left_s = self._until - monotonic()
        rest = sum(share for other, share in enumerate(self._shares) if other not in ended)
        return min(left_s, left_s * max(1, devices) * self._shares[number] / (rest or 1.0))
