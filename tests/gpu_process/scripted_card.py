"""A GPU whose clocks, power and times follow a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.gpu.clocks import Span

FOREVER = math.inf


class Card:
    """Context, NVML, stamps and tensors of one GPU, and the only clock there is."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.queued_s = 0.0
        self.elapsed_ns = 0.0
        """Of the last launch, on the GPU's clock."""
        self.sm_clock_hz = 1.9e9
        self.spells: list[tuple[float, float, str]] = []
        """What holds the clocks down: from, to, why; in seconds from the start."""
        self.slept: list[float] = []
        self.poisoned = 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert not self.queued_s, "slept with work on the GPU"
        self.slept.append(seconds)
        self.now += seconds

    def synchronize(self) -> None:
        self.now += self.queued_s
        self.queued_s = 0.0

    def reasons(self) -> frozenset[str]:
        return frozenset(why for start, end, why in self.spells if start <= self.now - 1000.0 < end)

    def read(self) -> Span:
        assert not self.queued_s, "read with work on the GPU"
        return Span(self.elapsed_ns, self.sm_clock_hz if self.elapsed_ns else 0.0)

    def poison(self) -> None:
        self.poisoned += 1


@dataclass(frozen=True)
class Take:
    """What is odd about one launch of a group."""

    events: float = 1.0
    """What the events say, over the truth."""
    stamps: float = 1.0
    """What the GPU's clock says, over the truth."""
    other_ns: float = 0.0
    """Work of another process between the stamps."""


class Group:
    """Samples of a kernel of a known time."""

    def __init__(
        self,
        card: Card,
        time_ns: float = 1e6,
        samples: int = 10,
        calls: int = 1,
        lead: int = 0,
        gap_ns: float = 0.0,
        takes: Sequence[Take] = (Take(),),
    ) -> None:
        self.card, self.time_ns, self.gap_ns, self.takes = card, time_ns, gap_ns, takes
        self.samples, self.calls, self.lead = samples, calls, lead
        self.data = self.stamps = card
        self.before_ns = 0.0
        self.launches = 0
        self.closed = False

    @property
    def take(self) -> Take:
        """The one of the last launch; the last of the script goes on for ever."""
        return self.takes[min(self.launches, len(self.takes)) - 1]

    @property
    def busy_s(self) -> float:
        return 1e-9 * self.samples * (self.time_ns * (self.calls + self.lead) + self.gap_ns)

    def launch(self) -> None:
        self.launches += 1
        self.card.queued_s += self.busy_s + 1e-9 * self.take.other_ns
        self.card.elapsed_ns = (1e9 * self.busy_s + self.take.other_ns) * self.take.stamps

    def read(self) -> list[float]:
        assert not self.card.queued_s, "read with work on the GPU"
        return [self.time_ns * self.take.events] * self.samples

    def close(self) -> None:
        self.closed = True
