"""The records that all packages share. Times are nanoseconds (``_ns``) or seconds (``_s``), sizes are bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from tuner.core.conditions import Calibration, Conditions, Mode, Regime

Value = int | float | bool | str
"""The value of a parameter, a size or an option."""
SUSPECT = "suspect"
"""Tag of a trial during which the GPU drifted."""


def value_text(value: Value) -> str:
    """Return a value for people: truth is yes or no."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


class Status(StrEnum):
    """How a trial ended, one status for each cause."""

    OK = "ok"
    SLOW = "slow"
    """Verified, but so much slower than the incumbent that only a few samples were taken."""
    INVALID_CONFIG = "invalid_config"
    """Rejected before measuring: it has no valid launch, or a constraint on what the compiler reports does not hold."""
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILE_OOM = "compile_oom"
    LAUNCH_ERROR = "launch_error"
    OUT_OF_MEMORY = "out_of_memory"
    MEMORY_FAULT = "memory_fault"
    """The kernel destroyed its CUDA context: illegal or misaligned address, trap, illegal instruction."""
    HANG = "hang"
    WORKER_DIED = "worker_died"
    CRASHED = "crashed"  # The tuner itself died on this configuration three times; it is not tried again.
    WRONG_RESULT = "wrong_result"
    UNVERIFIED = "unverified"
    """Timed, but never best: there was nothing to compare the output with, or too little time to compare all."""
    TOO_FAST = "too_fast"
    """Faster than the hardware allows, so the kernel cannot have done its work."""
    CLOCK_MISMATCH = "clock_mismatch"
    """The events' time contradicts the host's clock, or the GPU's."""
    WRONG_AFTER_TIMING = "wrong_after_timing"
    """Correct when verified before timing, wrong afterwards."""
    REPEATS = "repeats"
    """Right, but slower where nothing of its earlier launches is left: it leans on them."""
    TAMPERS = "tampers"  # It changes what times or compares it, or works elsewhere than in what is timed.
    UNSTABLE = "unstable"
    """A finalist that a fresh process did not confirm: its time differed, or it was wrong at another size, say."""
    INACCURATE = "inaccurate"
    """Correct for its dtype, but further from the true result than the user allows."""

    @property
    def ranked(self) -> bool:
        """Whether a trial with this status can be the best."""
        return self in (Status.OK, Status.SLOW)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, so that equal values have equal texts."""
    return _CANONICAL.encode(value)


def ascii_json(value: Any, indent: int | None) -> str:
    """Return JSON of printable ASCII, so that no text in it can act on a terminal."""
    return json.dumps(value, indent=indent, allow_nan=False).replace("\x7f", "\\u007f")


def digest(value: Any) -> str:
    """Return the first 32 hexadecimal digits of the SHA-256 of text, bytes, or a value's canonical JSON."""
    if not isinstance(value, bytes):
        value = (value if isinstance(value, str) else canonical_json(value)).encode()
    return hashlib.sha256(value).hexdigest()[:32]


@dataclass(frozen=True)
class Problem:
    """What is computed: a kernel's name, and a value for each of its sizes, dtype roles and options."""

    kernel: str
    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]
    options: Mapping[str, Value] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Numbers by value that differ from those of the kernel's file."""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that ``msgspec.convert`` reads back."""
        parts: dict[str, Mapping[str, Any]] = {"sizes": self.sizes, "dtypes": self.dtypes}
        parts |= {"options": self.options} | ({"scalars": self.scalars} if self.scalars else {})
        return {"kernel": self.kernel, **{name: dict(of) for name, of in parts.items()}}

    @cached_property
    def key(self) -> str:
        """Text that is equal for equal problems only."""
        return canonical_json(self.to_json())

    def __hash__(self) -> int:
        return hash(self.key)

    @cached_property
    def kind(self) -> str:
        """Text that is equal for a kernel's problems that differ in their sizes alone."""
        return canonical_json([dict(self.dtypes), dict(self.options)])

    @property
    def dtype(self) -> str:
        """The dtype of the first role, which ``--dtype`` sets; empty if the kernel has no roles."""
        return next(iter(self.dtypes.values()), "")

    @property
    def sizes_text(self) -> str:
        """The sizes as people write them: ``m=4096 n=2048``."""
        return " ".join(f"{name}={value}" for name, value in self.sizes.items()) or "its only size"

    def __str__(self) -> str:
        words = [f"{name}={value_text(value)}" for name, value in {**self.options, **self.scalars}.items()]
        return " ".join(filter(None, [self.kernel, self.sizes_text * bool(self.sizes), self.dtype, *words]))


