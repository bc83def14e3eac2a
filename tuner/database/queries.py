"""Questions over several tables: the earlier trials of a problem, the best known, lists by filters. Plain SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

from tuner.conditions import Conditions
from tuner.database import cells, rows
from tuner.database.cells import Damaged
from tuner.database.reader import Reader
from tuner.database.records import (
    SUSPECT,
    Benchmark,
    Filters,
    Selection,
    StoredTrial,
    StoredWinner,
    order_by,
)
from tuner.database.sql import SqlTable, read_only
from tuner.errors import DatabaseError
from tuner.model import Configuration, Problem, Run, Status, Trial

Record = TypeVar("Record")
_TRIALS = "SELECT t.* FROM trials t JOIN runs r ON r.id = t.run_id WHERE"
_NOT_SUSPECT = f"instr(t.tags, '\"{SUSPECT}\"') = 0"
_COMPARABLE = f"r.replayed = ? AND t.mode = ? AND t.regime = ? AND {_NOT_SUSPECT}"
BEST_KNOWN_TRIED = 10
"""Rows read for the fastest trial: enough to find an intact one in a file with single damaged rows."""


class Queries(Reader):
    """An open database that answers questions; :class:`tuner.database.database.Database` adds the writing."""

    def select(self, text: str, *values: Any) -> list[dict[str, Any]]:
        """Return the rows of one statement as dictionaries."""
        with self.explained():
            return [dict(row) for row in self.connection.execute(text, values)]

    def names(self, column: Literal["kernel", "variant"]) -> list[str]:
        """Return the kernels or the variants that there are trials of."""
        return [
            row["name"] for row in self.select(f"SELECT DISTINCT {column} AS name FROM trials ORDER BY 1")
        ]

    def pending_attempts(self, run_id: str) -> list[tuple[int, Configuration, int]]:
        """Return what was begun without a result: number, configuration, and how often it was begun."""
        attempts = self.select(
            "SELECT max(number) AS number, variant, configuration, count(*) AS times FROM attempts "
            "WHERE run_id = ? GROUP BY configuration_key ORDER BY number",
            run_id,
        )
        return [
            (row["number"], self._or_damaged(partial(cells.decode_configuration, row)), row["times"])
            for row in attempts
        ]

    def earlier_trials(self, run: Run) -> list[Trial]:
        """Return the trials of other runs of this kernel text, problem, GPU and conditions, best first, failures last.

        Those with a suspect time are left out.
        """
        stored = self.select(
            f"{_TRIALS} {_COMPARABLE} AND r.kernel_digest = ? AND r.problem_key = ? AND r.gpu_name = ? AND r.id != ? "
            "ORDER BY t.time_ns IS NULL, t.time_ns, t.id",
            *(*_comparable(run), run.kernel_digest, run.problem.key, run.gpu.name, run.id),
        )
        return [earlier.trial for earlier in self._trials_of(stored).rows]

    def related_trials(self, run: Run, limit: int) -> list[tuple[Run, list[Trial]]]:
        """Return the ranked trials of this computation and these conditions at other problems and on other GPUs.

        Those of this problem on this GPU are among them where the kernel's text was another. All runs of one problem,
        GPU and text are together; what is newest comes first, up to ``limit`` trials.
        """
        stored = self.select(
            f"{_TRIALS} {_COMPARABLE} AND r.kernel = ? AND r.computation = ? "
            "AND NOT (r.problem_key = ? AND r.gpu_name = ? AND r.kernel_digest = ?) "
            "AND t.time_ns IS NOT NULL ORDER BY t.id DESC LIMIT ?",
            *(*_comparable(run), run.problem.kernel, run.computation),
            *(run.problem.key, run.gpu.name, run.kernel_digest, limit),
        )
        related: dict[tuple[str, str, str], tuple[Run, list[Trial]]] = {}
        for other in self._trials_of(stored).rows:
            key = other.run.problem.key, other.run.gpu.name, other.run.kernel_digest
            related.setdefault(key, (other.run, []))[1].append(other.trial)
        return list(related.values())

    def best_known(
        self,
        problem: Problem,
        gpu_name: str,
        conditions: Conditions = Conditions(),  # noqa: B008 - frozen
        computation: str = "",
    ) -> tuple[Configuration, float] | None:
        """Return the fastest exportable winner measured so on this GPU, else its fastest verified trial.

        A trial whose time is suspect does not count. With ``computation`` only what computed that counts.
        """
        filters = Filters(
            problem_key=problem.key, computations=(computation,) if computation else (), replayed=False,
            mode=str(conditions.mode), regime=str(conditions.regime),
        )  # fmt: skip
        winners = self.winners(replace(filters, exportable=True)).rows
        times = [(w.winner.time_ns, w.winner.configuration) for w in winners if w.run.gpu.name == gpu_name]
        if times:
            time_ns, configuration = min(times, key=lambda pair: pair[0])
            return configuration, time_ns
        where, values = replace(filters, statuses=(str(Status.OK),)).where()
        fastest = self.select(
            f"{_TRIALS} {where} AND t.gpu_name = ? AND t.time_ns IS NOT NULL AND {_NOT_SUSPECT} "
            "ORDER BY t.time_ns, t.id LIMIT ?",
            *values,
            gpu_name,
            BEST_KNOWN_TRIED,
        )
        for stored in self._trials_of(fastest).rows:
            return stored.trial.configuration, stored.trial.time_ns or 0.0
        return None

    def query(
        self,
        filters: Filters = Filters(),  # noqa: B008 - frozen
        sort: str = "id",
        limit: int = 0,
    ) -> Selection[StoredTrial]:
        """Return the trials that fit, sorted by a key of ``records.SORTS``; a limit of 0 is none."""
        where, values = filters.where()
        statement = f"{_TRIALS} {where} ORDER BY {order_by(sort)} LIMIT ?"
        return self._trials_of(self.select(statement, *values, limit if limit > 0 else -1))

    def winners(self, filters: Filters = Filters()) -> Selection[StoredWinner]:  # noqa: B008
        """Return every intact winner that fits.

        They are in the order of problem, GPU and conditions; then measured first, exportable first, and by time.
        """
        where, values = filters.where()
        winners = self.select(
            f"SELECT t.* FROM winners t JOIN runs r ON r.id = t.run_id WHERE {where} "
            "ORDER BY t.kernel, t.problem_key, t.gpu_name, t.mode, t.regime, t.replayed, t.exportable DESC, "
            "t.time_ns, t.id",
            *values,
        )

        def decode(row: dict[str, Any]) -> StoredWinner:
            trial = rows.decode_trial(self.trial_row(row["trial_id"]), self.run(row["run_id"]))
            return rows.decode_winner(row, trial)

        return _selection(winners, decode)

    def best(
        self,
        filters: Filters = Filters(),  # noqa: B008
        current: Callable[[StoredWinner], bool] | None = None,
    ) -> Selection[StoredWinner]:
        """Return the best winner of each computation, problem, GPU and conditions.

        Args:
            filters: which count.
            current: tells whether a winner's kernel is still what it was: such a one goes before the others.
        """
        winners = self.winners(filters)
        groups: dict[tuple[str, str, str, Conditions], list[StoredWinner]] = {}
        for stored in winners.rows:
            run = stored.run
            key = run.computation or run.kernel_digest, run.problem.key, run.gpu.name, run.conditions
            groups.setdefault(key, []).append(stored)
        best = [next(filter(current, group), group[0]) if current else group[0] for group in groups.values()]
        return Selection(best, winners.damaged)

    def benchmarks(self, filters: Filters = Filters(), limit: int = 0) -> Selection[Benchmark]:  # noqa: B008
        """Return the intact contestants that fit, newest first, those of one time as they were recorded.

        ``run`` means the run of a contestant's winner. All are measured.

        Raises:
            ValueError: a filter by status or by what is exportable, which only trials and winners can be.
        """
        if filters.statuses or filters.exportable is not None:
            raise ValueError("a benchmark has no status and is not exportable")
        where, values = filters.where()
        benchmarks = self.select(
            "SELECT t.*, w.id AS winner_id FROM "
            "(SELECT *, winner_run AS run_id, 0 AS replayed FROM benchmarks) t "
            "JOIN benchmarks r ON r.id = t.id LEFT JOIN winners w ON w.run_id = t.winner_run "
            f"WHERE {where} ORDER BY t.created_at DESC, t.id LIMIT ?",
            *values,
            limit if limit > 0 else -1,
        )

        def decode(row: dict[str, Any]) -> Benchmark:
            own = {n: v for n, v in row.items() if n not in ("run_id", "replayed", "winner_id")}
            return rows.decode_benchmark(own, row["winner_id"])

        return _selection(benchmarks, decode)

    def sql(self, text: str) -> SqlTable:
        """Return the column names and the rows of one ``SELECT``, which can change nothing."""
        return read_only(self.path, text)

    def _trials_of(self, stored: list[dict[str, Any]]) -> Selection[StoredTrial]:
        return _selection(stored, lambda row: rows.decode_trial(row, self.run(row["run_id"])))


def _comparable(run: Run) -> tuple[Any, ...]:
    return int(run.replayed), str(run.conditions.mode), str(run.conditions.regime)


def _selection(
    stored: Iterable[dict[str, Any]], decode: Callable[[dict[str, Any]], Record]
) -> Selection[Record]:
    """Return the records of rows, and a line for each damaged one."""
    selection: Selection[Record] = Selection([], [])
    for row in stored:
        try:
            selection.rows.append(decode(row))
        except (Damaged, DatabaseError) as error:
            selection.damaged.append(str(error))
    return selection
