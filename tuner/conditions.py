"""How times are taken, and how precisely a GPU can be timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Mode(StrEnum):
    """What the caches hold when a timed kernel starts."""

    COLD = "cold"
    """Nothing of its data: a sweep has read other memory. One kernel between two events."""
    ROTATING = "rotating"
    """Nothing of its data: many calls between two events, each on other copies of the tensors. For kernels so short
    that the events would be a part of the figure."""
    WARM = "warm"
    """Whatever the call before has left: many calls on the same tensors between two events."""


class Regime(StrEnum):
    """How hot the card is."""

    RESTED = "rested"
    """Kernels that draw much power get pauses, so that the power limit does not slow them."""
    SUSTAINED = "sustained"
    """No pauses, and a warm-up before: the clock is what the power limit leaves."""


@dataclass(frozen=True)
class Conditions:
    """How times are taken; times under different conditions are never compared."""

    mode: Mode = Mode.COLD
    regime: Regime = Regime.RESTED

    def __str__(self) -> str:
        return f"{self.mode}, {self.regime}"


SUSTAINED_NOISE = 0.01
"""Under sustained load the power limit's control loop moves the clock by some percent within tens of milliseconds."""
ABOUT_A_LAUNCH = 1.25
"""Times the least kernel up to which a time is the launch's: no configuration can change four fifths of it. The least
kernel is not an empty one, because no kernel of use is: on an H200 in rotation an empty kernel takes 0.71 us, an
addition of 2^10 floats 1.28 us, and one of 16 times as many 1.80 us."""
TIED_AT_LAUNCH = 2.0
"""The same where the fastest cannot be told apart: with half of the time alike for all of them that is no wonder, and
which of them comes out first is chance."""
LAUNCH_NOISE = 0.05
"""How far a time that is a launch's may be from itself in another process. On an H200 winners among additions of 2^10
and 2^16 floats, timed again in turn with the default configuration, were 3 and 5 % slower than it."""


@dataclass(frozen=True)
class Calibration:
    """What a GPU reached with the tuner's own kernels, for orientation, and how well it can be timed."""

    noise: Mapping[str, float]
    """How far from 1 the ratio of a kernel to itself gets when both are timed in turn, by conditions (as text)."""
    short_noise_ns: Mapping[str, float] = field(default_factory=dict)
    """The same as a time, by mode, of a kernel of a few microseconds: where its code happens to lie."""
    reference_ns: float = 0.0
    """Time of the kernel that watches for drift."""
    read_bytes_per_s: float = 0.0
    copy_bytes_per_s: float = 0.0
    """Bytes read and bytes written."""
    matrix_flops: float = 0.0
    """Of the tensor cores on 16-bit inputs, without any memory traffic, rested."""
    vector_flops: float = 0.0
    """Of float32 fused multiply-adds."""
    event_ns: float = 0.0
    """An empty kernel between two events: what a cold time of a short kernel contains of the measurement itself."""
    launch_ns: Mapping[str, float] = field(default_factory=dict)
    """The least kernel that moves anything, a warp that copies 512 bytes, by mode: a launch, and one trip to memory."""
    sm_clock_hz: float = 0.0
    """Seen by a kernel that draws little power."""
    measured: str = ""
    """Date and time."""
    notes: tuple[str, ...] = ()
    """What a reader of any time on this GPU should know: clocks held by their owner, other users, no NVML."""

    def noise_floor(self, conditions: Conditions, time_ns: float) -> float:
        """Return the noise of a kernel of this time under some conditions.

        A regime that was not calibrated counts as :data:`SUSTAINED_NOISE`.
        """
        share = self.noise.get(str(conditions), SUSTAINED_NOISE)
        if self.launch_decides(conditions, time_ns, tied=True):
            share = max(share, LAUNCH_NOISE)
        return max(share, self.short_noise_ns.get(str(conditions.mode), 0.0) / time_ns)

    def launch_decides(self, conditions: Conditions, time_ns: float, *, tied: bool = False) -> bool:
        """Return whether a time is the launch's more than the kernel's; never where no launch was calibrated.

        Args:
            conditions: under which it was taken.
            time_ns: of the fastest.
            tied: whether others cannot be told from it.
        """
        factor = TIED_AT_LAUNCH if tied else ABOUT_A_LAUNCH
        return time_ns <= factor * self.launch_ns.get(str(conditions.mode), 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that :meth:`from_json` reads back."""
        by_mode = {name: dict(getattr(self, name)) for name in ("noise", "short_noise_ns", "launch_ns")}
        return {**self.__dict__, **by_mode, "notes": list(self.notes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Calibration:
        """Rebuild what :meth:`to_json` gave."""
        return cls(**{**data, "notes": tuple(data["notes"])})