@dataclass(frozen=True)
class Configuration:
    """A point of a search space: a variant and a value for each of its parameters."""

    variant: str
    parameters: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, variant: str, parameters: Mapping[str, Value]) -> Configuration:
        """Return the configuration with these parameters, in the mapping's order."""
        return cls(variant, tuple(parameters.items()))

    @property
    def values(self) -> dict[str, Value]:
        """The parameters as a dictionary."""
        return dict(self.parameters)

    @property
    def key(self) -> str:
        """Text that is equal for equal configurations only."""
        return canonical_json({"variant": self.variant, **self.values})

    def __str__(self) -> str:
        return " ".join([self.variant, *(f"{name}={value_text(value)}" for name, value in self.parameters)])


@dataclass(frozen=True)
class Gpu:
    """A GPU and its limits, as the driver or the architecture's specification states them."""

    name: str
    cc: int
    """Compute capability times ten: 75, 80, 90, 120."""
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    shared_bytes_optin: int
    """The most dynamic shared memory of a block."""
    shared_bytes_per_sm: int
    registers_per_sm: int = 65536
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    max_threads_per_block: int = 1024
    reserved_shared_bytes: int = 1024
    """Shared memory of each block that the system reserves."""
    clock_hz: float = 0.0
    """Highest SM clock."""
    memory_bytes_per_s: float = 0.0
    """Bus width times memory clock: the data sheet's bandwidth."""
    uuid: str = ""
    driver: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that ``msgspec.convert`` reads back."""
        return dict(self.__dict__)

    @property
    def arch(self) -> str:
        """The NVRTC target; architecture-specific (``a``) where more instructions exist then."""
        return f"sm_{self.cc}" + ("a" if self.cc in (90, 100, 103) else "")


@dataclass(frozen=True)
class Resources:
    """What the compiler reports of one launch, or of all launches of a candidate."""

    registers: int = 0
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    active_blocks: int = 0
    """Blocks that fit on one SM: the minimum over the launches."""

    @classmethod
    def of(cls, launches: Sequence[Resources]) -> Resources:
        """Combine several launches: the maximum of each, the sum of spills, the minimum of active blocks."""
        most = {one.name: max(getattr(launch, one.name) for launch in launches) for one in fields(cls)}
        spilled = sum(launch.spill_bytes for launch in launches)
        blocks = min(launch.active_blocks for launch in launches)
        return cls(**{**most, "spill_bytes": spilled, "active_blocks": blocks})


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
    """Norm of the difference from the result of unrounded inputs, over that result's norm; None if not requested."""

    @property
    def wrong(self) -> bool:
        """Whether it was compared, and differs."""
        return self.checked and not self.passed


