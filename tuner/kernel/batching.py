"""How a problem is timed: its conditions and batches, chosen from its work and size alone, so that all runs agree; and
the hardware's limits, as the measuring process gets them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Gpu
from tuner.runtime.launches import Buffer

if TYPE_CHECKING:  # the measuring process takes batches, and has no kernels
    from tuner.kernel.roofline import Roof

SHORT_NS = 20_000.0
"""Speed of light below which a problem is short. On an H200 the events around a single kernel cost 1.2 to 2.6 us, and
the address of its code changes a cold time by 0.1 us: up to some 30 us both are visible in the time."""
LAUNCH_NS = 1_500.0
"""From the end of a graph's kernel to the start of the next but one, with an empty kernel in between."""
MIN_CALLS, MAX_CALLS = 8, 160
"""Of a batch: enough that the events' cost is shared, and few enough that its copies of the tensors fit in memory."""
SUSTAINED_BATCH_NS = 400e6
"""Length of a batch under sustained load, where the power limit's control loop moves the clock by some percent every
few tens of milliseconds: means over 0.1 s of a cuBLAS product on an H200 differ by 8 %, over 0.4 s by 2.6 %, over 1 s
by 0.7 %."""
MAX_SUSTAINED_CALLS = 2000
COLD_FACTOR = 2.5
"""Multiple of the L2's size that must be read before a buffer read earlier is certainly evicted."""
WARM_DIFFERS_NS = 100_000.0
"""Time below which another configuration may be best in the mode warm. Longer kernels are as fast with cold data,
within a few percent: what the L2 may hold is then a small part of their work. On an H200 an addition takes 4.76 us
rotating and 2.45 us warm at 2^20 floats, 13.5 and 12.1 us at 2^22, 47.8 and 48.2 us at 2^24; torch.mm takes 6.26 and
5.44 us at 1024^3, and 170.9 and 171.4 us at 4096^3. Data larger than the L2 do not settle it: on an H100 means over
46896 rows of 1728 bfloat16, 155 MiB, take 61.9 us cold and 68.0 us warm where the L2 evicts them first, and 65.1 and
63.8 us where it does not."""


def footprint(tensors: Sequence[Buffer]) -> int:
    """Return the bytes of all tensors of a problem."""
    return sum(tensor.size_bytes for tensor in tensors)


def choose_conditions(roof: Roof, mode: Mode | None, regime: Regime) -> tuple[Conditions, str]:
    """Return the conditions of a problem's times, and the reason.

    The choice depends on the roofline alone, not on a measured time: all runs of a problem on a GPU must choose alike,
    or their results could not be ranked together.

    Args:
        roof: the problem's work and the GPU's ceilings.
        mode: the user's choice, or None.
        regime: the user's choice.
    """
    minimum_ns = roof.speed_of_light_ns
    if mode is not None:
        return Conditions(mode, regime), "as asked"
    if regime is Regime.SUSTAINED:
        return Conditions(Mode.ROTATING, regime), "a sustained load runs back to back, on new data each time"
    if minimum_ns < SHORT_NS:
        why = f"{minimum_ns / 1e3:.2g} us at the speed of light: too short for the events around a single kernel"
        return Conditions(Mode.ROTATING, regime), why
    why = f"{minimum_ns / 1e3:{'.3g' if minimum_ns < 1e6 else '.0f'}} us at the speed of light"
    if roof.bound == "compute":
        why += "; a kernel near the peak gets pauses, because the power limit would slow it"
    return Conditions(Mode.COLD, regime), why


def batch_of(roof: Roof, tensors: Sequence[Buffer], gpu: Gpu, conditions: Conditions) -> Batch:
    """Return the calls between two events and the copies of the tensors, the same for all candidates of a problem.

    Before rotating calls use a copy of the tensors again, they read other copies of more than :data:`COLD_FACTOR` times
    the L2. If the calls are too few for that, each copy is used once, after the flush at the start of each batch.
    Tensors that are so large themselves need no copies.
    """
    mode, sustained = conditions.mode, conditions.regime is Regime.SUSTAINED
    if mode is Mode.COLD:
        return Batch(1, 1)
    length_ns = SUSTAINED_BATCH_NS if sustained else BATCH_NS
    most = MAX_SUSTAINED_CALLS if sustained else MAX_CALLS
    calls = math.ceil(length_ns / (roof.speed_of_light_ns + LAUNCH_NS))
    calls = max(MIN_CALLS, min(most, calls))
    evicting, own = COLD_FACTOR * gpu.l2_bytes, footprint(tensors)
    if mode is Mode.WARM or own >= evicting:
        return Batch(calls, 1, length_ns)
    return Batch(calls, min(calls, 1 + math.ceil(evicting / own)), length_ns)


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
