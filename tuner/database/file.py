"""An open file: transactions, and the rows of its single tables, checked against their digests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import sqlite_utils.db
from sqlite_utils.db import NotFoundError

from tuner.core import paths
from tuner.core.errors import DatabaseError, NotStoredError
from tuner.core.model import Run, Trial, digest
from tuner.database import cells, opening, rows
from tuner.database.cells import Damaged
from tuner.database.hostile import Connection
from tuner.database.records import StoredTrial

DEFAULT_PATH = paths.DATABASE
T = TypeVar("T")


class DatabaseFile:
    """An open database; a context manager.

    Attributes:
        path: of the file.
        connection: the only one to it.
        tables: each of :data:`tuner.database.opening.TABLES`.
        write: whether it was opened to write.
    """

    def __init__(self, path: Path, connection: Connection, *, write: bool) -> None:
        self.path = path
        self.connection = connection
        self.write = write
        sqlite = sqlite_utils.Database(connection, execute_plugins=False)
        self.tables = {name: opening.SchemaTable(sqlite, name) for name in opening.TABLES}
        self._runs: dict[str, Run] = {}

    @classmethod
    def open(cls, path: Path | str = DEFAULT_PATH, write: bool = True, create: bool = True) -> Self:
        """Open a file; with ``write`` and ``create`` it is created where it is missing.

        Raises:
            DatabaseError: missing, foreign, newer, read-only, on a network filesystem, damaged.
        """
        path = Path(path)
        connection = opening.connect(path, write=write, create=create)
        try:
            return cls(path, connection, write=write)
        except BaseException:
            connection.close()
            raise

    def explained(self) -> AbstractContextManager[None]:
        """Return a block in which what SQLite raises becomes one line with a remedy."""
        return opening.explained(self.path, self.connection)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write under the file's lock, all or nothing; waits for other writers.

        Methods called inside join this transaction: recording a trial together with the next attempt waits
        for the disk once instead of twice.

        Raises:
            DatabaseError: opened for reading, or what SQLite says.
        """
        if self.connection.in_transaction:
            yield
            return
        with self.explained():
            if not self.write:
                raise DatabaseError(f"{self.path} was opened for reading", "open it with write=True")
            with opening.immediate(self.connection):
                yield

    def insert(self, table: str, row: Mapping[str, Any]) -> int:
        """Add one row inside a transaction; return its number."""
        return self.tables[table].insert(dict(row)).last_rowid or 0

    def insert_sources(self, texts: Sequence[str]) -> None:
        """Add rendered sources inside a transaction, each once."""
        sources = [{"digest": digest(text), "text": text} for text in texts]
        self.tables["sources"].insert_all(sources, ignore=True)

    def update_run(self, run_id: str, **columns: Any) -> None:
        """Set columns of a run inside a transaction.

        Raises:
            DatabaseError: there is no such run.
        """
        try:
            self.tables["runs"].update(run_id, columns)
        except NotFoundError:
            raise DatabaseError(f"there is no run {run_id!r} in {self.path}", "start it first") from None

    def select(self, text: str, *values: Any) -> list[dict[str, Any]]:
        """Return the rows of one statement as dictionaries."""
        with self.explained():
            return [dict(row) for row in self.connection.execute(text, values)]

    def rows_where(
        self, table: str, where: str = "1", *values: Any, order_by: str | None = None, columns: str = "*"
    ) -> list[dict[str, Any]]:
        """Return the rows of a table for which a condition holds."""
        with self.explained():
            return list(self.tables[table].rows_where(where, values, order_by, columns))

    def run_id(self, start: str) -> str:
        """Return the id of the only run that starts like this.

        Raises:
            DatabaseError: none does, or several.
        """
        if self.rows_where("runs", "id = ?", start, columns="id"):
            return start
        starts_so = "substr(id, 1, length(?)) = ?"
        ids = self.rows_where("runs", starts_so, start, start, columns="id")
        if not start or not ids:
            raise self._no_run(start)
        if len(ids) > 1:
            raise NotStoredError(f"{len(ids)} runs start with {start!r}", "give more of the id")
        return str(ids[0]["id"])

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, newest first."""
        return [row["id"] for row in self.rows_where("runs", order_by="started_at DESC", columns="id")]

    def run(self, run_id: str) -> Run:
        """Return a run by its id or the start of it.

        Raises:
            DatabaseError: there is none, there are several, or it is damaged.
        """
        if run_id in self._runs:
            return self._runs[run_id]
        (row,) = self.rows_where("runs", "id = ?", self.run_id(run_id))
        run = self._or_damaged(lambda: rows.decode_run(row))
        self._runs[run.id] = run
        return run

    def forget_runs(self) -> None:
        """Read runs anew from the file."""
        self._runs.clear()

    def run_state(self, run_id: str) -> dict[str, Any]:
        """Return a run's ``state``, ``started_at``, ``ended_at`` and ``stats``.

        Raises:
            DatabaseError: there is no run of this id.
        """
        columns = "state, started_at, ended_at, stats"
        for row in self.rows_where("runs", "id = ?", run_id, columns=columns):
            return {**row, "stats": self._or_damaged(partial(cells.from_json, row["stats"], dict[str, Any]))}
        raise self._no_run(run_id)

    def trials(self, run_id: str) -> list[Trial]:
        """Return a run's trials in the order of their numbers, samples included, sources not.

        Raises:
            DatabaseError: one of them is damaged.
        """
        run = self.run(run_id)
        stored = self.rows_where("trials", "run_id = ?", run_id, order_by="number")
        return [self._or_damaged(partial(rows.decode_trial, row, run)).trial for row in stored]

    def rows(self, run_id: str) -> dict[int, int]:
        """Return the rows of a run's trials, by number."""
        trials = self.rows_where("trials", "run_id = ?", run_id, columns="id, number")
        return {trial["number"]: trial["id"] for trial in trials}

    def numbered_trials(self, numbers: Iterable[int]) -> Iterator[StoredTrial]:
        """Return the trials of these rows one after the other, sources not.

        Raises:
            DatabaseError: one is missing or damaged.
        """
        for number in numbers:
            yield self._or_damaged(partial(self.decode_trial, self.trial_row(number)))

    def trial(self, trial_id: int) -> StoredTrial:
        """Return one trial with its sources.

        Raises:
            DatabaseError: there is none, or it is damaged.
        """
        return self.trial_of(self.trial_row(trial_id))

    def trial_of(self, row: dict[str, Any]) -> StoredTrial:
        """Return the trial of a row, with its sources.

        Raises:
            DatabaseError: it is damaged.
        """

        def decode() -> StoredTrial:
            stored = self.decode_trial(row)
            sources = self._sources(rows.source_digests_of(row), row["id"])
            return replace(stored, trial=replace(stored.trial, sources=sources))

        return self._or_damaged(decode)

    def decode_trial(self, row: dict[str, Any]) -> StoredTrial:
        """Return the trial of a row without its sources, or raise :class:`Damaged`."""
        return rows.decode_trial(row, self.run(row["run_id"]))

    def trial_row(self, trial_id: int) -> dict[str, Any]:
        """Return one row of ``trials``.

        Raises:
            DatabaseError: there is none.
        """
        for row in self.rows_where("trials", "id = ?", trial_id):
            return row
        raise NotStoredError(f"there is no trial {trial_id} in {self.path}", "tune trials lists the trials")

    def _sources(self, digests: list[str], trial_id: int) -> tuple[str, ...]:
        among = f"digest IN ({', '.join('?' * len(digests))})"
        texts = {row["digest"]: row["text"] for row in self.rows_where("sources", among, *digests)}
        for key in digests:
            if key not in texts or digest(texts[key]) != key:
                raise Damaged(f"the source {key} of trial {trial_id} is missing or damaged")
        return tuple(texts[key] for key in digests)

    def _no_run(self, run_id: str) -> DatabaseError:
        return NotStoredError(
            f"there is no run {run_id!r} in {self.path}", "tune trials --json names the runs"
        )

    def _or_damaged(self, decode: Callable[[], T]) -> T:
        try:
            return decode()
        except (Damaged, *cells.UNREADABLE) as error:
            raise DatabaseError(
                f"{self.path}: {error}", "tune db check lists the damage; restore a backup"
            ) from error