@dataclass(frozen=True)
class Measurement:
    """What the measuring process reports of one candidate."""

    status: Status
    samples_ns: tuple[float, ...] = ()
    error: str = ""
    verification: Verification | None = None
    tags: tuple[str, ...] = ()
    measure_s: float = 0.0
    """Seconds of verification, timing and deliberate pauses, without samples for which nothing waited."""
    sm_clock_hz: float = 0.0
    """Mean over the timed groups, counted on the GPU; 0 if not counted."""
    capped_samples: int = 0
    """Samples of groups in which the power limit lowered the clock."""
    drifted: bool = False
    """Whether the drift reference kernel's time changed during this candidate; times since its last run are suspect."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """Further contents of the inputs: empty where the output was right, too, and why for those that were left out."""


@dataclass(frozen=True)
class Trial:
    """One configuration and its results; a row of the database."""

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
    implementation: str = ""
    """Digest of how it computes (:mod:`tuner.kernel.identity`); empty if it was recorded before there was one."""
    drifted: bool = False  # as of its measurement; not stored
    id: int | None = None  # row number in the database; None if not stored yet

    @property
    def suspect(self) -> bool:
        """Whether its time is not believed, because the GPU drifted while it was taken; it ranks nowhere."""
        return SUSPECT in self.tags

    @property
    def true_error(self) -> float | None:
        """How far the output was from the true result; None where that was not counted."""
        return self.verification.true_error if self.verification else None


FOREIGN = "format"
"""Key in a run's versions: the format of another tool's file that the times come from."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a problem is tuned. It is kept with the run, but for time and conditions: it goes on as it began."""

    trials: int = 200
    sampler: str = "gp-ei"
    """As :func:`tuner.search.samplers.find_sampler` takes it."""
    seed: int = 0
    variants: tuple[str, ...] = ()
    """``--variant``: search only these; all when empty."""
    fixed: Mapping[str, tuple[Value | str, ...]] = field(default_factory=dict)
    """``--fix``: the values allowed of a parameter, as the user gave them."""
    from_scratch: bool = False
    """Whether earlier runs of this problem are left out of account."""
    stop_early: bool = False
    """Whether nothing new is tried once no improvement beyond the noise floor is expected."""
    initial: str = "auto"
    """``none`` leaves out the initial configurations of the kernel's file."""
    max_error: float | None = None
    """How far from the true result an output may be, as the norm of the difference over the norm."""
    truth: Problem | None = None
    """The same problem in the dtype whose result is the true one; given with ``max_error``."""
    one_mode: bool = False
    """Whether ``--mode`` was given: then the winner is chosen by that mode alone."""
    part: bool = False
    """Whether this is a step of a study, which ``--resume`` does not go on with."""
    effort: str = "normal"  # of the race at the end: one of tuner.tuning.request.EFFORTS
    margin: float | None = None
    """How much faster, as a share, a winner must be for each value (:mod:`tuner.tuning.decision`); None as 0."""
    time_s: float | None = None
    mode: Mode | None = None
    """What the caches hold; None leaves it to the problem."""
    regime: Regime = Regime.RESTED

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads back: what narrows and bounds the search; most defaults are left out."""
        return {
            "variants": list(self.variants),
            "fixed": msgspec.to_builtins(self.fixed),
            "from_scratch": self.from_scratch,
            **({"stop_early": True} if self.stop_early else {}),
            **({"seeds": self.initial} if self.initial != "auto" else {}),
            **({} if self.max_error is None else {"max_error": self.max_error}),
            **({} if self.max_error is None else {"truth": self.truth and self.truth.to_json()}),
            **({"one_mode": True} if self.one_mode else {}),
            **({"part": True} if self.part else {}),
            **({} if self.effort == "normal" else {"effort": self.effort}),
            **({} if self.margin is None else {"margin": self.margin}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], **others: Any) -> RunOptions:
        """Rebuild what :meth:`to_json` returned, with other options beside it.

        Raises:
            ValueError: a value of another type.
        """
        return msgspec.convert(
            {("initial" if name == "seeds" else name): data[name] for name in data} | others, cls
        )


RENAMED_SAMPLERS = {"kriging": "gp-ei"}
"""Former names of samplers, in stored runs and users' scripts, and the present ones."""


@dataclass(frozen=True)
class Run:
    """One invocation of the tuner on one problem and one device."""

    id: str
    problem: Problem
    gpu: Gpu
    device: str
    """``cuda:0`` or ``replay:<name>``."""
    options: RunOptions = RunOptions()
    lookahead: int = 1
    """How many configurations may be asked for before the first result is told."""
    kernel_digest: str = ""
    """Of the kernel's text (:mod:`tuner.kernel.identity`)."""
    kernel_file: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)
    calibration: Calibration | None = None
    computation: str = ""
    """Digest of what is computed (:mod:`tuner.kernel.identity`); empty for a run of before there was one."""

    @property
    def replayed(self) -> bool:
        """Whether the times come from a recording."""
        return self.device.startswith("replay:")

    @property
    def foreign(self) -> str:
        """The format of another tool's file that the times come from; empty if this tuner measured them."""
        return self.versions.get(FOREIGN, "") if self.replayed else ""
