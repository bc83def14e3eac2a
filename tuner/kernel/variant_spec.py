"""How a kernel is computed: its variants, their parameters, constraints, scratch memory and launches.

Expressions stay unevaluated here; ``tuner.kernel.plan`` evaluates them for one configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.expressions.arithmetic import Expression
from tuner.model import Value

DEVICE_LIMITS = (
    "cc",
    "sm_count",
    "l2_bytes",
    "shared_bytes_optin",
    "shared_bytes_per_sm",
    "registers_per_sm",
    "max_threads_per_sm",
    "max_blocks_per_sm",
    "max_threads_per_block",
)
"""Names of the device's limits in expressions."""

RESOURCE_NAMES = (
    "registers",
    "static_shared_bytes",
    "dynamic_shared_bytes",
    "stack_bytes",
    "spill_bytes",
    "active_blocks",
)
"""Names of what the compiler reports; only constraints may use them, and those are checked after compiling."""


@dataclass(frozen=True)
class ParameterSpec:
    """A tunable parameter: an ordered list of values."""

    name: str
    values: tuple[Value, ...]
    default: Value
    doc: str = ""


@dataclass(frozen=True)
class ScratchSpec:
    """Device memory that a variant needs between its launches."""

    name: str
    shape: tuple[Expression, ...]
    dtype: str
    zeroed: bool = False
    """Cleared before every run, inside the timing."""
    zeroed_once: bool = False
    """Zero before its first use only; the kernel leaves it zero when it ends."""
    when: Expression | None = None
    """Where it does not hold, there is none; None for always."""


@dataclass(frozen=True)
class MapSpec:
    """How the tensor memory accelerator cuts a matrix into boxes; the argument's name says which matrix."""

    box: tuple[Expression, ...]
    """Rows and columns of a box, as the matrix lies in memory."""
    swizzle: Expression
    """Bytes of a row of the box within which 16-byte pieces change places: 0, 32, 64 or 128."""
    promotion: Expression
    """Bytes that the L2 fetches at a time: 0, 64, 128 or 256."""
    instead: tuple[str, ...] = ()
    """What to take where there is no matrix of the argument's name: the first of these that there is."""


@dataclass(frozen=True)
class ArgumentSpec:
    """A kernel argument: a tensor, scratch memory or scalar by name, or an expression with a C type."""

    name: str = ""
    value: Expression | None = None
    dtype: str = "int32"
    map: MapSpec | None = None
    """Pass a tensor map of the matrix of that name, and not its address."""
    cluster_order: Expression | None = None
    """Pass a table of places by value; so many clusters of the launch share what they read. 0: pass no argument."""


@dataclass(frozen=True)
class LaunchSpec:
    """One kernel launch of a variant."""

    template: Path
    entry: str
    arguments: tuple[ArgumentSpec, ...]
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared_bytes: Expression
    cluster: tuple[Expression, ...] = ()
    cooperative: bool = False
    carveout: Expression | None = None
    """Percentage of the L1 to be used as shared memory; the driver's choice when absent."""
    alignment: Expression | None = None
    """Bytes of which every tensor's address must be a multiple; 1 when absent."""
    when: Expression | None = None
    """Where it does not hold, the launch is left out; None for always."""
    resident: Expression | None = None
    """Where it holds, blocks wait for others, and all must be on the GPU at once; None for nowhere."""


@dataclass(frozen=True)
class VariantSpec:
    """One way to compute the kernel."""

    name: str
    summary: str
    requires: Expression | None
    parameters: Mapping[str, ParameterSpec]
    constraints: tuple[tuple[str, Expression], ...]
    """Pairs of the reason that a user reads and the condition that must hold."""
    scratch: tuple[ScratchSpec, ...]
    launches: tuple[LaunchSpec, ...]
    listed: Sequence[Sequence[int]] | None = field(default=None, compare=False)
    """The only combinations that there are, as places of the values, where they are listed and not described."""
    pruning_rules: tuple[tuple[str, Expression], ...] = ()
    """The same of what is left out of a search though it is right: a winner is verified where they do not hold."""

    @property
    def constraints_before(self) -> tuple[tuple[str, Expression], ...]:
        """The constraints that parameters and limits decide: where they hold, a configuration may be run."""
        return tuple(c for c in self.constraints if c[1].names.isdisjoint(RESOURCE_NAMES))

    @property
    def search_conditions(self) -> tuple[tuple[str, Expression], ...]:
        """What must hold of a configuration that a search may try."""
        return (*self.constraints_before, *self.pruning_rules)

    @property
    def constraints_after(self) -> tuple[tuple[str, Expression], ...]:
        """The constraints that need what the compiler reports."""
        return tuple(c for c in self.constraints if not c[1].names.isdisjoint(RESOURCE_NAMES))

    @property
    def defaults(self) -> dict[str, Value]:
        """The default value of each parameter."""
        return {name: parameter.default for name, parameter in self.parameters.items()}
