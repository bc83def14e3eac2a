"""The progress of a study on the standard error, and of a search that is one of its steps."""

from __future__ import annotations

import math

from tuner.core.observer import Observer
from tuner.report.progress import PLAIN_EVERY_S, Progress
from tuner.report.tables import duration
from tuner.tuning.state import State


def make_progress(*, quiet: bool, every_s: float = PLAIN_EVERY_S) -> Observer[str]:
    """Choose how to show progress; where lines stay, the first step has one, and one every so many seconds."""
    return Observer() if quiet else _StudyProgress(every_s)


class _StudyProgress(Progress[str]):
    def __init__(self, every_s: float) -> None:
        super().__init__(_line, every_s)
        self._said = -math.inf


def _line(progress: Progress[str]) -> list[str]:
    number = f"step {min(int(progress.done) + 1, int(progress.steps))}/{progress.steps:.0f}"
    eta = "" if progress.eta_s is None else f"ETA {progress.eta_s:.0f} s"
    return ["  ".join(filter(None, (number, progress.now, eta)))]


class SearchOfStep(Observer[State]):
    """Tells a study how far the search of one of its steps is.

    Args:
        study: is told.
        what: the step.
        done: steps that ended before.
    """

    def __init__(self, study: Observer[str], what: str, done: int) -> None:
        self._study, self._what, self._done = study, what, done
        study.step(what, done)

    def step(self, now: State, done: float | None = None) -> None:
        """Say how far it is, and the best time so far."""
        super().step(now, done)
        best = f"  best {duration(now.incumbent.time_ns)}" if now.incumbent else ""
        share = len(now.trials) / max(1, min(now.budget, len(now.space)))
        self._study.step(f"{self._what}{best}", self._done + min(1.0, share))
