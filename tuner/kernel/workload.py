"""A problem's batches and hardware limits, as the measuring process gets them."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_NS = 250_000.0
"""Length of a batch: the two events' cost is then below 1 % of it."""
LONGEST_FACTOR = 4.0
"""Multiple of its length that a batch may take: kernels far slower than the speed of light get fewer calls."""
HEAVY_SHARE = 0.15
"""Share of the peak FLOP rate above which the power limit may slow a kernel."""


@dataclass(frozen=True)
class Batch:
    """Calls between two events, and copies of the tensors that they use in turn."""

    calls: int
    copies: int
    length_ns: float = BATCH_NS

    def calls_for(self, estimate_ns: float) -> int:
        """Return the calls of a candidate: fewer than the batch's only if it is very slow.

        Args:
            estimate_ns: time of one call.
        """
        return max(1, min(self.calls, int(LONGEST_FACTOR * self.length_ns / max(estimate_ns, 1.0))))


@dataclass(frozen=True)
class Limits:
    """Limits of the hardware for one problem."""

    floor_ns: float
    """No kernel can be faster: the speed of light, less what the L2 can hold and a tolerance for clocks."""
    flops: float
    peak_flops: float

    def heavy(self, time_ns: float) -> bool:
        """Return whether the power limit may slow a kernel of this time."""
        return self.peak_flops > 0 and self.flops > HEAVY_SHARE * self.peak_flops * time_ns * 1e-9
