"""The head's side of the database: answers what searchers ask, and writes what they send, each row once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from tuner.core.errors import DatabaseError
from tuner.core.model import Run
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.fleet.messages import Answered, DatabaseRefused, Query, TaskDone, Writes
from tuner.tuning.run_rows import (
    ANSWERS,
    ROW_ANSWER,
    Attempted,
    BestKnown,
    EarlierTrials,
    IntactTrials,
    KeptRows,
    KnownWinners,
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
from tuner.tuning.store import DatabaseStore


@dataclass
class _GivenOut:
    """A task that a searcher works on."""

    devices: tuple[str, ...]
    """Where its run was before, and where it is now."""
    run: str | None = None
    """Id of its run, once it has begun."""
    last: int = 0
    """Key of the last rows that were written."""
    answer: int | None = None
    """What these were answered with."""
    state: str = ""
    """How its run has ended; empty while it goes on."""


class Ledger:
    """Writes what searchers send.

    A task is given out once: rows of one that was taken back are refused, for another searcher has it now. Rows that
    are sent twice are written once.

    Args:
        database: open to write; used by the thread that calls.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = DatabaseStore(database)
        self._given_out: dict[str, _GivenOut] = {}

    def give_out(self, task: str, devices: Sequence[str], going_on: Run | None = None) -> None:
        """Expect messages of a task.

        Args:
            task: its key.
            devices: names of those that its run was on, this one last.
            going_on: the interrupted run that it goes on with; its searcher may end before it says so.
        """
        given = self._given_out[task] = _GivenOut(tuple(devices))
        if going_on is not None:
            given.run, given.state = going_on.id, "interrupted"

    def finished(self, task: str) -> TaskDone | None:
        """Return the result of a task whose run has ended, for a searcher that could not say it any more."""
        given = self._given_out.get(task)
        if given is None or given.run is None or given.state != "finished":
            return None
        run = self.database.run(given.run)
        record: dict[str, Any] = {"run": run.id, "problem": run.problem.to_json(), "gpu": run.gpu.name}
        record |= {"device": run.device, "replayed": run.replayed, "winner": None}
        for stored in self.database.winners(Filters(run=run.id)).rows:
            winner = stored.winner
            record["winner"] = {
                "trial": winner.trial_id,
                "variant": winner.configuration.variant,
                "configuration": winner.configuration.values,
                "time_ns": winner.time_ns,
                "exportable": winner.exportable,
                "reason": winner.reason,
            }
            named = f"trial {winner.trial_id}: {winner.configuration}"
            text = f"{run.problem} on {run.gpu.name}\n  winner     {named}; its searcher ended before it said more"
            return TaskDone(task, run.id, stored.id, text, json.dumps(record).encode(), "")
        nothing = f"{run.problem}: no winner; tune query --run {run.id[:8]} shows its trials"
        return TaskDone(task, run.id, None, nothing, json.dumps(record).encode(), nothing)

    def take_back(self, task: str, *, innocent: bool) -> Run | None:
        """Refuse all further messages of a task; return the run to go on with, or None where nothing was measured.

        Args:
            task: its key.
            innocent: whether what was begun and has not ended has nothing to do with it.
        """
        given = self._given_out.pop(task, None)
        if given is None or given.run is None or given.state == "finished":
            return None
        if not given.state:
            stats = self.database.run_state(given.run)["stats"]
            self.database.finish_run(given.run, "interrupted", stats, forget_attempts=innocent)
        if self.store.rows(given.run) or self.database.pending_attempts(given.run):
            return self.database.run(given.run)
        self.database.delete_run(given.run)  # nothing was measured: it begins anew, and may on another device
        return None

    def write(self, messages: Sequence[Writes]) -> list[Answered | DatabaseRefused]:
        """Write what several searchers have sent in one transaction; return their answers, in order.

        If that fails, each is written by itself, so that only those fail that cannot be written.
        """
        before = {task: replace(given) for task, given in self._given_out.items()}
        try:
            with self.database.transaction():
                return [self._written(message) for message in messages]
        except DatabaseError as error:
            self.store.forget([given.run for given in self._given_out.values() if given.run])
            self._given_out = before
            if len(messages) == 1:
                return [DatabaseRefused(messages[0].task, messages[0].key, error.problem, error.remedy)]
        return [self.write([message])[0] for message in messages]

    def answer(self, query: Query) -> Answered | DatabaseRefused:
        """Return what a searcher asks for."""
        if query.task not in self._given_out:
            return _taken_back(query)
        try:
            value = self._look_up(query.question)
        except DatabaseError as error:
            return DatabaseRefused(query.task, query.key, error.problem, error.remedy)
        return Answered(query.task, query.key, msgspec.Raw(ANSWERS[type(query.question)].encode(value)))

    # -- reading

    def _look_up(self, question: Question) -> Any:
        store = self.store
        match question:
            case BestKnown(run=run, mark=mark):
                return store.best_known(run, mark)
            case KnownWinners(run=run, mark=mark):
                return store.known_winners(run, mark)
            case EarlierTrials(run=run, mark=mark):
                return store.earlier_trials(run, mark)
            case IntactTrials(rows=rows):
                return sorted(self.database.intact_rows(rows))
            case RelatedTrials(run=run, mark=mark, limit=limit):
                return store.related_trials(run, mark, limit)
            case PresentMark():
                return store.mark()
            case WhatIsLeft(run=run_id):
                return store.left_behind(run_id)
            case RowNumbers(run=run_id):
                return store.rows(run_id)
            case KeptRows(run=run_id, trials=trials, winner=winner):
                return store.confirm(run_id, trials, winner)

    # -- writing

    def _written(self, message: Writes) -> Answered | DatabaseRefused:
        given = self._given_out.get(message.task)
        if given is None:
            return _taken_back(message)
        if message.key > given.last:
            for row in message.rows:
                given.answer = self._write(given, row)
            given.last = message.key
        return Answered(message.task, message.key, msgspec.Raw(ROW_ANSWER.encode(given.answer)))

    def _write(self, given: _GivenOut, row: Row) -> int | None:
        """Write a row; return its number if it is a winner's."""
        store = self.store
        match row:
            case RunStarted(run=run, stats=stats):
                given.run = run.id
                store.start_run(run, stats)
            case RunResumed(run=run_id):
                given.run, given.state = run_id, ""
                store.resume_run(run_id)
            case Attempted(run=run_id, number=number, configuration=configuration):
                store.attempt(run_id, number, configuration)
            case TrialEnded(run=run_id, trial=trial, metrics=metrics):
                store.record(run_id, trial, metrics)
            case Retagged(run=run_id, number=number, tags=tags):
                store.retag(run_id, number, tags)
            case Unstable(run=run_id, number=number, reason=reason):
                store.mark_unstable(run_id, number, reason)
            case WinnerFound(run=run_id, winner=winner):
                return store.record_winner(run_id, winner)
            case RunEnded(run=run_id, state=state, stats=stats, forget_attempts=forget):
                store.finish_run(run_id, state, self._with_devices(given, stats), forget_attempts=forget)
                given.state = state
        return None

    def _with_devices(self, given: _GivenOut, stats: Mapping[str, Any]) -> dict[str, Any]:
        """Return statistics with the devices of a run that was on several."""
        return {**stats, "devices": list(given.devices)} if len(set(given.devices)) > 1 else dict(stats)


def _taken_back(message: Query | Writes) -> DatabaseRefused:
    return DatabaseRefused(message.task, message.key, "this problem was given to another searcher", "")
