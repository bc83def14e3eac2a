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
from tuner.core.model import Problem, Run
from tuner.database.records import Mark
from tuner.fleet.messages import Answered, Call, Calls, Task
from tuner.tuning.store import Store

READS = frozenset(
    (
        "mark", "best_known", "known_winners", "earlier_trials", "intact", "related_trials", "left_behind", "rows",
        "require_rows",
    )
)  # fmt: skip
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
    if method not in READS | WRITES:
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
        if method not in READS | WRITES:
            raise AttributeError(method)
        return partial(self._call, method)

    def adopt_runs(self, kernel: str, legacy: Callable[[], str], computation: str, text: str) -> None:
        """Do nothing: the head has done it."""

    def latest_unfinished(
        self,
        problem: Problem,  # noqa: ARG002
        device: str,  # noqa: ARG002
        wanted: Callable[[Run], bool],  # noqa: ARG002
    ) -> Run | None:
        """Return the run that came with the task."""
        return self._task.going_on

    def refuse_going_on(self, problem: Problem, device: str) -> None:
        """Do nothing: the head has this run."""

    def mark_of(self, run_id: str) -> Mark | None:  # noqa: ARG002
        """Return what came with the task's run."""
        return self._task.mark

    def hurry(self) -> None:
        """Do nothing: the head knows that the user wants to leave."""

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
