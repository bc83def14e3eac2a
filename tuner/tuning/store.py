"""What a run writes, and what it is told of earlier runs.

The database does that (:class:`tuner.database.database.Database`); in a searcher, calls of the head's
(:class:`tuner.fleet.remote.RemoteStore`), which are made from the types of these methods.

A run names its rows by its own id and the numbers of its trials, never by rows of the database: so a row that is sent
twice is the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tuner.core.model import Configuration, Problem, Run, Status, Trial
from tuner.database.records import KnownTrial, LeftBehind, Mark, Metrics, Winner


class Store(Protocol):
    """What a run reads and writes. What was written inside of :meth:`transaction` is on the disk when that ends."""

    # -- what is known before a run begins

    def adopt_runs(self, kernel: str, legacy: Callable[[], str], computation: str, text: str) -> None:
        """Identify the runs of a kernel from before there were identities."""

    def latest_unfinished(self, problem: Problem, device: str, wanted: Callable[[Run], bool]) -> Run | None:
        """Return the last wanted run of a problem on a device that did not end by itself."""

    def refuse_going_on(self, problem: Problem, device: str) -> None:
        """Say which process works on a problem on a device, if one does."""

    def mark_of(self, run_id: str) -> Mark | None:
        """Return what the database held when a run began."""

    def mark(self) -> Mark:
        """Return what the database holds now."""

    def best_known(self, run: Run, mark: Mark) -> tuple[Configuration, float] | None:
        """Return the best of a run's problem under its conditions, and its time in nanoseconds then."""

    def known_winners(self, run: Run, mark: Mark) -> list[tuple[Configuration, int]]:
        """Return what most often won a run's problem on this model of GPU, and how many runs chose each."""

    def earlier_trials(self, run: Run, mark: Mark) -> list[KnownTrial]:
        """Return the trials of other runs of this problem, best first."""

    def intact(self, trials: Sequence[KnownTrial]) -> list[KnownTrial]:
        """Return those trials whose rows are what was written."""

    def related_trials(self, run: Run, mark: Mark, limit: int) -> list[tuple[Run, list[KnownTrial]]]:
        """Return the intact trials of this computation at other problems and on other GPUs."""

    def left_behind(self, run_id: str) -> LeftBehind:
        """Return what an interrupted run has left."""

    # -- what a run writes

    def transaction(self) -> AbstractContextManager[None]:
        """Write what follows together, all or nothing."""

    def start_run(self, run: Run, stats: Mapping[str, Any]) -> None:
        """Write that a run begins."""

    def resume_run(self, run_id: str) -> Run:
        """Take an unfinished run over."""

    def attempt(self, run_id: str, number: int, configuration: Configuration) -> None:
        """Write that a configuration is about to be tried."""

    def record(self, run_id: str, trial: Trial, metrics: Metrics) -> int | None:
        """Write a trial that has ended; return its row, or None if that is known later."""

    def retag(self, run_id: str, number: int, tags: tuple[str, ...]) -> None:
        """Replace a trial's tags."""

    def reject(self, run_id: str, number: int, reason: str, status: Status) -> None:
        """Take a trial out of the ranking."""

    def rows(self, run_id: str) -> dict[int, int]:
        """Return the rows of a run's trials in the database, by number."""

    def record_winner(self, run_id: str, winner: Winner) -> int:
        """Write a run's winner, and return its row."""

    def finish_run(self, run_id: str, state: str, stats: Mapping[str, Any], *, forget_attempts: bool) -> None:
        """Write how a run ended."""

    def require_rows(self, run_id: str, trials: Sequence[int], winner: int | None) -> None:
        """Look for rows as another program would.

        Raises:
            DatabaseError: something is missing.
        """

    def hurry(self) -> None:
        """Wait for other writers for a moment only, from now on."""
