"""``tuner.open``: what a database holds, as plain records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, cast

from tuner.api.call import in_python, require
from tuner.api.kinds import path_of, require_kinds
from tuner.core import paths
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import UsageError, suggestion
from tuner.core.limits import MOST
from tuner.core.model import Status
from tuner.database.database import Database
from tuner.database.records import Benchmark, Filters
from tuner.report.tables import configuration_record, picked, trial_record, winner_record
from tuner.runtime.dtypes import dtype_named
from tuner.winners.current import BestWinner, best_winners, kernel_filters, named_kernel
from tuner.winners.wanted import measured_else_replayed, parse_since, refuse_unknown

Answer = TypeVar("Answer")
Record = dict[str, Any]


class Which(TypedDict, total=False):
    """Which rows count; all where nothing is said."""

    gpu: str
    """A part of the GPU's name."""
    dtype: str
    sizes: Mapping[str, int]
    variant: str
    mode: str
    regime: str
    run: str
    """The start of a run's id."""
    since: str
    """``2d``, ``3h``, or UTC in ISO 8601."""
    replayed: bool
    """Whether only results of recordings count, or only others."""


def open(path: str | Path = paths.DATABASE) -> Results:
    """Return what a database holds.

    Args:
        path: of the file that ``tuner.tune`` and ``tune`` write.

    Raises:
        UsageError: it is no path.
    """
    return Results(path_of("the path", path, "open('results/tuning.db')"))


@dataclass(frozen=True, repr=False)
class Results:
    """A database of results; each call reads it anew."""

    path: Path

    def best(self, kernel: str | Path = "", **which: Unpack[Which]) -> list[Record]:
        """Return the best configuration of each problem, GPU and conditions, as ``tune best --json`` has it.

        Of recordings they are only where nothing that fits was measured, or with ``replayed``.

        Args:
            kernel: a name, or the path of a kernel's file: what that computes; all kernels where it is empty.
            which: rows.

        Raises:
            UsageError: there is no such filter, or it names what there is nowhere.
            DatabaseError: the file cannot be read.
        """
        named, filters = named_kernel(str(kernel)), _filters(kernel, {"replayed": False, **which})

        def best(database: Database) -> Sequence[BestWinner]:
            if "replayed" in which:
                return best_winners(database, filters, named).rows
            return measured_else_replayed(lambda fit: best_winners(database, fit, named), filters)[0].rows

        return [
            {**winner_record(one.stored), "kernel_state": one.state.name.lower()}
            for one in self._fitting(filters, best)
        ]

    def query(
        self,
        kernel: str | Path = "",
        *,
        status: str = "",
        sort: str = "id",
        limit: int = 0,
        sql: str = "",
        **which: Unpack[Which],
    ) -> list[Record]:
        """Return trials, as ``tune trials --json`` has them; or the rows of an SQL statement.

        Args:
            kernel: as for :meth:`best`.
            status: of the trials, such as ``ok``.
            sort: ``id``, ``time``, ``registers`` and so on; a ``-`` before it reverses the order.
            limit: the most trials; 0 for all.
            sql: instead of all others: one SELECT, which has 10 s.
            which: rows.

        Raises:
            UsageError: there is no such filter or key, a filter names what there is nowhere, or the statement is none.
            DatabaseError: the file cannot be read.
        """
        require_kinds({"status": status, "sort": sort, "sql": sql})
        if not isinstance(limit, Integral) or not 0 <= limit <= MOST:
            raise UsageError(f"limit is {limit!r}", "give a whole number, such as limit=10")
        sort, filtered = sort or "id", any(value is not None for value in which.values())
        if sql and (kernel or status or limit or sort != "id" or filtered):
            raise UsageError(
                "sql and what else says which rows exclude each other", "write all of it into the SQL"
            )
        if sql:
            columns, rows = self._read(lambda database: database.sql(sql))
            return [dict(zip(columns, row, strict=True)) for row in rows]
        if status and status not in list(Status):
            raise UsageError(f"there is no status {status!r}", suggestion(status, list(Status)))
        filters = replace(_filters(kernel, which), statuses=(status,) if status else ())
        trials = self._fitting(filters, lambda database: list(database.each_trial([], filters, sort, limit)))
        return [trial_record(stored) for stored in trials]

    def compare(self, kernel: str | Path = "", **which: Unpack[Which]) -> list[Record]:
        """Return what ``tune bench`` has compared with the best: the default, libraries, other code.

        Args:
            kernel: as for :meth:`best`.
            which: rows.

        Raises:
            UsageError: there is no such filter, or it names what there is nowhere.
            DatabaseError: the file cannot be read.
        """
        filters = _filters(kernel, which)
        found = self._fitting(filters, lambda database: database.benchmarks(filters).rows)
        return [_compared(one) for one in found]

    def _fitting(self, filters: Filters, read: Callable[[Database], Sequence[Answer]]) -> Sequence[Answer]:
        """Return what fits; where nothing does, refuse filters that name what there is nowhere."""

        def known(database: Database) -> Sequence[Answer]:
            if not (found := read(database)):
                refuse_unknown(database, filters)
            return found

        return self._read(known)

    @in_python
    def _read(self, read: Callable[[Database], Answer]) -> Answer:
        with Database.open(self.path, write=False) as database:
            return read(database)

    def __repr__(self) -> str:
        return f"<results in {self.path}>"


@in_python
def _filters(kernel: str | Path, which: Which) -> Filters:
    require(which, Which.__annotations__, "results have no filter {!r}")
    # None says nothing.
    which = cast(Which, {name: value for name, value in which.items() if value is not None})
    require_kinds(which, lists=())
    if not isinstance(replayed := which.get("replayed"), bool | None):
        raise UsageError(f"replayed is {replayed!r}", "give True or False")
    for name, choices in {"mode": Mode, "regime": Regime}.items():
        given = which.get(name)
        require([str(given)] if given else [], list(choices), f"{name} is {{!r}}")
    dtype, since = dtype_named(which.get("dtype") or ""), parse_since(which.get("since") or "")
    return Filters(**{**kernel_filters(str(kernel)), **which, "dtype": dtype, "since": since})


def _compared(benchmark: Benchmark) -> Record:
    return {
        **benchmark.problem.to_json(),
        "gpu": benchmark.gpu.name,
        **picked(benchmark.conditions, "mode regime"),
        "contestant": benchmark.contestant,
        **(configuration_record(benchmark.configuration)),
        **picked(benchmark, "time_ns ci_low_ns ci_high_ns ratio ratio_low ratio_high verdict created_at"),
    }
