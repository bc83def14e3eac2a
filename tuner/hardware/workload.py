"""What a measuring process is told of a problem's work: the calls of a batch, and what the hardware allows."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_NS = 250_000.0
"""Length of a batch: the two events' cost is then below 1 % of it."""
LONGEST_FACTOR = 4.0
"""Times its length that a batch may take: kernels that are slower than the speed of light promises get fewer calls."""
HEAVY_SHARE = 0.15
"""Share of the peak FLOP rate above which a kernel draws enough power to be slowed by the power limit."""


@dataclass(frozen=True)
class Batch:
    """Calls between two events, and copies of the tensors that they go through in turn."""

    calls: int
    copies: int
    length_ns: float = BATCH_NS

    def calls_for(self, estimate_ns: float) -> int:
        """Return the calls of a candidate: fewer than of the others only where it is very slow."""
        return max(1, min(self.calls, int(LONGEST_FACTOR * self.length_ns / max(estimate_ns, 1.0))))


@dataclass(frozen=True)
class Limits:
    """What the hardware allows for one problem."""

    floor_ns: float
    """No kernel can be faster: the speed of light, less what the L2 can hold and a tolerance for clocks."""
    flops: float
    peak_flops: float

    def heavy(self, time_ns: float) -> bool:
        """Whether a kernel of this time works hard enough to be slowed by the power cap."""
        return self.peak_flops > 0 and self.flops > HEAVY_SHARE * self.peak_flops * time_ns * 1e-9
