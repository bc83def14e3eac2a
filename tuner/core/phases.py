"""When the phases of a run began and ended, and when its GPU was busy. Phases overlap; the rest is waiting."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


class Phases:
    """Phases of a run, which any thread may note."""

    def __init__(self) -> None:
        self._spans: list[tuple[str, float, float]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note how long a block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.note(name, began)

    def note(self, name: str, began: float, ended: float | None = None) -> None:
        """Note a phase by monotonic seconds; it ends now by default."""
        self._spans.append((name, began, time.monotonic() if ended is None else ended))

    def seconds(self, name: str, since: float = -math.inf) -> float:
        """Return how long the phases of a name took, from a moment in monotonic seconds on."""
        return sum(max(0.0, end - max(begin, since)) for one, begin, end in self._spans if one == name)

    def spans(self) -> list[tuple[str, float, float]]:
        """Return each phase with the seconds at which it began and ended, from the beginning of the first."""
        spans = sorted(self._spans, key=lambda span: span[1:])
        return [
            (name, round(began - spans[0][1], 2), round(ended - spans[0][1], 2))
            for name, began, ended in spans
        ]


def listed(spans: Iterable[tuple[str, float, float]]) -> str:
    """Return when each phase began and ended, in seconds, as text."""
    return ", ".join(f"{name} {begin:.2f} to {end:.2f}" for name, begin, end in spans)


@dataclass
class BusyTime:
    """How long the GPU was verifying, timing or resting on purpose; monotonic seconds."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    refined_s: float = 0.0
    """Seconds of it spent on more samples than a candidate's rank asked for, because no other was compiled yet."""

    def share(self, start: float, end: float) -> float:
        """Return the busy share of an interval."""
        if end <= start:
            return 0.0
        return sum(max(0.0, min(b, end) - max(a, start)) for a, b in self.spans) / (end - start)


def process_began() -> float:
    """Return the monotonic seconds at which this process began, as far as Linux tells; else now."""
    now = time.monotonic()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - max(0.0, age_s)
