"""Writing: runs, attempts, trials, winners and benchmarks, through sqlite-utils' tables, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration, Problem, Run, Status, Trial, digest
from tuner.database import cells, opening, owners, rows
from tuner.database.maintenance import ADOPTED, Maintenance
from tuner.database.queries import Queries
from tuner.database.records import Benchmark, Filters, Metrics, Winner

HURRY_S = 1.0
STATES = ("running", "finished", "interrupted", "failed")
_UNFINISHED = "problem_key = ? AND device = ? AND state != 'finished'"


class Database(Queries, Maintenance):
    """An open database; a context manager. Reading needs no lock for long, writing waits for its turn.

    Everything that is recorded is on the disk when the method returns, and a process killed at any moment
    leaves a file without half a trial in it.
    """

    @cached_property
    def _locks(self) -> owners.RunLocks:
        """Those of the runs that this process works on."""
        return owners.RunLocks(self.path)

    def close(self) -> None:
        """Close the file, and release its runs."""
        super().close()
        self._locks.close()

    def hurry(self) -> None:
        """Wait for other writers for a moment only, from now on: the user wants to leave."""
        self.connection.patience_s = HURRY_S

    # -- runs

    def start_run(self, run: Run, stats: Mapping[str, Any] | None = None) -> None:
        """Write down that a run begins, before anything is tried, with statistics as :meth:`finish_run` has them.

        Raises:
            DatabaseError: there is one of this id.
        """
        with self.transaction():
            if self.tables["runs"].count_where("id = ?", [run.id]):
                raise DatabaseError(f"run {run.id} exists already in {self.path}", "give each run its own id")
            self._locks.take(run.id)
            row = rows.encode_run(run, owners.this_process())
            self.insert("runs", {**row, "stats": cells.to_json(stats or {})})

    def resume_run(self, run_id: str) -> Run:
        """Take an unfinished run over.

        Raises:
            DatabaseError: its process is still alive, or there is no such run.
        """
        with self.transaction():
            run = self.run(run_id)
            self._refuse_going_on("id = ?", run_id)
            if not self._locks.take(run_id):
                raise DatabaseError(
                    f"run {run_id} is still going in another process", "wait for it, or end it"
                )
            self.update_run(run_id, state="running", ended_at=None, owner=owners.this_process())
        return run

    def finish_run(
        self,
        run_id: str,
        state: str,
        stats: Mapping[str, Any] | None = None,
        *,
        forget_attempts: bool = False,
    ) -> None:
        """Write down how a run ended: finished, interrupted or failed.

        Args:
            run_id: the run's.
            state: one of :data:`STATES`.
            stats: what the run counted.
            forget_attempts: whether what was begun and not ended is not to count against its configurations.
        """
        if state not in STATES:
            raise ValueError(f"{state!r} is not one of {STATES}")
        text = cells.to_json(stats or {})
        with self.transaction():
            if forget_attempts:
                self.tables["attempts"].delete_where("run_id = ?", [run_id])
            self.update_run(run_id, state=state, ended_at=cells.now(), stats=text)
        self._locks.release(run_id)

    def _going_on(self, row: Mapping[str, Any]) -> bool:
        """Return whether another process works on a run.

        Args:
            row: the run's ``id``, ``state`` and ``owner``.
        """
        if row["state"] != "running":
            return False
        return self._locks.taken(row["id"]) or (
            row["owner"] != owners.this_process() and owners.alive(row["owner"])
        )

    def _refuse_going_on(self, which: str, *values: str) -> None:
        for row in self.rows_where("runs", which, *values, columns="id, state, owner"):
            if self._going_on(row):
                raise DatabaseError(
                    f"run {row['id']} is still going in {owners.described(row['owner'])}",
                    "wait for it, or end it",
                )

    def latest_unfinished(
        self, problem: Problem, device: str, wanted: Callable[[Run], bool] = lambda _: True
    ) -> Run | None:
        """Return the last wanted run of this problem on this device that did not finish and has no living process.

        If none is wanted, it is the last of all: kernels of one name may compute different things. Steps of studies are
        no runs to go on with.
        """
        last = None
        columns = "id, state, owner"
        for row in self.rows_where(
            "runs", _UNFINISHED, problem.key, device, order_by="started_at DESC", columns=columns
        ):
            ours = row["state"] == "running" and row["owner"] == owners.this_process()
            if not ours and not self._going_on(row):
                run = self.run(row["id"])
                if run.options.part:
                    continue
                if wanted(run):
                    return run
                last = last or run
        return last

    def has_finished(self, problem: Problem, device: str, computations: Sequence[str]) -> bool:
        """Return whether a run of one of these computations has ended with trials of this problem on this device."""
        where, values = Filters(problem_key=problem.key, computations=tuple(computations)).where()
        finished = (
            f"SELECT r.id FROM runs r WHERE {where} AND r.device = ? AND r.state = 'finished' "
            "AND EXISTS (SELECT 1 FROM trials WHERE run_id = r.id)"
        )
        return bool(self.select(finished, *values, device))

    def refuse_going_on(self, problem: Problem, device: str) -> None:
        """Say which process works on this problem on this device, if one does.

        Raises:
            DatabaseError: that.
        """
        self._refuse_going_on(_UNFINISHED, problem.key, device)

    def delete_run(self, run_id: str) -> int:
        """Delete a run with its trials and winner, and the sources that no other trial has.

        Args:
            run_id: the run's, or the start of it.

        Returns:
            The number of trials.

        Raises:
            DatabaseError: there is no such run, or its process is alive.
        """
        with self.transaction():
            run_id = self.run_id(run_id)
            self._refuse_going_on("id = ?", run_id)
            trials = self.tables["trials"].count_where("run_id = ?", [run_id])
            for table in ("winners", "attempts", "trials"):
                self.tables[table].delete_where("run_id = ?", [run_id])
            self.tables["runs"].delete_where("id = ?", [run_id])
            self.tables["sources"].delete_where(
                "digest NOT IN (SELECT value FROM trials, json_each("
                "CASE WHEN json_valid(source_digests) THEN source_digests ELSE '[]' END))"
            )
            self.forget_runs()
            return trials

    def adopt_runs(self, kernel: str, legacy: Callable[[], str], computation: str, text: str) -> None:
        """Identify the runs of before there were identities whose kernel's text is still the same.

        Args:
            kernel: its name.
            legacy: the digest of its text as those runs have it; asked for only where there is such a run.
            computation: the digest of what it computes.
            text: the digest of its text.
        """
        which = "kernel = ? AND computation = '' AND kernel_digest = ?"
        if not self.tables["runs"].count_where("kernel = ? AND computation = ''", [kernel]):
            return
        with self.transaction():
            for row in self.rows_where("runs", which, kernel, legacy()):
                if cells.intact("runs", row):
                    row.update(computation=computation, kernel_digest=text)
                    row["digest"] = cells.row_digest("runs", row)
                    self.tables["runs"].update(row["id"], {name: row[name] for name in ADOPTED})
            self.forget_runs()

    # -- attempts and trials

    def attempt(self, run_id: str, number: int, configuration: Configuration) -> None:
        """Write down that a configuration is about to be tried, in case it takes the whole tuner with it."""
        row = {
            "run_id": run_id,
            "number": int(number),
            "variant": configuration.variant,
            "configuration": cells.encode_parameters(configuration),
            "configuration_key": configuration.key,
            "started_at": cells.now(),
        }
        with self.transaction():
            self.insert("attempts", row)

    def record(self, run_id: str, trial: Trial, metrics: Metrics = Metrics()) -> int:  # noqa: B008 - frozen
        """Write one trial with its sources, and drop its attempts; return its row number.

        The same trial again changes nothing and returns the same number.

        Raises:
            DatabaseError: the run has another configuration under this number.
        """
        run = self._runs.get(run_id) or self.run(run_id)
        sources = [cells.storable(text) for text in trial.sources]
        row = rows.encode_trial(run, trial, metrics, [digest(text) for text in sources])
        with self.transaction():
            for old in self.tables["trials"].rows_where("run_id = ? AND number = ?", [run_id, trial.number]):
                if (old["variant"], old["configuration"]) != (row["variant"], row["configuration"]):
                    raise DatabaseError(
                        f"run {run_id} has another trial {trial.number} in {self.path}",
                        "two tuners share this run: end one, and start a new run",
                    )
                return int(old["id"])
            self.insert_sources(sources)
            self.tables["attempts"].delete_where(
                "run_id = ? AND (number = ? OR configuration_key = ?)",
                [run_id, trial.number, trial.configuration.key],
            )
            return self.insert("trials", row)

    def reject(self, run_id: str, number: int, reason: str, status: Status = Status.UNSTABLE) -> None:
        """Take a trial out of the ranking because a race or a fresh process spoke against it."""
        self._change_trial(run_id, number, status=str(status), error=cells.storable(reason))

    def retag(self, run_id: str, number: int, tags: tuple[str, ...]) -> None:
        """Replace a trial's tags; ``tuner.core.model.SUSPECT`` among them takes it out of the ranking."""
        self._change_trial(run_id, number, tags=cells.to_json(list(tags)))

    def _change_trial(self, run_id: str, number: int, **columns: str) -> None:
        with self.transaction():
            for row in self.rows_where("trials", "run_id = ? AND number = ?", run_id, number):
                if not cells.intact("trials", row):
                    raise DatabaseError(
                        f"trial {row['id']} in {self.path} is damaged", "tune db check lists the damage"
                    )
                columns["digest"] = cells.row_digest("trials", {**row, **columns})
                self.tables["trials"].update(row["id"], columns)
                return
        raise DatabaseError(f"there is no trial {number} of run {run_id} in {self.path}")

    # -- winners

    def record_winner(self, run_id: str, winner: Winner) -> int:
        """Write a run's winner, which replaces an earlier one; return its row number.

        Raises:
            DatabaseError: its trial is not one of this run with this configuration.
        """
        row = rows.encode_winner(self.run(run_id), winner)
        with self.transaction():
            trial = self.trial_row(winner.trial_id)
            same = ("run_id", "variant", "configuration")
            if [trial[name] for name in same] != [row[name] for name in same]:
                raise DatabaseError(
                    f"trial {winner.trial_id} is not the winner's", "a winner is one of its run's trials"
                )
            # No upsert: to see whether SQLite knows ON CONFLICT, sqlite-utils creates and drops a table in the file.
            self.tables["winners"].delete_where("run_id = ?", [run_id])
            return self.insert("winners", row)

    # -- benchmarks

    def record_benchmark(self, benchmarks: Sequence[Benchmark]) -> list[int]:
        """Write contestants that were timed together, all or none of them; return their row numbers.

        Raises:
            DatabaseError: a ``winner_id`` that is not there.
        """
        created_at = cells.now()
        with self.transaction():
            encoded = [
                rows.encode_benchmark(benchmark, self._winner_run(benchmark.winner_id), created_at)
                for benchmark in benchmarks
            ]
            return [self.insert("benchmarks", row) for row in encoded]

    def _winner_run(self, winner_id: int | None) -> str | None:
        if winner_id is None:
            return None
        for row in self.rows_where("winners", "id = ?", winner_id, columns="run_id"):
            return str(row["run_id"])
        raise DatabaseError(f"there is no winner {winner_id} in {self.path}", "tune best lists the winners")

    # -- the whole file

    def require_rows(self, run_id: str, trials: Sequence[int], winner: int | None = None) -> None:
        """Look for what was recorded as another program would: by the file's name, on a connection of its own.

        Args:
            run_id: the run's.
            trials: their rows.
            winner: its row.

        Raises:
            DatabaseError: something is missing: the file was cut off, overwritten or replaced meanwhile.
        """
        with closing(Database(self.path, opening.reading(self.path), write=False)) as fresh:
            fresh.connection.patience_s = self.connection.patience_s
            kept = {trial.id for trial in fresh.trials(run_id)}
            missing = [row for row in trials if row not in kept]
            for row in () if winner is None else (winner,):
                stored = fresh.rows_where("winners", "id = ? AND run_id = ?", row, run_id)
                missing += [] if any(cells.intact("winners", one) for one in stored) else [row]
        if missing:
            raise DatabaseError(
                f"{self.path} lacks {len(missing)} of the rows that this run has recorded in it: it was cut off, "
                "overwritten or replaced meanwhile",
                "leave the file to kernel-tune while it runs, and tune again",
            )
