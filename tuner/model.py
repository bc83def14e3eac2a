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

from tuner.conditions import Calibration, Conditions

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
class RunOptions:
    """What narrows and bounds a run's search: kept with the run, so that it can go on as it began."""

    variants: tuple[str, ...] = ()
    """``--variant``: search only these; all when empty."""
    fixed: Mapping[str, tuple[Value | str, ...]] = field(default_factory=dict)
    """``--fix``: the values allowed of a parameter, as the user gave them."""
    from_scratch: bool = False
    """Whether earlier runs of this problem are left out of account."""
    stop_early: bool = False
    """Whether nothing new is tried once no improvement beyond the noise floor is expected."""
    rules: tuple[str, ...] = ()
    """Rules of thumb that have narrowed the kernel."""
    initial: str = "auto"
    """Where the initial configurations come from: one of ``tuner.search.initial.CHOICES``."""
    max_error: float | None = None
    """How far from the true result an output may be, as the norm of the difference over the norm."""
    truth: Problem | None = None
    """The same problem in the dtype whose result is the true one; given with ``max_error``."""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that :meth:`from_json` reads back; most defaults are left out."""
        fixed = {name: list(values) for name, values in self.fixed.items()}
        data = {"variants": list(self.variants), "fixed": fixed, "from_scratch": self.from_scratch}
        if self.stop_early:
            data["stop_early"] = True
        if self.rules:
            data["rules"] = list(self.rules)
        if self.initial != "auto":
            data["seeds"] = self.initial
        if self.max_error is not None:
            data["max_error"] = self.max_error
            data["truth"] = self.truth.to_json() if self.truth else None
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunOptions:
        """Rebuild what :meth:`to_json` returned."""
        return cls(
            variants=tuple(data.get("variants", ())),
            fixed={name: tuple(values) for name, values in data.get("fixed", {}).items()},
            from_scratch=data.get("from_scratch", False),
            stop_early=data.get("stop_early", False),
            rules=tuple(data.get("rules", ())),
            initial=data.get("seeds", "auto"),
            max_error=data.get("max_error"),
            truth=Problem.from_json(truth) if (truth := data.get("truth")) else None,
        )


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
    options: RunOptions = RunOptions()
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
