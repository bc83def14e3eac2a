"""Questions over several tables: the earlier trials of a problem, the best known, lists by filters. Plain SQL."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Iterator
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
_WINNERS_ORDER = (
    "t.kernel, t.problem_key, t.gpu_name, t.mode, t.regime, t.replayed, t.exportable DESC, t.time_ns, t.id"
)
MAX_DAMAGED = 1000
"""Lines about damaged rows that are kept: more say nothing more, and a hostile file has millions."""
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
        source = "runs" if column == "kernel" else "trials INDEXED BY trials_by_run"
        return [
            row["name"] for row in self.select(f"SELECT DISTINCT {column} AS name FROM {source} ORDER BY 1")
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
        damaged: list[str] = []
        return Selection(list(self.each_trial(damaged, filters, sort, limit)), damaged)

    def each_trial(
        self,
        damaged: list[str],
        filters: Filters = Filters(),  # noqa: B008 - frozen
        sort: str = "id",
        limit: int = 0,
    ) -> Iterator[StoredTrial]:
        """Return the trials of :meth:`query` one after the other, so that a million need no more memory than one.

        Damaged rows do not count towards the limit. A line for each, up to ``MAX_DAMAGED``, is appended to ``damaged``.
        """
        left = limit if limit > 0 else -1
        for number in self._trial_numbers(filters, sort, limit):
            if not left:
                return
            for row in self.select("SELECT * FROM trials WHERE id = ?", number):  # none if deleted meanwhile
                try:
                    stored = rows.decode_trial(row, self.run(row["run_id"]))
                except (Damaged, DatabaseError) as error:
                    report(damaged, error)
                    continue
                left -= 1
                yield stored

    def _trial_numbers(self, filters: Filters, sort: str, limit: int) -> Iterator[int]:
        """Return the row numbers of the trials that fit, from the index alone; further ones if a limit was not enough.

        What tells runs apart is looked at once a run: another order of joining reads it with each trial.
        """
        where, values = filters.where()
        tables = "runs r CROSS JOIN trials t INDEXED BY trials_by_run ON t.run_id = r.id"
        if filters == Filters() and sort.removeprefix("-") == "id":
            tables = "trials t"
        statement = f"SELECT t.id FROM {tables} WHERE {where} ORDER BY {order_by(sort)} LIMIT ? OFFSET ?"
        done, size = 0, limit if limit > 0 else -1
        while True:
            with self.explained():
                found = self.connection.execute(statement, (*values, size, done))
                numbers = array.array("q", (row[0] for row in found))
            yield from numbers
            if size < 0 or len(numbers) < size:
                return
            done, size = done + size, 4 * size

    def winners(self, filters: Filters = Filters()) -> Selection[StoredWinner]:  # noqa: B008
        """Return every intact winner that fits.

        They are in the order of problem, GPU and conditions; then measured first, exportable first, and by time.
        """
        where, values = filters.where()
        winners = self.select(
            f"SELECT t.* FROM winners t JOIN runs r ON r.id = t.run_id WHERE {where} "
            f"ORDER BY {_WINNERS_ORDER}",
            *values,
        )

        return _selection(winners, self._winner)

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
        where, values = filters.where()
        found = self.select(
            "SELECT t.id, t.problem_key, t.gpu_name, t.mode, t.regime, "
            "CASE r.computation WHEN '' THEN r.kernel_digest ELSE r.computation END AS computed "
            f"FROM runs r CROSS JOIN winners t ON t.run_id = r.id WHERE {where} ORDER BY {_WINNERS_ORDER}",
            *values,
        )
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, *key in (tuple(row.values()) for row in found):
            groups.setdefault(tuple(key), []).append(number)
        damaged: list[str] = []
        best = (self._best_of(numbers, current, damaged) for numbers in groups.values())
        return Selection([stored for stored in best if stored], damaged)

    def _best_of(
        self, numbers: list[int], current: Callable[[StoredWinner], bool] | None, damaged: list[str]
    ) -> StoredWinner | None:
        """Return the first winner, read only as far as needed: of a problem there may be thousands."""
        first = None
        for number in numbers:
            for row in self.select("SELECT * FROM winners WHERE id = ?", number):
                try:
                    stored = self._winner(row)
                except (Damaged, DatabaseError) as error:
                    report(damaged, error)
                    continue
                if current is None or current(stored):
                    return stored
                first = first or stored
        return first

    def _winner(self, row: dict[str, Any]) -> StoredWinner:
        trial = rows.decode_trial(self.trial_row(row["trial_id"]), self.run(row["run_id"]))
        return rows.decode_winner(row, trial)

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
            "(SELECT *, winner_run AS run_id FROM benchmarks) t "
            "JOIN (SELECT *, 0 AS replayed FROM benchmarks) r ON r.id = t.id "
            "LEFT JOIN winners w ON w.run_id = t.winner_run "
            f"WHERE {where} ORDER BY t.created_at DESC, t.id LIMIT ?",
            *values,
            limit if limit > 0 else -1,
        )

        def decode(row: dict[str, Any]) -> Benchmark:
            own = {n: v for n, v in row.items() if n not in ("run_id", "winner_id")}
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
            report(selection.damaged, error)
    return selection


def report(damaged: list[str], error: Exception) -> None:
    """Add a line about a damaged row."""
    if len(damaged) < MAX_DAMAGED:
        damaged.append(str(error))
