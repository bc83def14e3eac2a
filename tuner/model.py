"""The nouns of tuning, as frozen records without behaviour that costs anything.

Times are nanoseconds where the name ends in ``_ns`` and seconds where it ends in ``_s``; sizes are bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Value = int | float | bool | str
"""What a parameter, a size or an option can be."""


class Status(StrEnum):
    """How a trial ended; one word for each cause, so that failures can be counted by kind."""

    OK = "ok"
    SLOW = "slow"
    """Verified, but so far behind the incumbent that only a few samples were taken."""
    INVALID_CONFIG = "invalid_config"
    """Refused without the GPU: a constraint on what the compiler reported does not hold."""
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILE_OOM = "compile_oom"
    LAUNCH_ERROR = "launch_error"
    OUT_OF_MEMORY = "out_of_memory"
    MEMORY_FAULT = "memory_fault"
    """The kernel destroyed its context: illegal or misaligned address, trap, illegal instruction."""
    HANG = "hang"
    WORKER_DIED = "worker_died"
    CRASHED = "crashed"
    """The whole tuner died on this configuration twice; it is not tried again."""
    WRONG_RESULT = "wrong_result"
    UNVERIFIED = "unverified"
    """There was nothing to compare the output with; timed, but never best."""
    TOO_FAST = "too_fast"
    """The hardware cannot be so fast: something was measured, but not this kernel's work."""
    CLOCK_MISMATCH = "clock_mismatch"
    """The events contradict the clock on the wall, or the one on the GPU."""
    WRONG_AFTER_TIMING = "wrong_after_timing"
    """Right when it was checked, wrong when it was timed."""
    UNSTABLE = "unstable"
    """A finalist that a fresh process could not reproduce."""
    INACCURATE = "inaccurate"
    """Right for its dtype, but further from the true result than the user allows."""

    @property
    def ranked(self) -> bool:
        """Whether a trial with this status may compete to be the best."""
        return self in (Status.OK, Status.SLOW)


def canonical_json(value: Any) -> str:
    """Serialise with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Hash text, bytes or anything JSON can hold; 32 hexadecimal digits of SHA-256."""
    data = (
        value
        if isinstance(value, bytes)
        else (value if isinstance(value, str) else canonical_json(value)).encode()
    )
    return hashlib.sha256(data).hexdigest()[:32]


