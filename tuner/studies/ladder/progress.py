"""The progress of a ladder run on the standard error: a bar redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from tuner.core.observer import Observer
from tuner.report.progress import PLAIN_EVERY_S, Panel
from tuner.report.tables import duration
from tuner.studies.ladder.report import sizes_text
from tuner.studies.ladder.run import SweepProgress
from tuner.tuning.state import State


def make_progress(*, quiet: bool) -> SweepProgress:
    """Choose how to show progress."""
    if quiet:
        return _QuietSweep()
    return _LiveSweep() if sys.stderr.isatty() else _PlainSweep()


class _QuietSweep:
    """Count, and show nothing."""

    def __init__(self) -> None:
        self.steps = self.ended = 0
        self.began = time.monotonic()
        self.what = ""
        self.best = ""
        self.part = 0.0
        """Share of the current search that is done."""

    # -- of the ladder run

    def expect(self, steps: int) -> None:
        """Learn how much there will be, and begin to count the time."""
        self.steps, self.began = steps, time.monotonic()

    def step(self, sizes: Mapping[str, int], name: str) -> Observer[State]:
        """Begin a step's search; return its observer."""
        self.what, self.best, self.part = f"{sizes_text(sizes)}: {name}", "", 0.0
        self.announce()
        return _Search(self)

    def comparison(self, sizes: Mapping[str, int], count: int) -> None:
        """Begin to time the contestants of a size."""
        self.what, self.best, self.part = f"{sizes_text(sizes)}: timing {count} in turn", "", 0.0
        self.show()

    def done(self, steps: int = 1) -> None:
        """Count a search or comparison."""
        self.ended, self.part = self.ended + steps, 0.0

    def rest(self) -> None:
        """Make room for a table."""

    def searched(self, state: State) -> None:
        """Keep the best time so far of a step's search."""
        incumbent = state.incumbent
        self.best = f"best {duration(incumbent.time_ns)}" if incumbent else ""
        self.part = min(1.0, len(state.trials) / max(1, min(state.budget, len(state.space))))
        self.tick()

    def tick(self) -> None:
        """Show the progress, if the last time is long enough ago."""

    # -- what is shown

    def announce(self) -> None:
        """Show that a search begins; the device may have to be prepared for it first."""

    def show(self) -> None:
        """Show the current step."""

    def line(self) -> str:
        """Return the progress as a line, with the time of the rest if it goes on like this."""
        spent_s, finished = time.monotonic() - self.began, self.ended + self.part
        parts = [f"step {min(self.ended + 1, self.steps)}/{self.steps}", self.what, self.best]
        if finished >= 1:
            parts.append(f"ETA {spent_s / finished * (self.steps - finished):.0f} s")
        return "  ".join(filter(None, parts))


class _Search(Observer[State]):
    """Tells the progress of a ladder how far a step's search is."""

    def __init__(self, sweep: _QuietSweep) -> None:
        self._sweep = sweep

    def step(self, now: State, done: float | None = None) -> None:
        super().step(now, done)
        self._sweep.searched(now)


class _PlainSweep(_QuietSweep):
    """A line every few seconds."""

    def announce(self) -> None:
        self.show()

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic() - PLAIN_EVERY_S

    def show(self) -> None:
        if time.monotonic() - self._last >= PLAIN_EVERY_S:
            self._last = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def tick(self) -> None:
        self.show()


class _LiveSweep(_QuietSweep):
    """A bar and a line that are redrawn in place, and gone while a table is printed.

    They appear when the device is ready: what it has to say before would run into them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._panel: Panel | None = None

    def announce(self) -> None:
        if self._panel is not None:
            self.show()

    def show(self) -> None:
        if self._panel is None:
            self._panel = Panel()
            self._panel.start()
        self._panel.draw(self.ended + self.part, self.steps, [self.line()])

    def tick(self) -> None:
        if self._panel is None or self._panel.due:
            self.show()

    def rest(self) -> None:
        # The cursor is hidden until the panel stops, however the ladder ends.
        if self._panel is not None:
            self._panel.stop()
            self._panel = None
