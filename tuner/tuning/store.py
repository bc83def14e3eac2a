"""Where a run's rows go, and what it is told of earlier runs: the database itself, or another process that has it.

A run names its rows by its own id and the numbers of its trials, never by rows of the database: so a row that is sent
twice is the same row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tuner.core.model import Configuration, Run, Trial
from tuner.database.database import Database
from tuner.database.records import KnownTrial, Mark, Metrics, Winner
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.run_rows import LeftBehind
from tuner.tuning.runs import interrupted_run


class Store(Protocol):
    """What a run reads and writes. What was written inside of :meth:`transaction` is on the disk when that ends."""

    # -- what is known before a run begins

    def adopt(self, kernel: KernelSpec) -> None:
        """Identify the runs of this kernel from before there were identities."""

    def interrupted(self, request: Request, device: str) -> tuple[Run, Mark | None]:
        """Return the run that a request goes on with, on a device of this name, and what was known when it began.

        Raises:
            TunerError: there is none, or it cannot go on like this.
        """

    def mark(self) -> Mark:
        """Return what the database holds now."""

    def best_known(self, run: Run, mark: Mark | None) -> tuple[Configuration, float] | None:
        """Return the best of a run's problem under its conditions, and its time in nanoseconds then."""

    def known_winners(self, run: Run, mark: Mark | None) -> list[tuple[Configuration, int]]:
        """Return what most often won a run's problem on this model of GPU, and how many runs chose each."""

    def earlier_trials(self, run: Run, mark: Mark | None) -> list[KnownTrial]:
        """Return the trials of other runs of this problem, best first."""

    def intact(self, trials: Sequence[KnownTrial]) -> list[KnownTrial]:
        """Return those trials whose rows are what was written."""

    def related_trials(self, run: Run, mark: Mark | None, limit: int) -> list[tuple[Run, list[KnownTrial]]]:
        """Return the intact trials of this computation at other problems and on other GPUs."""

    def left_behind(self, run_id: str) -> LeftBehind:
        """Return what an interrupted run has left."""

    # -- what a run writes

    def transaction(self) -> AbstractContextManager[None]:
        """Write what follows together, all or nothing."""

    def start_run(self, run: Run, stats: Mapping[str, Any]) -> None:
        """Write that a run begins."""

    def resume_run(self, run_id: str) -> None:
        """Take an unfinished run over."""

    def attempt(self, run_id: str, number: int, configuration: Configuration) -> None:
        """Write that a configuration is about to be tried."""

    def record(self, run_id: str, trial: Trial, metrics: Metrics) -> None:
        """Write a trial that has ended."""

    def retag(self, run_id: str, number: int, tags: tuple[str, ...]) -> None:
        """Replace a trial's tags."""

    def mark_unstable(self, run_id: str, number: int, reason: str) -> None:
        """Take a trial out of the ranking."""

    def rows(self, run_id: str) -> dict[int, int]:
        """Return the rows of a run's trials in the database, by number."""

    def record_winner(self, run_id: str, winner: Winner) -> int:
        """Write a run's winner, and return its row."""

    def finish_run(self, run_id: str, state: str, stats: Mapping[str, Any], *, forget_attempts: bool) -> None:
        """Write how a run ended."""

    def confirm(self, run_id: str, trials: Sequence[int], winner: int | None) -> None:
        """Look for rows as another program would.

        Raises:
            DatabaseError: something is missing.
        """

    def hurry(self) -> None:
        """Wait for other writers for a moment only, from now on."""


class DatabaseStore:
    """The store that writes at once, for the one process that has the database open."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.mark, self.hurry, self.transaction = database.mark, database.hurry, database.transaction
        self.earlier_trials, self.intact = database.earlier_trials, database.intact
        self.known_winners = database.known_winners
        self.attempt, self.confirm = database.attempt, database.confirm
        self.start_run, self.record_winner = database.start_run, database.record_winner
        self.finish_run = database.finish_run
        self._rows: dict[str, dict[int, int]] = {}

    def adopt(self, kernel: KernelSpec) -> None:
        """Identify the runs of this kernel from before there were identities."""
        identity = KernelIdentity(kernel)
        self.database.adopt_runs(kernel.name, lambda: identity.legacy, identity.computation, identity.text)

    def interrupted(self, request: Request, device: str) -> tuple[Run, Mark | None]:
        """Return the newest run of the request's problem on this device that did not end by itself, and its mark."""
        run = interrupted_run(self.database, request, device)
        return run, self.mark_of(run.id)

    def mark_of(self, run_id: str) -> Mark | None:
        """Return what the database held when a run began, as far as that was written down."""
        mark = self.database.run_state(run_id)["stats"].get("mark")
        return Mark(**mark) if mark else None

    def best_known(self, run: Run, mark: Mark | None) -> tuple[Configuration, float] | None:
        """Return the best of a run's problem under its conditions."""
        return self.database.best_known(
            run.problem, run.gpu.name, run.conditions, run.computation, mark, one_mode=run.options.one_mode
        )

    def related_trials(self, run: Run, mark: Mark | None, limit: int) -> list[tuple[Run, list[KnownTrial]]]:
        """Return the intact trials of this computation at other problems and on other GPUs."""
        related = self.database.related_trials(run, mark, limit)
        return [(other, self.database.intact(trials)) for other, trials in related]

    def left_behind(self, run_id: str) -> LeftBehind:
        """Return what an interrupted run has left."""
        stats = self.database.run_state(run_id)["stats"]
        return LeftBehind(self.database.trials(run_id), self.database.pending_attempts(run_id), stats)

    def resume_run(self, run_id: str) -> None:
        """Take an unfinished run over."""
        self.database.resume_run(run_id)

    def record(self, run_id: str, trial: Trial, metrics: Metrics) -> None:
        """Write a trial that has ended; the same again changes nothing."""
        self.rows(run_id)[trial.number] = self.database.record(run_id, trial, metrics=metrics)

    def retag(self, run_id: str, number: int, tags: tuple[str, ...]) -> None:
        """Replace a trial's tags."""
        self.database.retag(self.rows(run_id)[number], tags)

    def mark_unstable(self, run_id: str, number: int, reason: str) -> None:
        """Take a trial out of the ranking."""
        self.database.mark_unstable(self.rows(run_id)[number], reason)

    def rows(self, run_id: str) -> dict[int, int]:
        """Return the rows of a run's trials, by number."""
        if run_id not in self._rows:
            trials = self.database.rows_where("trials", "run_id = ?", run_id, columns="id, number")
            self._rows[run_id] = {trial["number"]: trial["id"] for trial in trials}
        return self._rows[run_id]

    def forget(self, run_ids: Iterable[str]) -> None:
        """Look up the rows of runs anew: a transaction that wrote some of them has failed."""
        for run_id in run_ids:
            self._rows.pop(run_id, None)
