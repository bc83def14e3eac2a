"""Questions over several tables: the best known, lists by filters. Plain SQL."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration, Run, Status
from tuner.database import cells, rows
from tuner.database.cells import Damaged
from tuner.database.earlier import NOT_SUSPECT, EarlierRuns
from tuner.database.records import (
    COMPUTED,
    Benchmark,
    Filters,
    LeftBehind,
    Mark,
    Selection,
    StoredTrial,
    StoredWinner,
    order_by,
)
from tuner.database.sql import SqlTable, read_only

Record = TypeVar("Record")
_GROUP = "t.kernel, t.problem_key, t.gpu_name, t.mode, t.regime, t.replayed, t.exportable"
_WARM_NS = (
    "CASE WHEN json_valid(t.race) THEN CASE WHEN json_extract(t.race, '$.warm.counts') "
    "THEN json_extract(t.race, '$.warm.time_ns') END END"
)
"""Time in the mode warm of a winner that was chosen by both modes, the best known before among the finalists."""
MAX_DAMAGED = 1000
"""Lines about damaged rows that are kept: more say nothing more, and a hostile file has millions."""
KNOWN_WINNERS = 4
"""Of a problem: each is timed and raced again by every later run."""
BEST_KNOWN_TRIED = 10
"""Rows read for the fastest trial: enough to find an intact one in a file with single damaged rows."""


class Queries(EarlierRuns):
    """An open database that answers questions; :class:`tuner.database.database.Database` adds the writing."""

    def names(self, column: Literal["kernel", "gpu_name", "variant"]) -> list[str]:
        """Return the kernels, the GPUs or the variants that there are trials of."""
        source = "trials INDEXED BY trials_by_run" if column == "variant" else "runs"
        return [
            row["name"] for row in self.select(f"SELECT DISTINCT {column} AS name FROM {source} ORDER BY 1")
        ]

    def runs_that_fit(self, filters: Filters) -> list[str]:
        """Return the ids of runs, newest first; the filters are by what a run as a whole has."""
        where, values = filters.where()
        ids = self.select(f"SELECT r.id FROM runs r WHERE {where} ORDER BY r.started_at DESC", *values)
        return [row["id"] for row in ids]

    def trials_of_run(self, run_id: str, limit: int) -> Selection[StoredTrial]:
        """Return a run's intact trials in the order of their numbers, so many at most."""
        by_number = "SELECT * FROM trials WHERE run_id = ? ORDER BY number LIMIT ?"
        return _selection(self.select(by_number, run_id, limit), self.decode_trial)

    def left_behind(self, run_id: str) -> LeftBehind:
        """Return what an interrupted run has left."""
        return LeftBehind(self.trials(run_id), self.pending_attempts(run_id), self.run_state(run_id)["stats"])

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

    def best_known(self, run: Run, mark: Mark | None = None) -> tuple[Configuration, float] | None:
        """Return the best of a run's problem under its conditions on this model of GPU, and its time in nanoseconds.

        It is the best exportable winner, else the fastest verified trial. A winner that was chosen by the mode warm as
        well goes before the others, unless the run's mode alone counts.

        A trial whose time is suspect does not count, nor one that is not among the :data:`FASTEST_READ
        <tuner.database.earlier.FASTEST_READ>` fastest of this problem and GPU, replayed ones included. If the run names
        its computation only what computed that counts, with a mark only what was there before it.
        """
        mark = mark or self.mark()
        where, values = replace(_same_as(run), exportable=True).where()
        winners = self.select(
            f"SELECT t.* FROM winners t JOIN runs r ON r.id = t.run_id WHERE {where} AND t.id <= ? "
            f"ORDER BY {_best_first(one_mode=run.options.one_mode)} LIMIT ?",
            *(*values, mark.winners, BEST_KNOWN_TRIED),
        )
        for stored in _selection(winners, self._winner).rows:
            return stored.winner.configuration, stored.winner.time_ns
        where, values = replace(_same_as(run), statuses=(str(Status.OK),)).where()
        fastest = self._fastest(run, mark, f"{where} AND {NOT_SUSPECT}", values, BEST_KNOWN_TRIED)
        found = (row for each in fastest for row in self.rows_where("trials", "id = ?", each["id"]))
        for trial in _selection(found, self.decode_trial).rows:
            return trial.trial.configuration, trial.trial.time_ns or 0.0
        return None

    def known_winners(self, run: Run, mark: Mark | None = None) -> list[tuple[Configuration, int]]:
        """Return the configurations that most often won a run's problem on this model of GPU, with the number of runs.

        They were measured under the run's conditions and are exportable; at most :data:`KNOWN_WINNERS` come back. With
        a mark only what was there before it counts.
        """
        mark = mark or self.mark()
        where, values = replace(_same_as(run), exportable=True, computations=(run.computation,)).where()
        winners = self.select(
            "SELECT t.variant, t.configuration, count(*) AS runs FROM winners t JOIN runs r ON r.id = t.run_id "
            f"WHERE {where} AND t.id <= ? AND r.id != ? "
            "GROUP BY t.variant, t.configuration ORDER BY runs DESC, min(t.id) LIMIT ?",
            *(*values, mark.winners, run.id, KNOWN_WINNERS),
        )
        chosen = []
        for row in winners:
            with suppress(*cells.UNREADABLE):
                chosen.append((cells.decode_configuration(row), int(row["runs"])))
        return chosen

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
        by_number = "SELECT * FROM trials WHERE id = ?"  # none if deleted meanwhile
        numbers = self._trial_numbers(filters, sort, limit)
        found = (row for number in numbers for row in self.select(by_number, number))
        return islice(_intact(found, self.decode_trial, damaged), limit if limit > 0 else None)

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
                result = self.connection.execute(statement, (*values, size, done))
                numbers = array.array("q", (row[0] for row in result))
            yield from numbers
            if size < 0 or len(numbers) < size:
                return
            done, size = done + size, 4 * size

    def nested_names(self, filters: Filters) -> dict[str, list[str]]:
        """Return the names of the sizes, dtypes, options and parameters that the trials that fit have.

        One configuration of each run and variant is read: all of them have the same parameters.
        """
        where, values = filters.where()
        names: dict[str, dict[str, None]] = {"sizes": {}, "dtypes": {}, "options": {}, "parameters": {}}
        for row in self.select(
            "SELECT r.id AS run, min(t.id) AS first, max(t.id) AS last "
            f"FROM runs r CROSS JOIN trials t INDEXED BY trials_by_run ON t.run_id = r.id WHERE {where} "
            "GROUP BY r.id, t.variant ORDER BY first",
            *values,
        ):
            with suppress(Damaged, DatabaseError):
                problem = self.run(row["run"]).problem
                for what in ("sizes", "dtypes", "options"):
                    names[what].update(dict.fromkeys(getattr(problem, what)))
            for number in {row["first"], row["last"]}:
                for trial in self.select("SELECT variant, configuration FROM trials WHERE id = ?", number):
                    with suppress(*cells.UNREADABLE):
                        names["parameters"].update(dict.fromkeys(cells.decode_configuration(trial).values))
        return {what: list(each) for what, each in names.items()}

    def winners(self, filters: Filters = Filters()) -> Selection[StoredWinner]:  # noqa: B008
        """Return every intact winner that fits.

        They are in the order of problem, GPU and conditions; then measured first, exportable first, then those chosen
        by the mode warm as well (unless the filters name a mode: then that alone counts), and by time.
        """
        where, values = filters.where()
        winners = self.select(
            f"SELECT t.* FROM winners t JOIN runs r ON r.id = t.run_id WHERE {where} "
            f"ORDER BY {_winners_order(filters)}",
            *values,
        )

        return _selection(winners, self._winner)

    def best(
        self,
        filters: Filters = Filters(),  # noqa: B008
        current: Callable[[StoredWinner], bool | None] | None = None,
    ) -> Selection[StoredWinner]:
        """Return the best winner of each computation, problem, GPU and conditions.

        Args:
            filters: which count.
            current: tells whether a winner's kernel is still what it was: such a one goes before the others. None where
                that is so for no winner of this kernel file, text and computation: of these one is read a group.
        """
        where, values = filters.where()
        keys = self.select(
            "SELECT t.id, t.problem_key, t.gpu_name, t.mode, t.regime, "
            f"{COMPUTED} AS computed, "
            "r.kernel || char(10) || r.kernel_file || char(10) || r.kernel_digest AS text "
            f"FROM runs r CROSS JOIN winners t ON t.run_id = r.id WHERE {where} ORDER BY {_winners_order(filters)}",
            *values,
        )
        groups: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        for number, *key, text in (tuple(row.values()) for row in keys):
            groups.setdefault(tuple(key), []).append((number, text))
        damaged: list[str] = []
        best = (self._best_of(numbers, current, damaged) for numbers in groups.values())
        return Selection([stored for stored in best if stored], damaged)

    def _best_of(
        self,
        winners: list[tuple[int, str]],
        current: Callable[[StoredWinner], bool | None] | None,
        damaged: list[str],
    ) -> StoredWinner | None:
        """Return the first winner, read only as far as needed: of a problem there may be thousands."""
        first = None
        outdated = set()
        for number, text in winners:
            if text in outdated:
                continue
            found = self.select("SELECT * FROM winners WHERE id = ?", number)
            for stored in _intact(found, self._winner, damaged):
                state = current is None or current(stored)
                if state:
                    return stored
                if state is None:
                    outdated.add(text)
                first = first or stored
        return first

    def _winner(self, row: dict[str, Any]) -> StoredWinner:
        return rows.decode_winner(row, self.decode_trial(self.trial_row(row["trial_id"])))

    def benchmarks(self, filters: Filters = Filters()) -> Selection[Benchmark]:  # noqa: B008
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
            f"WHERE {where} ORDER BY t.created_at DESC, t.id",
            *values,
        )

        def decode(row: dict[str, Any]) -> Benchmark:
            own = {n: v for n, v in row.items() if n not in ("run_id", "winner_id")}
            return rows.decode_benchmark(own, row["winner_id"])

        return _selection(benchmarks, decode)

    def sql(self, text: str) -> SqlTable:
        """Return the column names and the rows of one ``SELECT``, which can change nothing."""
        return read_only(self.path, text)


