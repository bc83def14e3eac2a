"""What work that takes long is told to: one form is quiet, one shows progress (report/progress.py), one sends it on."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Observer(Generic[T]):
    """Told how far some work is; this form shows nothing.

    ``T`` is what it is told at each step: a text, or the state of a run.
    """

    now: T | None = None
    """The last step."""

    def phase(self, what: str, steps: float = 0) -> None:
        """Begin a phase, of so many steps; 0 where their number is not known."""

    def step(self, now: T, done: float | None = None) -> None:  # noqa: ARG002 - for other forms
        """Say what is under way, and how many steps are done; without a number, one more than the last time."""
        self.now = now

    def note(self, text: str) -> None:
        """Say something that stays."""

    def close(self) -> None:
        """Release the terminal, however the work ended; a further step takes it again."""
