"""A run's store in a searcher: the head has the database, and says when something is on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from tuner.core.errors import DatabaseError
from tuner.core.model import Configuration, Run, Trial
from tuner.database.records import KnownTrial, Mark, Metrics, Winner
from tuner.fleet.messages import Answered, DatabaseRefused, Query, Task, Writes
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.run_rows import (
    ANSWERS,
    ROW_ANSWER,
    Attempted,
    BestKnown,
    EarlierTrials,
    IntactTrials,
    KeptRows,
    KnownWinners,
    LeftBehind,
    PresentMark,
    Question,
    RelatedTrials,
    Retagged,
    Row,
    RowNumbers,
    RunEnded,
    RunResumed,
    RunStarted,
    TrialEnded,
    Unstable,
    WhatIsLeft,
    WinnerFound,
)

Ask = Callable[[Query | Writes], Answered | DatabaseRefused]


class RemoteStore:
    """The store of a task's run (:class:`tuner.tuning.store.Store`), by messages.

    Args:
        task: what is tuned.
        ask: sends a message to the head, and returns its answer.
    """

    def __init__(self, task: Task, ask: Ask) -> None:
        self._task, self._ask = task, ask
        self._key = 0
        self._open: list[Row] | None = None
        """Rows of the transaction under way."""
        self._rows: dict[int, int] = {}

    # -- what is known before a run begins

    def adopt(self, kernel: KernelSpec) -> None:
        """Do nothing: the head has done it."""

    def interrupted(self, request: Request, device: str) -> tuple[Run, Mark | None]:  # noqa: ARG002
        """Return the run that came with the task."""
        assert self._task.going_on is not None
        return self._task.going_on, self._task.mark

    def mark(self) -> Mark:
        """Return what the database holds now."""
        mark: Mark = self._answer_to(PresentMark())
        return mark

    def best_known(self, run: Run, mark: Mark | None) -> tuple[Configuration, float] | None:
        """Return the best of a run's problem under its conditions."""
        best: tuple[Configuration, float] | None = self._answer_to(BestKnown(run, mark))
        return best

    def known_winners(self, run: Run, mark: Mark | None) -> list[tuple[Configuration, int]]:
        """Return what most often won a run's problem on this model of GPU, and how many runs chose each."""
        winners: list[tuple[Configuration, int]] = self._answer_to(KnownWinners(run, mark))
        return winners

    def earlier_trials(self, run: Run, mark: Mark | None) -> list[KnownTrial]:
        """Return the trials of other runs of this problem, best first."""
        trials: list[KnownTrial] = self._answer_to(EarlierTrials(run, mark))
        return trials

    def intact(self, trials: Sequence[KnownTrial]) -> list[KnownTrial]:
        """Return those trials whose rows are what was written."""
        if not trials:
            return []
        sound = set(self._answer_to(IntactTrials(tuple(trial.id for trial in trials))))
        return [trial for trial in trials if trial.id in sound]

    def related_trials(self, run: Run, mark: Mark | None, limit: int) -> list[tuple[Run, list[KnownTrial]]]:
        """Return the intact trials of this computation at other problems and on other GPUs."""
        related: list[tuple[Run, list[KnownTrial]]] = self._answer_to(RelatedTrials(run, mark, limit))
        return related

    def left_behind(self, run_id: str) -> LeftBehind:
        """Return what an interrupted run has left."""
        left: LeftBehind = self._answer_to(WhatIsLeft(run_id))
        return left

    # -- what a run writes

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Send the rows of the block together, and return when they are on the disk; none if the block fails."""
        if self._open is not None:
            yield
            return
        self._open = []
        try:
            yield
            rows = self._open
        finally:
            self._open = None
        if rows:
            self._send(rows)

    def start_run(self, run: Run, stats: Mapping[str, Any]) -> None:
        """Write that a run begins."""
        self._write(RunStarted(run, stats))

    def resume_run(self, run_id: str) -> None:
        """Take an unfinished run over."""
        self._write(RunResumed(run_id))

    def attempt(self, run_id: str, number: int, configuration: Configuration) -> None:
        """Write that a configuration is about to be tried."""
        self._write(Attempted(run_id, number, configuration))

    def record(self, run_id: str, trial: Trial, metrics: Metrics) -> None:
        """Write a trial that has ended."""
        self._write(TrialEnded(run_id, trial, metrics))

    def retag(self, run_id: str, number: int, tags: tuple[str, ...]) -> None:
        """Replace a trial's tags."""
        self._write(Retagged(run_id, number, tags))

    def mark_unstable(self, run_id: str, number: int, reason: str) -> None:
        """Take a trial out of the ranking."""
        self._write(Unstable(run_id, number, reason))

    def rows(self, run_id: str) -> dict[int, int]:
        """Return the rows of a run's trials in the database, by number: as of the first time that this is asked."""
        if not self._rows:
            self._rows = self._answer_to(RowNumbers(run_id))
        return self._rows

    def record_winner(self, run_id: str, winner: Winner) -> int:
        """Write a run's winner, and return its row."""
        return self._send([WinnerFound(run_id, winner)]) or 0

    def finish_run(self, run_id: str, state: str, stats: Mapping[str, Any], *, forget_attempts: bool) -> None:
        """Write how a run ended."""
        self._write(RunEnded(run_id, state, stats, forget_attempts))

    def confirm(self, run_id: str, trials: Sequence[int], winner: int | None) -> None:
        """Have the head look for rows as another program would."""
        self._answer_to(KeptRows(run_id, tuple(trials), winner))

    def hurry(self) -> None:
        """Do nothing: the head knows that the user wants to leave."""

    # -- messages

    def _write(self, row: Row) -> None:
        if self._open is not None:
            self._open.append(row)
        else:
            self._send([row])

    def _send(self, rows: Sequence[Row]) -> int | None:
        """Send rows, and return the number of the last one in the database if that is a winner."""
        return ROW_ANSWER.decode(self._reply_to(Writes(self._task.key, self._next_key(), tuple(rows))))

    def _answer_to(self, question: Question) -> Any:
        data = self._reply_to(Query(self._task.key, self._next_key(), question))
        return ANSWERS[type(question)].decode(data)

    def _next_key(self) -> int:
        self._key += 1
        return self._key

    def _reply_to(self, message: Query | Writes) -> msgspec.Raw:
        answer = self._ask(message)
        if isinstance(answer, DatabaseRefused):
            raise DatabaseError(answer.error, answer.remedy)
        return answer.value
