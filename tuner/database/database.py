"""The one place that writes SQLite: runs, trials, attempts, winners and benchmarks, each in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner.database import cells, maintenance, owners, rows, schema
from tuner.database.queries import DEFAULT_PATH, Reader
from tuner.database.records import (
    Benchmark,
    Check,
    Filters,
    Found,
    Merged,
    Metrics,
    StoredTrial,
    StoredWinner,
    Winner,
)
from tuner.errors import DatabaseError
from tuner.model import Configuration, Problem, Run, Status, Trial, digest

STATES = ("running", "finished", "interrupted", "failed")


class Database(Reader):
    """An open database; a context manager. Reading needs no lock for long, writing waits for its turn.

    Everything that is recorded is on the disk when the method returns, and a process killed at any moment
    leaves a file without half a trial in it.
    """

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write under the file's lock, all or nothing; waits for other writers.

        Methods called inside join this transaction: recording a trial together with the next attempt waits
        for the disk once instead of twice.
        """
        if self.connection.in_transaction:
            yield
            return
        with schema.explained(self.path):
            if not self.write:
                raise DatabaseError(f"{self.path} was opened for reading", "open it with write=True")
            try:
                # Within the try: a Ctrl-C that comes while the lock is waited for is raised when it is had.
                self.connection.execute("BEGIN IMMEDIATE")
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def insert(self, table: str, row: Mapping[str, Any]) -> int:
        """Add one row inside a transaction; give its number."""
        added = self.tables.table(table).insert(dict(row))
        return added.last_rowid or 0

    def insert_source(self, text: str) -> None:
        """Add a rendered source inside a transaction, once."""
        self.tables.table("sources").insert({"digest": digest(text), "text": text}, ignore=True)

    # -- runs

    def start_run(self, run: Run) -> None:
        """Write down that a run begins, before anything is tried."""
        with self.transaction():
            if self.select("SELECT 1 FROM runs WHERE id = ?", run.id):
                raise DatabaseError(f"run {run.id} exists already in {self.path}", "give each run its own id")
            self.insert("runs", rows.encode_run(run, owners.this_process()))

    def resume_run(self, run_id: str) -> Run:
        """Take an unfinished run over, unless its process is still alive."""
        with self.transaction():
            run = self.run(run_id)
            owner = self.select("SELECT owner FROM runs WHERE id = ? AND state = 'running'", run_id)
            if owner and owner[0]["owner"] != owners.this_process() and owners.alive(owner[0]["owner"]):
                pid = owners.number(owner[0]["owner"])
                raise DatabaseError(f"run {run_id} is still going in process {pid}", "wait for it, or end it")
            self.update_run(run_id, state="running", ended_at=None, owner=owners.this_process())
        return run

    def finish_run(self, run_id: str, state: str, stats: Mapping[str, Any] | None = None) -> None:
        """Write down how a run ended: finished, interrupted or failed."""
        if state not in STATES:
            raise ValueError(f"{state!r} is not one of {STATES}")
        text = cells.to_json(stats or {})
        with self.transaction():
            self.update_run(run_id, state=state, ended_at=cells.now(), stats=text)

    def update_run(self, run_id: str, **columns: Any) -> None:
        """Set columns of a run inside a transaction."""
        names = ", ".join(f"{name} = ?" for name in columns)
        changed = self.connection.execute(
            f"UPDATE runs SET {names} WHERE id = ?", (*columns.values(), run_id)
        )
        if changed.rowcount == 0:
            raise DatabaseError(f"there is no run {run_id!r} in {self.path}", "start it first")

    def latest_unfinished(self, problem: Problem, device: str) -> Run | None:
        """Return the last run of this problem on this device that did not finish and has no living process."""
        found = self.select(
            "SELECT id, state, owner FROM runs WHERE problem_key = ? AND device = ? AND state != 'finished' "
            "ORDER BY started_at DESC",
            problem.key,
            device,
        )
        for row in found:
            if row["state"] != "running" or not owners.alive(row["owner"]):
                return self.run(row["id"])
        return None

    # -- attempts and trials

    def attempt(self, run_id: str, number: int, configuration: Configuration) -> None:
        """Write down that a configuration is about to be tried, in case it takes the whole tuner with it."""
        with self.transaction():
            self.insert(
                "attempts",
                {
                    "run_id": run_id,
                    "number": int(number),
                    "variant": configuration.variant,
                    "configuration": cells.encode_parameters(configuration),
                    "configuration_key": configuration.key,
                    "started_at": cells.now(),
                },
            )

    def clear_attempts(self, run_id: str) -> None:
        """Forget what was begun and not ended."""
        with self.transaction():
            self.connection.execute("DELETE FROM attempts WHERE run_id = ?", (run_id,))

    def record(self, run_id: str, trial: Trial, *, metrics: Metrics = Metrics()) -> int:  # noqa: B008 - frozen
        """Write one trial with its sources, and drop its attempts; give its row number.

        The same trial again changes nothing and gives the same number.

        Raises:
            DatabaseError: the run has another configuration under this number.
        """
        run = self.run(run_id)
        sources = [cells.storable(text) for text in trial.sources]
        row = rows.encode_trial(run, trial, metrics, [digest(text) for text in sources])
        with self.transaction():
            same = "SELECT * FROM trials WHERE run_id = ? AND number = ?"
            for old in self.select(same, run_id, trial.number):
                if (old["variant"], old["configuration"]) != (row["variant"], row["configuration"]):
                    raise DatabaseError(
                        f"run {run_id} has another trial {trial.number} in {self.path}",
                        "two tuners share this run: end one, and start a new run",
                    )
                return int(old["id"])
            for text in sources:
                self.insert_source(text)
            self.connection.execute(
                "DELETE FROM attempts WHERE run_id = ? AND (number = ? OR configuration_key = ?)",
                (run_id, trial.number, trial.configuration.key),
            )
            return self.insert("trials", row)

    def mark_unstable(self, trial_id: int, reason: str) -> None:
        """Take a trial out of the ranking because a fresh process could not reproduce it."""
        self._change_trial(trial_id, status=str(Status.UNSTABLE), error=cells.storable(reason))

    def retag(self, trial_id: int, tags: tuple[str, ...]) -> None:
        """Return a trial other tags in the place of those it has; ``records.SUSPECT`` takes it out of the ranking."""
        self._change_trial(trial_id, tags=cells.to_json(list(tags)))

    def _change_trial(self, trial_id: int, **columns: str) -> None:
        with self.transaction():
            row = self._trial_row(trial_id)
            if not cells.intact("trials", row):
                raise DatabaseError(
                    f"trial {trial_id} in {self.path} is damaged", "tune db check lists the damage"
                )
            columns["digest"] = cells.row_digest("trials", {**row, **columns})
            names = ", ".join(f"{name} = ?" for name in columns)
            self.connection.execute(f"UPDATE trials SET {names} WHERE id = ?", (*columns.values(), trial_id))

    # -- winners

    def record_winner(self, run_id: str, winner: Winner) -> int:
        """Write a run's winner, in the place of an earlier one; give its row number."""
        row = rows.encode_winner(self.run(run_id), winner)
        with self.transaction():
            trial = self._trial_row(winner.trial_id)
            if (trial["run_id"], trial["variant"], trial["configuration"]) != (
                run_id,
                row["variant"],
                row["configuration"],
            ):
                raise DatabaseError(
                    f"trial {winner.trial_id} is not the winner's", "a winner is one of its run's trials"
                )
            self.connection.execute("DELETE FROM winners WHERE run_id = ?", (run_id,))
            return self.insert("winners", row)

    # -- benchmarks

    def record_benchmark(self, benchmarks: Sequence[Benchmark]) -> list[int]:
        """Write contestants that were timed together, all or none of them; give their row numbers.

        Raises:
            DatabaseError: a ``winner_id`` that is not there.
        """
        created_at = cells.now()
        with self.transaction():
            added = [
                rows.encode_benchmark(benchmark, self._winner_run(benchmark.winner_id), created_at)
                for benchmark in benchmarks
            ]
            return [self.insert("benchmarks", row) for row in added]

    def _winner_run(self, winner_id: int | None) -> str | None:
        if winner_id is None:
            return None
        found = self.select("SELECT run_id FROM winners WHERE id = ?", winner_id)
        if not found:
            raise DatabaseError(
                f"there is no winner {winner_id} in {self.path}", "tune best lists the winners"
            )
        return str(found[0]["run_id"])

    # -- upkeep

    def check(self) -> Check:
        """Check the file's structure and the digest of every row."""
        return maintenance.check(self)

    def merge(self, other: Path) -> Merged:
        """Add the runs and benchmarks of another file that this one lacks, leaving out what is damaged."""
        with Database.open(other, write=False) as source:
            return maintenance.merge(self, source)

    def backup(self, to: Path) -> None:
        """Write a consistent copy to a new file, also while others write."""
        maintenance.backup(self, to)

    def delete_run(self, run_id: str) -> int:
        """Delete a run with its trials and winner; give the number of trials."""
        return maintenance.delete_run(self, run_id)


__all__ = [
    "DEFAULT_PATH",
    "Benchmark",
    "Check",
    "Database",
    "Filters",
    "Found",
    "Merged",
    "Metrics",
    "StoredTrial",
    "StoredWinner",
    "Winner",
]
