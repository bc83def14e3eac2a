"""The head's side of the database: answers what searchers ask, and writes what they send, each row once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tuner.core.errors import DatabaseError
from tuner.core.model import Run
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.fleet.messages import Answered, Call, Calls, TaskDone
from tuner.fleet.remote import WRITES, form_of
from tuner.report.tables import picked, trial_identity


@dataclass
class _GivenOut:
    """A task that a searcher works on."""

    devices: tuple[str, ...]
    """Where its run was before, and where it is now."""
    run: str | None = None
    """Id of its run, once it has begun."""
    last: int = 0
    """Key of the last message that was written."""
    answer: msgspec.Raw = field(default_factory=msgspec.Raw)
    """What it was answered with."""
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
            record["winner"] = trial_identity(stored.trial) | picked(winner, "time_ns exportable reason")
            named = f"#{winner.trial_id}: {winner.configuration}"
            text = f"{run.problem} on {run.gpu.name}\n  winner     {named}; its searcher ended before it said more"
            return TaskDone(run.id, text, json.dumps(record).encode(), "")
        nothing = f"{run.problem}: no winner; tune trials --run {run.id[:8]} shows its trials"
        return TaskDone(run.id, nothing, json.dumps(record).encode(), nothing)

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
        if self.database.rows(given.run) or self.database.pending_attempts(given.run):
            return self.database.run(given.run)
        self.database.delete_run(given.run)  # nothing was measured: it begins anew, and may on another device
        return None

    def answer(self, messages: Sequence[Calls]) -> list[Answered]:
        """Do what searchers ask for, and return the answers, in order; all that they write is one transaction.

        If that fails, each is written by itself, so that only those fail that cannot be written.
        """
        writing = [message for message in messages if any(call.method in WRITES for call in message.calls)]
        written = iter(self._write(writing))
        return [next(written) if message in writing else self._read(message) for message in messages]

    def _write(self, messages: Sequence[Calls]) -> list[Answered]:
        if not messages:
            return []
        before = {task: replace(given) for task, given in self._given_out.items()}
        try:
            with self.database.transaction():
                return [self._written(message) for message in messages]
        except (DatabaseError, ValueError) as error:
            self._given_out = before
            if len(messages) == 1:
                return [_refused(messages[0], error)]
        return [self._write([message])[0] for message in messages]

    def _written(self, message: Calls) -> Answered:
        given = self._given_out.get(message.task)
        if given is None:
            return _taken_back(message)
        if message.key > given.last:
            for call in message.calls:
                given.answer = self._call(given, call)
            given.last = message.key
        return Answered(message.task, message.key, given.answer)

    def _read(self, message: Calls) -> Answered:
        given = self._given_out.get(message.task)
        if given is None:
            return _taken_back(message)
        try:
            (call,) = message.calls
            return Answered(message.task, message.key, self._call(given, call))
        except (DatabaseError, ValueError) as error:
            return _refused(message, error)

    def _call(self, given: _GivenOut, call: Call) -> msgspec.Raw:
        """Do one call, and keep what it says of a task's run."""
        names, form, answer = form_of(call.method)
        arguments = dict(zip(names, form.decode(call.arguments), strict=True))
        match call.method:
            case "start_run":
                given.run = arguments["run"].id
            case "resume_run":
                given.run, given.state = arguments["run_id"], ""
            case "finish_run":
                given.state = arguments["state"]
                if len(set(given.devices)) > 1:
                    arguments["stats"] = {**arguments["stats"], "devices": list(given.devices)}
        return msgspec.Raw(answer.encode(getattr(self.database, call.method)(**arguments)))


def _taken_back(message: Calls) -> Answered:
    return _refused(message, DatabaseError("this problem was given to another searcher"))


def _refused(message: Calls, error: Exception) -> Answered:
    if isinstance(error, DatabaseError):
        return Answered(message.task, message.key, error=error.problem, remedy=error.remedy)
    return Answered(message.task, message.key, error=f"{type(error).__name__}: {error}")
