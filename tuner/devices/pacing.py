"""Batches of launches of a candidate in a locked-in process, timed by the clock of this one.

How many launches a batch has is drawn here. No process can end one sooner than its launches take; the one that ends
soonest counts, since what else the host does makes others longer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from tuner.children.measuring import Paced
from tuner.core.model import Gpu
from tuner.runtime.launches import OUTPUTS, RESTORED, Buffer

BATCH_NS, GRAPH_NS, MOST_CALLS, MOST_LAUNCHES = 8e6, 1e6, 64, 2000
"""Of a batch: its length, that of the graph that is launched again and again, the calls in that, and its launches."""
BATCHES, ALL_NS = 6, 3e8
"""Of one candidate, fewer where all take longer; the first builds the graph and warms up."""
ASKING_NS = 5e5
"""In each batch, of asking and waiting."""
REST = 2.0
"""Pause before a batch, as a multiple of the one before: under load a GPU lowers its clocks."""
FACTOR = 1.35
"""Times as long as reported a call may take by this clock: under a power cap it takes up to 28 % longer
(:data:`tuner.gpu.timing.REST_FACTOR`)."""
APART_NS = 3e3
"""And so much more: what lies between two calls, which cold samples do not have."""


class Pacing:
    """Batches of one candidate.

    Args:
        time_ns: of a call, as its process says.
    """

    def __init__(self, time_ns: float) -> None:
        self.time_ns = time_ns = max(time_ns, 1.0)
        self._calls = max(1, min(MOST_CALLS, int(GRAPH_NS / time_ns)))
        draw, most = random.SystemRandom(), BATCH_NS / (self._calls * time_ns)
        batches = max(2, min(BATCHES, int(ALL_NS / max(time_ns, BATCH_NS))))
        self._waiting = [
            max(1, min(MOST_LAUNCHES, int(most * draw.uniform(1.0, 1.5)))) for _ in range(batches)
        ]
        """Launches of each batch."""
        self._spans: list[tuple[int, float]] = []
        """Launches and seconds."""
        self._now: tuple[int, float] | None = None
        """Launches that have begun, and when."""

    def next(self) -> Paced:
        """Note that a batch has ended, and begin the next."""
        if self._now is not None:
            launches, began = self._now
            self._spans.append((launches, time.monotonic() - began))
            time.sleep(min(1.0, REST * self._spans[-1][1]))
        launches = self._waiting.pop(0) if self._waiting else 0
        self._now = (launches, time.monotonic()) if launches else None
        return Paced(self._calls, launches)

    def objection(self, time_ns: float, tensors: Sequence[Buffer], gpu: Gpu) -> str:
        """Return how much longer a call takes by this clock than is reported; empty if it does not.

        Args:
            time_ns: as reported.
            tensors: of the problem; what leaves the L2 or is restored takes its time.
            gpu: where.
        """
        if self._waiting or self._now:
            return "it does not launch all that it is asked to"
        spans = self._spans[1:]
        by_clock_ns = min((1e9 * seconds - ASKING_NS) / (count * self._calls) for count, seconds in spans)
        per_ns = (gpu.memory_bytes_per_s or 1e12) / 1e9
        written = sum(tensor.size_bytes for tensor in tensors if tensor.role in OUTPUTS)
        restored = sum(tensor.size_bytes for tensor in tensors if tensor.role in RESTORED)
        apart_ns = APART_NS + min(written, gpu.l2_bytes) / per_ns
        apart_ns += (APART_NS + 3 * restored / per_ns) / self._calls if restored else 0.0
        if by_clock_ns <= FACTOR * time_ns + apart_ns:
            return ""
        return f"it says {time_ns / 1e3:.3g} us a call, and {by_clock_ns / 1e3:.3g} us pass outside of its process"
