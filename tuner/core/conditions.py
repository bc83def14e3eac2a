"""How times are taken, and how precisely a GPU can be timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import msgspec


class Mode(StrEnum):
    """What the caches hold when a timed kernel starts."""

    COLD = "cold"
    """None of its data: other memory was read in between. One call between two events."""
    ROTATING = "rotating"
    """None of its data: many calls between two events, each on other copies of the tensors. For kernels so short that
    the events' own time would show."""
    WARM = "warm"
    """What the previous call left: many calls on the same tensors between two events."""


class Regime(StrEnum):
    """Whether the power limit may slow the kernels."""

    RESTED = "rested"
    """Pauses between calls of power-hungry kernels, so that the power limit does not slow them."""
    SUSTAINED = "sustained"
    """A warm-up and no pauses: the clock is what the power limit leaves."""


@dataclass(frozen=True)
class Conditions:
    """The conditions of a timing; times under different conditions are never compared."""

    mode: Mode = Mode.COLD
    regime: Regime = Regime.RESTED

    def __str__(self) -> str:
        return f"{self.mode}, {self.regime}"


SUSTAINED_NOISE = 0.01
"""Share of a time. The power limit's control loop moves the clock by some percent within tens of milliseconds."""
ABOUT_A_LAUNCH = 1.25
"""A time of up to this many times a minimal kernel's is mostly launch overhead: no configuration can change four fifths
of it. The minimal kernel (:attr:`Calibration.launch_ns`) moves some data, as every useful kernel does: on an H200 in
rotation an empty kernel takes 0.71 us, an addition of 2^10 floats 1.28 us, and one of 16 times as many 1.80 us."""
TIED_AT_LAUNCH = 1.6
"""The same if the fastest are statistically tied: most of their time is the same overhead, and chance decides their
order. An addition of 2^16 floats takes 1.4 times the minimal kernel's time. At 1.9 times, a product of 640^3, finalists
had the same order on two cards."""
LAUNCH_NOISE = 0.05
"""Share by which a time that is mostly launch overhead may differ in another process. On an H200 the winners among
additions of 2^10 and 2^16 floats, timed again interleaved with the default configuration, were 3 and 5 % slower."""


@dataclass(frozen=True)
class Calibration:
    """What a GPU reaches with the tuner's own kernels, and the noise of its times."""

    noise: Mapping[str, float]
    """How far from 1 the ratio of a kernel's interleaved times to its own gets, by conditions (as text)."""
    short_noise_ns: Mapping[str, float] = field(default_factory=dict)
    """The same as a time, by mode, of a kernel of a few microseconds: it depends on the address of the code."""
    reference_ns: float = 0.0
    """Time of the kernel that detects drift."""
    read_bytes_per_s: float = 0.0
    copy_bytes_per_s: float = 0.0
    """Bytes read and bytes written."""
    matrix_flops: float = 0.0
    """FLOP/s of the tensor cores on 16-bit inputs, without memory traffic, rested."""
    vector_flops: float = 0.0
    """FLOP/s of float32 fused multiply-adds."""
    event_ns: float = 0.0
    """An empty kernel between two events: the overhead in the cold time of a short kernel."""
    launch_ns: Mapping[str, float] = field(default_factory=dict)
    """By mode, a minimal kernel, one warp that copies 512 bytes: the launch and one round trip to memory."""
    sm_clock_hz: float = 0.0
    """As a kernel sees it that draws little power."""
    measured: str = ""
    """Date and time."""
    notes: tuple[str, ...] = ()
    """What affects every time on this GPU: clocks that are locked, other users, no NVML."""

    def noise_floor(self, conditions: Conditions, time_ns: float) -> float:
        """Return the noise of a kernel of this time, as a share of it.

        Conditions that were not calibrated count as :data:`SUSTAINED_NOISE`.
        """
        share = self.noise.get(str(conditions), SUSTAINED_NOISE)
        if self.launch_decides(conditions, time_ns, tied=True):
            share = max(share, LAUNCH_NOISE)
        return max(share, self.short_noise_ns.get(str(conditions.mode), 0.0) / time_ns)

    def launch_decides(self, conditions: Conditions, time_ns: float, *, tied: bool = False) -> bool:
        """Return whether a time is mostly launch overhead; False if that was not calibrated.

        Args:
            conditions: under which it was taken.
            time_ns: of the fastest.
            tied: whether others are statistically tied with it.
        """
        factor = TIED_AT_LAUNCH if tied else ABOUT_A_LAUNCH
        return time_ns <= factor * self.launch_ns.get(str(conditions.mode), 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that :meth:`from_json` reads back."""
        by_mode = {name: dict(getattr(self, name)) for name in ("noise", "short_noise_ns", "launch_ns")}
        return {**self.__dict__, **by_mode, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """Rebuild what :meth:`to_json` returned.

        Raises:
            ValueError: a value of another type, a name of another version, no noise or no notes.
        """
        if not {"notes"} <= data.keys() <= {item.name for item in fields(cls)}:
            raise ValueError("a calibration of another version")
        return msgspec.convert(data, cls)
