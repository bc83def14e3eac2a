"""Reading the database: trials, winners and what is known, each row checked against its digest."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from tuner import paths
from tuner.conditions import Conditions
from tuner.database import cells, maintenance, rows, schema
from tuner.database.cells import Damaged
from tuner.database.records import SUSPECT, Benchmark, Filters, Found, StoredTrial, StoredWinner, order_by
from tuner.errors import DatabaseError
from tuner.model import Configuration, Problem, Run, Status, Trial, digest

if TYPE_CHECKING:
    from sqlite_utils import Database as SqliteUtils

DEFAULT_PATH = paths.DATABASE
T = TypeVar("T")
_NOT_SUSPECT = f"instr(t.tags, '\"{SUSPECT}\"') = 0"


class Reader:
    """An open database; a context manager. :class:`tuner.database.database.Database` adds the writing."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, write: bool) -> None:
        import sqlite_utils  # 0.3 s that --help need not wait for

        self.path = path
        self.connection = connection
        self.write = write
        self.tables: SqliteUtils = sqlite_utils.Database(connection, execute_plugins=False)
        self._runs: dict[str, Run] = {}

    @classmethod
    def open(cls, path: Path | str = DEFAULT_PATH, write: bool = True, create: bool = True) -> Self:
        """Open a file; with ``write`` and ``create`` it is created where it is missing.

        Raises:
            DatabaseError: missing, foreign, newer, read-only, on a network filesystem, damaged.
        """
        path = Path(path)
        connection = schema.connect(path, write=write, create=create)
        try:
            return cls(path, connection, write=write)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def select(self, text: str, *values: Any) -> list[dict[str, Any]]:
        """Return the rows of one statement as dictionaries."""
        with schema.explained(self.path):
            return [dict(row) for row in self.connection.execute(text, values)]

    def run_id(self, start: str) -> str:
        """Return the id of the only run that starts like this."""
        found = self.select(
            "SELECT id FROM runs WHERE substr(id, 1, length(?)) = ? ORDER BY length(id)", start, start
        )
        if not start or not found:
            raise DatabaseError(
                f"there is no run {start!r} in {self.path}", "tune query --json names the runs"
            )
        if len(found) > 1 and found[0]["id"] != start:
            raise DatabaseError(f"{len(found)} runs start with {start!r}", "give more of the id")
        return str(found[0]["id"])

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, newest first."""
        return [row["id"] for row in self.select("SELECT id FROM runs ORDER BY started_at DESC")]

    def names(self, column: Literal["kernel", "variant"]) -> list[str]:
        """Return the kernels or the variants that there are trials of."""
        found = self.select(f"SELECT DISTINCT {column} AS name FROM trials ORDER BY 1")
        return [row["name"] for row in found]

    def run(self, run_id: str) -> Run:
        """Return a run by its id or the start of it."""
        if run_id in self._runs:
            return self._runs[run_id]
        found = self.select("SELECT * FROM runs WHERE id = ?", self.run_id(run_id))
        run = self._or_damaged(lambda: rows.decode_run(found[0]))
        self._runs[run.id] = run
        return run

    def forget_runs(self) -> None:
        """Read runs anew from the file."""
        self._runs.clear()

    def run_state(self, run_id: str) -> dict[str, Any]:
        """Return a run's ``state``, ``started_at``, ``ended_at`` and ``stats``."""
        found = self.select("SELECT state, started_at, ended_at, stats FROM runs WHERE id = ?", run_id)
        if not found:
            raise DatabaseError(
                f"there is no run {run_id!r} in {self.path}", "tune query --json names the runs"
            )
        return {**found[0], "stats": self._or_damaged(lambda: cells.from_json(found[0]["stats"]))}

    def pending_attempts(self, run_id: str) -> list[tuple[int, Configuration, int]]:
        """Return what was begun without a result: number, configuration, and how often it was begun."""
        found = self.select(
            "SELECT max(number) AS number, variant, configuration, count(*) AS times FROM attempts "
            "WHERE run_id = ? GROUP BY configuration_key ORDER BY number",
            run_id,
        )
        return [
            (row["number"], self._or_damaged(partial(cells.decode_configuration, row)), row["times"])
            for row in found
        ]

    def trials(self, run_id: str) -> list[Trial]:
        """Return a run's trials in the order of their numbers, samples included, sources not.

        Raises:
            DatabaseError: one of them is damaged.
        """
        run = self.run(run_id)
        found = self.select("SELECT * FROM trials WHERE run_id = ? ORDER BY number", run_id)
        return [self._or_damaged(partial(rows.decode_trial, row, run)).trial for row in found]

    def earlier_trials(self, run: Run) -> list[Trial]:
        """Return the trials of other runs of this kernel text, problem, GPU and conditions, best first, failures last.

        Those with a suspect time are left out.
        """
        found = self.select(
            "SELECT t.* FROM trials t JOIN runs r ON r.id = t.run_id WHERE r.problem_key = ? "
            "AND r.gpu_name = ? AND r.kernel_digest = ? AND r.replayed = ? AND r.id != ? "
            f"AND t.mode = ? AND t.regime = ? AND {_NOT_SUSPECT} "
            "ORDER BY t.time_ns IS NULL, t.time_ns, t.id",
            run.problem.key,
            run.gpu.name,
            run.kernel_digest,
            int(run.replayed),
            run.id,
            str(run.conditions.mode),
            str(run.conditions.regime),
        )
        return [stored.trial for stored in self._decoded(found).rows]

    def related_trials(self, run: Run, limit: int) -> list[tuple[Run, list[Trial]]]:
        """Return the ranked trials of this kernel text and these conditions at other problems and on other GPUs.

        All runs of one problem on one GPU are together; what is newest comes first, up to ``limit`` trials.
        """
        found = self.select(
            "SELECT t.* FROM trials t JOIN runs r ON r.id = t.run_id WHERE r.kernel = ? AND r.kernel_digest = ? "
            "AND NOT (r.problem_key = ? AND r.gpu_name = ?) AND r.replayed = ? "
            f"AND t.mode = ? AND t.regime = ? AND t.time_ns IS NOT NULL AND {_NOT_SUSPECT} "
            "ORDER BY t.id DESC LIMIT ?",
            run.problem.kernel,
            run.kernel_digest,
            run.problem.key,
            run.gpu.name,
            int(run.replayed),
            str(run.conditions.mode),
            str(run.conditions.regime),
            limit,
        )
        related: dict[tuple[str, str], tuple[Run, list[Trial]]] = {}
        for stored in self._decoded(found).rows:
            key = stored.run.problem.key, stored.run.gpu.name
            related.setdefault(key, (stored.run, []))[1].append(stored.trial)
        return list(related.values())

    def trial(self, trial_id: int) -> StoredTrial:
        """Return one trial with its sources.

        Raises:
            DatabaseError: there is none, or it is damaged.
        """
        row = self._trial_row(trial_id)

        def decode() -> StoredTrial:
            stored = rows.decode_trial(row, self.run(row["run_id"]))
            sources = tuple(self._source(key, trial_id) for key in cells.from_json(row["source_digests"]))
            return rows.with_sources(stored, sources)

        return self._or_damaged(decode)

    def _trial_row(self, trial_id: int) -> dict[str, Any]:
        found = self.select("SELECT * FROM trials WHERE id = ?", trial_id)
        if not found:
            raise DatabaseError(f"there is no trial {trial_id} in {self.path}", "tune query lists the trials")
        return found[0]

    def _source(self, key: str, trial_id: int) -> str:
        found = self.select("SELECT text FROM sources WHERE digest = ?", key)
        if not found or digest(found[0]["text"]) != key:
            raise Damaged(f"the source {key} of trial {trial_id} is missing or damaged")
        return str(found[0]["text"])

    def best_known(
        self,
        problem: Problem,
        gpu_name: str,
        conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    ) -> tuple[Configuration, float] | None:
        """Return the fastest exportable winner measured so on this GPU, else its fastest verified trial.

        A trial whose time is suspect does not count.
        """
        filters = Filters(
            problem_key=problem.key, replayed=False, mode=str(conditions.mode), regime=str(conditions.regime)
        )
        winners = self.winners(replace(filters, exportable=True)).rows
        times = [(w.winner.time_ns, w.winner.configuration) for w in winners if w.run.gpu.name == gpu_name]
        if times:
            time_ns, configuration = min(times, key=lambda pair: pair[0])
            return configuration, time_ns
        where, values = replace(filters, statuses=(str(Status.OK),)).where()
        found = self.select(
            f"SELECT t.* FROM trials t JOIN runs r ON r.id = t.run_id WHERE {where} AND t.gpu_name = ? "
            f"AND t.time_ns IS NOT NULL AND {_NOT_SUSPECT} ORDER BY t.time_ns, t.id LIMIT 10",
            *values,
            gpu_name,
        )
        for stored in self._decoded(found).rows:
            return stored.trial.configuration, stored.trial.time_ns or 0.0
        return None

    def query(self, filters: Filters = Filters(), sort: str = "id", limit: int = 0) -> Found[StoredTrial]:  # noqa: B008
        """Return the trials that fit, sorted by a key of ``records.SORTS``; a limit of 0 is none."""
        where, values = filters.where()
        found = self.select(
            f"SELECT t.* FROM trials t JOIN runs r ON r.id = t.run_id WHERE {where} "
            f"ORDER BY {order_by(sort)} LIMIT ?",
            *values,
            limit if limit > 0 else -1,
        )
        return self._decoded(found)

    def winners(self, filters: Filters = Filters()) -> Found[StoredWinner]:  # noqa: B008
        """Return every intact winner that fits.

        They are in the order of problem, GPU and conditions; then measured first, exportable first, and by time.
        """
        where, values = filters.where()
        found = self.select(
            f"SELECT t.* FROM winners t JOIN runs r ON r.id = t.run_id WHERE {where} "
            "ORDER BY t.kernel, t.problem_key, t.gpu_name, t.mode, t.regime, t.replayed, t.exportable DESC, "
            "t.time_ns, t.id",
            *values,
        )
        result: Found[StoredWinner] = Found([], [])
        for row in found:
            try:
                trial = rows.decode_trial(self._trial_row(row["trial_id"]), self.run(row["run_id"]))
                result.rows.append(rows.decode_winner(row, trial))
            except (Damaged, DatabaseError) as error:
                result.damaged.append(str(error))
        return result

    def best(self, filters: Filters = Filters()) -> Found[StoredWinner]:  # noqa: B008
        """Return the best winner of each problem, GPU and conditions."""
        found = self.winners(filters)
        chosen: dict[tuple[str, str, Conditions], StoredWinner] = {}
        for stored in found.rows:
            run = stored.run
            chosen.setdefault((run.problem.key, run.gpu.name, run.conditions), stored)
        return Found(list(chosen.values()), found.damaged)

    def benchmarks(self, filters: Filters = Filters(), limit: int = 0) -> Found[Benchmark]:  # noqa: B008
        """Return the intact contestants that fit, newest first, those of one time as they were recorded.

        ``run`` means the run of a contestant's winner. All are measured.

        Raises:
            ValueError: a filter by status or by what is exportable, which only trials and winners can be.
        """
        if filters.statuses or filters.exportable is not None:
            raise ValueError("a benchmark has no status and is not exportable")
        where, values = filters.where()
        found = self.select(
            "SELECT t.*, w.id AS winner_id FROM "
            "(SELECT *, winner_run AS run_id, 0 AS replayed FROM benchmarks) t "
            "JOIN benchmarks r ON r.id = t.id LEFT JOIN winners w ON w.run_id = t.winner_run "
            f"WHERE {where} ORDER BY t.created_at DESC, t.id LIMIT ?",
            *values,
            limit if limit > 0 else -1,
        )
        result: Found[Benchmark] = Found([], [])
        for row in found:
            plain = {n: v for n, v in row.items() if n not in ("run_id", "replayed", "winner_id")}
            try:
                result.rows.append(rows.decode_benchmark(plain, row["winner_id"]))
            except Damaged as error:
                result.damaged.append(str(error))
        return result

    def _decoded(self, found: list[dict[str, Any]]) -> Found[StoredTrial]:
        result: Found[StoredTrial] = Found([], [])
        for row in found:
            try:
                result.rows.append(rows.decode_trial(row, self.run(row["run_id"])))
            except (Damaged, DatabaseError) as error:
                result.damaged.append(str(error))
        return result

    def _or_damaged(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (Damaged, ValueError, KeyError, AttributeError, TypeError) as error:
            raise DatabaseError(
                f"{self.path}: {error}", "tune db check lists the damage; restore a backup"
            ) from error

    def sql(self, text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one ``SELECT`` that can change nothing; give the column names and the rows."""
        return maintenance.read_only_sql(self.path, text)
