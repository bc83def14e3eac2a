"""The progress of a fleet on the standard error: a line for each device."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from tuner.core.observer import Observer
from tuner.fleet.cards import Card, Job, Lane, Phase
from tuner.fleet.head import Head
from tuner.fleet.messages import TaskDone
from tuner.report.progress import Progress

PLAIN_EVERY_S = 10.0
"""From one look at all devices to the next where lines stay."""


class Announcer:
    """A watcher that prints, and passes results on.

    Args:
        on_done: gets each result.
        on_failed: gets each problem that could not be tuned, and why.
        quiet: print no progress.
    """

    def __init__(
        self, on_done: Callable[[Job, TaskDone], None], on_failed: Callable[[Job, str], None], *, quiet: bool
    ) -> None:
        self._observer: Observer[Head] = Observer() if quiet else Progress(self._lines, PLAIN_EVERY_S)
        self._began = time.monotonic()
        self._said: set[tuple[str, str]] = set()
        self.note, self.close = self._observer.note, self._observer.close
        self.done, self.failed = on_done, on_failed

    def said(self, card: Card, text: str) -> None:
        """Print what a device says, once for each device."""
        if (card.name, text) not in self._said:
            self._said.add((card.name, text))
            self.note(f"{card.name}: {text}")

    def began(self, card: Card, job: Job, lines: Sequence[str]) -> None:
        """Print what is tuned where."""
        if job.worth:
            self.note(f"{card.name}: {job.name}: {job.worth}")
        for line in lines[:1] if sys.stderr.isatty() else lines:
            self.note(f"{card.name}: {line}")

    def step(self, head: Head) -> None:
        """Show how far each device is, now and then."""
        self._observer.step(head)

    def _lines(self, progress: Progress[Head]) -> list[str]:
        """Return how far everything is, and how long the rest may take; then a line for each device."""
        head = progress.now
        assert head is not None
        progress.done, progress.steps = done, total = _trials(head)
        parts = [f"{len(head.ended)} of {len(head.jobs)} problems", f"{done} of {total} trials"]
        if all(card.left_out for card in head.cards):
            parts.append("waiting for a worker (tune cluster status)")
        elapsed_s = time.monotonic() - self._began
        if done - head.trials_before > 0 and done < total:
            parts.append(f"ETA {elapsed_s * (total - done) / (done - head.trials_before):.0f} s")
        return [", ".join(parts), *map(line_of, head.cards)]


def line_of(card: Card) -> str:
    """Return what a device does, in a line."""
    if card.left_out:
        return f"{card.name}  left out: {card.left_out}"
    parts = [_lane(lane) for lane in sorted(card.busy, key=lambda lane: lane.phase is not Phase.SEARCHING)]
    if not parts:
        parts = ["resting" if not card.lanes else "starting" if card.of(Phase.STARTING) else "idle"]
    return f"{card.name}  {'; '.join(parts)}"


def _lane(lane: Lane) -> str:
    assert lane.job is not None
    progress = lane.progress
    match lane.phase:
        case Phase.SEARCHING:
            return f"{lane.job.name}  {progress.line if progress else 'searching'}"
        case Phase.FINISHING if progress is not None:
            return f"{lane.job.name}: {progress.phase}"
        case _:
            return f"{lane.job.name}: prepared"


def _trials(head: Head) -> tuple[int, int]:
    """Return how many trials have ended, and how many there will be."""
    under_way = {lane.job: lane.progress for card in head.cards for lane in card.busy}
    ended, done = set(head.ended), 0
    for job in head.jobs:
        progress = under_way.get(job)
        done += job.task.options.trials if job in ended else progress.trials if progress else job.trials
    return done, sum(job.task.options.trials for job in head.jobs)