@dataclass(frozen=True)
class Problem:
    """What is to be computed: a kernel's name with every size, dtype role and option settled."""

    kernel: str
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    options: Mapping[str, Value] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that :meth:`from_json` reads back."""
        return {
            "kernel": self.kernel,
            "sizes": dict(self.sizes),
            "dtypes": dict(self.dtypes),
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Problem:
        """Rebuild what :meth:`to_json` gave."""
        return cls(data["kernel"], dict(data["sizes"]), dict(data["dtypes"]), dict(data.get("options", {})))

    @property
    def key(self) -> str:
        """Text that is equal exactly when the problems are."""
        return canonical_json(self.to_json())

    @property
    def dtype(self) -> str:
        """The dtype of the first role, which is the one a user names with ``--dtype``; empty where none is known."""
        return next(iter(self.dtypes.values()), "")

    def __str__(self) -> str:
        sizes = [f"{name}={value}" for name, value in self.sizes.items()]
        options = [f"{name}={value}" for name, value in self.options.items()]
        return " ".join([self.kernel, *sizes, *filter(None, [self.dtype]), *options])


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


@dataclass(frozen=True)
class Configuration:
    """One point of a search space: a variant and a value for each of its tunable parameters."""

    variant: str
    parameters: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, variant: str, parameters: Mapping[str, Value]) -> Configuration:
        """Build one from a mapping; the order of its names is kept."""
        return cls(variant, tuple(parameters.items()))

    @property
    def values(self) -> dict[str, Value]:
        """The parameters as a dictionary."""
        return dict(self.parameters)

    @property
    def key(self) -> str:
        """Text that is equal exactly when the configurations are."""
        return canonical_json({"variant": self.variant, **self.values})

    def __str__(self) -> str:
        return " ".join([self.variant, *(f"{name}={_plain(value)}" for name, value in self.parameters)])


def _plain(value: Value) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Gpu:
    """A GPU and its limits, as the driver reports them (or as the architecture fixes them)."""

    name: str
    cc: int
    """Compute capability times ten: 75, 80, 90, 120."""
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    shared_bytes_optin: int
    """The most dynamic shared memory one block can ask for."""
    shared_bytes_per_sm: int
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    max_threads_per_block: int = 1024
    reserved_shared_bytes: int = 1024
    """Shared memory that the system takes from each block."""
    clock_hz: float = 0.0
    """Highest SM clock."""
    memory_bytes_per_s: float = 0.0
    """Bus width times memory clock: the data sheet's bandwidth."""
    uuid: str = ""
    driver: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary; ``Gpu(**data)`` reads it back."""
        return dict(self.__dict__)

    @property
    def arch(self) -> str:
        """The NVRTC target: architecture-specific (``a``) where that unlocks instructions."""
        return f"sm_{self.cc}" + ("a" if self.cc in (90, 100, 103) else "")


@dataclass(frozen=True)
class Resources:
    """What the compiler said of a launch, or of all launches of a candidate."""

    registers: int = 0
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    active_blocks: int = 0
    """Blocks that fit on one SM, the least over the launches."""

    @classmethod
    def of(cls, launches: Sequence[Resources]) -> Resources:
        """Combine those of several launches: the largest of each, spills added up, the fewest active blocks."""
        return cls(
            registers=max(r.registers for r in launches),
            static_shared_bytes=max(r.static_shared_bytes for r in launches),
            dynamic_shared_bytes=max(r.dynamic_shared_bytes for r in launches),
            stack_bytes=max(r.stack_bytes for r in launches),
            spill_bytes=sum(r.spill_bytes for r in launches),
            active_blocks=min(r.active_blocks for r in launches),
        )


@dataclass(frozen=True)
class Verification:
    """How an output compared with its reference."""

    passed: bool
    checked: bool = True
    mismatches: int = 0
    worst_ratio: float = 0.0
    """Largest |error| / allowed error of an element."""
    norm_error: float = 0.0
    """Norm of the error over the norm of the reference."""
    message: str = ""
    true_error: float | None = None
    """Norm of the difference from the result of unrounded inputs, over the norm of that; None where nobody asked."""


@dataclass(frozen=True)
class Measurement:
    """What the measuring process found out about one candidate."""

    status: Status
    samples_ns: tuple[float, ...] = ()
    error: str = ""
    verification: Verification | None = None
    tags: tuple[str, ...] = ()
    measure_s: float = 0.0
    """Seconds for which this candidate occupied the GPU: verifying, timing, resting on purpose."""
    sm_clock_hz: float = 0.0
    """Mean over the timed groups, counted on the GPU itself; 0 when it was not."""
    capped_samples: int = 0
    """Samples of groups in which the power limit held the clock down."""
    drifted: bool = False
    """The reference kernel took another time after this candidate than before it: what came since then is suspect."""


@dataclass(frozen=True)
class Trial:
    """One configuration with all that became of it; a row of the database."""

    number: int
    configuration: Configuration
    status: Status
    time_ns: float | None = None
    """Median of the samples."""
    ci_low_ns: float | None = None
    ci_high_ns: float | None = None
    samples_ns: tuple[float, ...] = ()
    resources: Resources | None = None
    verification: Verification | None = None
    error: str = ""
    sources: tuple[str, ...] = ()
    """Rendered source of each launch."""
    compile_log: str = ""
    compile_s: float = 0.0
    measure_s: float = 0.0
    tags: tuple[str, ...] = ()
    sm_clock_hz: float = 0.0
    capped_samples: int = 0
    id: int | None = None
    """Row number in the database, once it is there."""


FOREIGN = "format"
"""Among the versions of a run: whose file its times come from."""


@dataclass(frozen=True)
class Run:
    """One invocation of the tuner on one problem and one device."""

    id: str
    problem: Problem
    gpu: Gpu
    device: str
    """``cuda:0`` or ``replay:<name>``."""
    seed: int
    sampler: str
    trials: int
    lookahead: int
    """How many configurations may be asked for before the first of them is told."""
    narrowing: Mapping[str, Any] = field(default_factory=dict)
    """``--variant`` and ``--fix``, as the user gave them."""
    kernel_digest: str = ""
    kernel_file: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    conditions: Conditions = Conditions()
    calibration: Calibration | None = None

    @property
    def replayed(self) -> bool:
        """Whether the times come from a recording."""
        return self.device.startswith("replay:")

    @property
    def foreign(self) -> str:
        """The format of another tool's file that the times come from; empty where they are ours."""
        return self.versions.get(FOREIGN, "") if self.replayed else ""