def _selection(
    stored: Iterable[dict[str, Any]], decode: Callable[[dict[str, Any]], Record]
) -> Selection[Record]:
    """Return the records of rows, and a line for each damaged one."""
    damaged: list[str] = []
    return Selection(list(_intact(stored, decode, damaged)), damaged)


def _intact(
    stored: Iterable[dict[str, Any]], decode: Callable[[dict[str, Any]], Record], damaged: list[str]
) -> Iterator[Record]:
    """Yield the records of rows; a line for each damaged one, up to :data:`MAX_DAMAGED`, is appended to a list."""
    for row in stored:
        try:
            record = decode(row)
        except (Damaged, DatabaseError) as error:
            if len(damaged) < MAX_DAMAGED:
                damaged.append(str(error))
        else:
            yield record


def _same_as(run: Run) -> Filters:
    """Return the filters for what was measured of a run's problem in its way, by what it computes."""
    computations = (run.computation,) if run.computation else ()
    return Filters(replayed=False, computations=computations).like(run)


def _winners_order(filters: Filters) -> str:
    """Return the order of winners: problems, GPUs and conditions, the best of each first."""
    group = f"{_GROUP} DESC"
    return f"{group}, {_best_first(one_mode=bool(filters.mode))}"


def _best_first(*, one_mode: bool) -> str:
    """Return the order of winners of the same problem, GPU and conditions.

    Those chosen by two modes come first, by the geometric mean of both times.
    """
    if one_mode:
        return "t.time_ns, t.id"
    return f"{_WARM_NS} IS NULL, t.time_ns * coalesce({_WARM_NS}, 1), t.time_ns, t.id"
