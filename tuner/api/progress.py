"""Progress of ``tuner.tune``: a panel on a terminal, an area that is redrawn in a notebook, and nothing elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from tuner.core.observer import Observer
from tuner.report.progress import Progress, panel_lines
from tuner.tuning.state import SEARCHED, SEARCHING, State

REDRAW_EVERY_S = 0.5
_DRAWING = threading.Lock()
"""Held by the one call of this process that shows its progress."""


def progress(quiet: bool | None) -> Observer[State]:
    """Return what shows progress where somebody looks; ``quiet`` says no, or (False) yes on any stream."""
    if quiet or not (quiet is False or sys.stderr.isatty() or in_notebook()):
        return Observer()
    if not _DRAWING.acquire(blocking=False):
        return Observer()
    return _InNotebook() if in_notebook() else _Panel()


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class _Panel(Progress[State]):
    """Shows the search, and what follows as a line."""

    after = ""

    def __init__(self) -> None:
        super().__init__(lambda _: self.lines())
        self._released = False

    def lines(self) -> list[str]:
        """Return what is shown now."""
        assert self.now is not None
        return [*panel_lines(self.now), *([self.after] if self.after else [])]

    def phase(self, what: str, steps: float = 0) -> None:
        """Show what begins."""
        if what == SEARCHING:
            super().phase(what, steps)
        elif what != SEARCHED and self.now is not None:
            self.after = what
            self.step(self.now, self.done)

    def close(self) -> None:
        """Remove it all; another call may show its own."""
        super().close()
        if not self._released:
            self._released = True
            _DRAWING.release()


class _InNotebook(_Panel):
    """Redraws an area below the cell."""

    def __init__(self) -> None:
        super().__init__()
        self._area: Any = None
        self._drawn = 0.0

    def step(self, now: State, done: float | None = None) -> None:
        """Show where the run is, unless that was done a moment ago."""
        Observer.step(self, now)
        if time.monotonic() - self._drawn >= REDRAW_EVERY_S or done is not None:
            self._drawn = time.monotonic()
            self._show("\n".join(self.lines()))

    def note(self, text: str) -> None:
        """Show a line until the next step."""
        self._show(text)

    def _show(self, text: str) -> None:
        from IPython.display import display

        if self._area is None:
            self._area = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._area.update({"text/plain": text}, raw=True)

    def close(self) -> None:
        """Empty the area."""
        if self._area is not None:
            self._show("")
        super().close()
