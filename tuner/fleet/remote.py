"""A method of a run's store, called over a pipe: its name and its arguments, as :class:`Store` has their types.

The head has the database; when it answers, what was written is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, get_type_hints

import msgspec

from tuner.core.errors import DatabaseError
from tuner.core.messages import Codec
from tuner.core.model import Run
from tuner.database.records import Mark
from tuner.fleet.messages import Answered, Call, Calls, Task
from tuner.tuning.store import Store

WRITES = frozenset(
    (
        "start_run", "resume_run", "attempt", "record", "retag", "reject", "record_winner", "finish_run",
    )
)  # fmt: skip
"""What goes to the disk, all of one message or nothing."""

Ask = Callable[[Calls], Answered]


@cache
def form_of(method: str) -> tuple[tuple[str, ...], Codec[tuple[Any, ...]], Codec[Any]]:
    """Return the names of a method's parameters, and how they and its answer are written.

    Raises:
        DatabaseError: it cannot be called from another process.
    """
    if method not in METHODS:
        raise DatabaseError(f"{method!r} is no method of a run's store")
    kinds = get_type_hints(getattr(Store, method))
    answer = kinds.pop("return")
    return tuple(kinds), Codec(tuple.__class_getitem__(tuple(kinds.values()))), Codec(answer)


def call_of(method: str, *given: Any, **named: Any) -> Call:
    """Return a call of a method with these arguments."""
    names, arguments, _ = form_of(method)
    values = (*given, *(named[name] for name in names[len(given) :]))
    return Call(method, msgspec.Raw(arguments.encode(values)))


class RemoteStore:
    """The store of a task's run (:class:`tuner.tuning.store.Store`): methods that are not here are calls of the head's.

    Args:
        task: what is tuned.
        ask: sends a message to the head, and returns its answer.
    """

    def __init__(self, task: Task, ask: Ask) -> None:
        self._task, self._ask = task, ask
        self._key = 0
        self._open: list[Call] | None = None
        """What the transaction under way is to write."""

    def __getattr__(self, method: str) -> Any:
        """Return a function that calls a method."""
        if method not in METHODS:
            raise AttributeError(method)
        return partial(self._call, method)

    def adopt_runs(self, *_: object) -> None:
        """Do nothing: the head has done it, has this run, and knows that the user wants to leave."""

    refuse_going_on = hurry = adopt_runs

    def latest_unfinished(self, *_: object) -> Run | None:
        """Return the run that came with the task."""
        return self._task.going_on

    def mark_of(self, _run: str) -> Mark | None:
        """Return what came with the task's run."""
        return self._task.mark

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Send what the block writes together, and return when it is on the disk; nothing if the block fails."""
        if self._open is not None:
            yield
            return
        self._open = []
        try:
            yield
            calls = self._open
        finally:
            self._open = None
        if calls:
            self._send(calls)

    def _call(self, method: str, *given: Any, **named: Any) -> Any:
        """Return what a method answers; None for what is written at the end of the transaction under way."""
        call = call_of(method, *given, **named)
        if self._open is not None and method in WRITES:
            self._open.append(call)
            return None
        return self._send([call])

    def _send(self, calls: Sequence[Call]) -> Any:
        """Send calls, and return the answer to the last one."""
        self._key += 1
        answer = self._ask(Calls(self._task.key, self._key, tuple(calls)))
        if answer.error:
            raise DatabaseError(answer.error, answer.remedy)
        return form_of(calls[-1].method)[2].decode(answer.value)


METHODS = frozenset(name for name in vars(Store) if not name.startswith("_")) - vars(RemoteStore).keys()
"""The methods of a store that are calls of the head's."""
