"""How a problem is timed: from its work and its footprint, before anything is run, so that every run of it agrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.model import Conditions, Gpu, Mode, Regime
from tuner.plan import Buffer
from tuner.roofline import Roof

SHORT_NS = 20_000.0
"""Speed of light below which a problem is short. The events around a single kernel cost 1.2 to 2.4 us on an H200, and
where its code happens to lie moves a cold time by 0.1 us: up to some 30 us that is a visible part of the figure."""
BATCH_NS = 250_000.0
"""Length of a batch: the two events' cost is then below 1 % of it."""
LAUNCH_NS = 1_500.0
"""From the end of a kernel of a graph to the start of the next, and an empty kernel in between."""
MIN_CALLS, MAX_CALLS = 8, 160
COLD_FACTOR = 2.5
"""Times the L2 that must go by before a buffer read earlier has certainly left it."""
HEAVY_SHARE = 0.15
"""Share of the peak FLOP rate above which a kernel draws enough power to be slowed by the power limit."""


@dataclass(frozen=True)
class Batch:
    """Calls between two events, and copies of the tensors that they go through in turn."""

    calls: int
    copies: int


def footprint(tensors: Sequence[Buffer]) -> int:
    """Give the bytes of all tensors of a problem."""
    return sum(tensor.size_bytes for tensor in tensors)


def choose_conditions(roof: Roof, mode: Mode | None, regime: Regime) -> tuple[Conditions, str]:
    """Settle mode and regime, and say why.

    The choice rests on the roofline alone, not on a measured time: every run of a problem on a GPU must choose alike,
    or its results could not be ranked together.

    Args:
        roof: the problem's work under the GPU's ceilings.
        mode: as the user wants it, or None.
        regime: as the user wants it.
    """
    least_ns = roof.speed_of_light_ns
    if mode is not None:
        return Conditions(mode, regime), "as asked"
    if regime is Regime.SUSTAINED:
        return Conditions(Mode.ROTATING, regime), "a sustained load runs back to back, on new data each time"
    if least_ns < SHORT_NS:
        why = (
            f"{least_ns / 1e3:.2g} us at the speed of light: too short for the events around a single kernel"
        )
        return Conditions(Mode.ROTATING, regime), why
    why = f"{least_ns / 1e3:.3g} us at the speed of light"
    if roof.bound == "compute":
        why += "; a kernel near the peak gets pauses, because the power limit would slow it"
    return Conditions(Mode.COLD, regime), why


def batch_of(roof: Roof, tensors: Sequence[Buffer], gpu: Gpu, mode: Mode) -> Batch:
    """Settle how many calls share a pair of events; the same for all candidates of a problem.

    Rotating calls need so many copies of the tensors that other copies of more than :data:`COLD_FACTOR` times the L2
    are touched before one is used again; where the calls are too few for that, each copy is used only once, behind the
    flush that is at the start of each batch. Tensors that are so large themselves need no copy.
    """
    if mode is Mode.COLD:
        return Batch(1, 1)
    calls = math.ceil(BATCH_NS / (roof.speed_of_light_ns + LAUNCH_NS))
    calls = max(MIN_CALLS, min(MAX_CALLS, calls))
    enough, own = COLD_FACTOR * gpu.l2_bytes, footprint(tensors)
    if mode is Mode.WARM or own >= enough:
        return Batch(calls, 1)
    return Batch(calls, min(calls, 1 + math.ceil(enough / own)))
