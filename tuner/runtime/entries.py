"""What a kernel computes and launches, with expressions of sizes and limits, and all else that a manifest says.

Kernel files and manifests are read into the same entries, of which ``plans.py`` makes launches in numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .expressions import Expression

ONE = Expression(1)


@dataclass(frozen=True)
class TensorEntry:
    """An array that a kernel reads or writes, row-major unless ``transposed`` is true."""

    name: str
    shape: tuple[Expression, ...]
    """As the kernel means it."""
    dtype: str
    """Or, in a kernel's file, the role that has one."""
    role: str = "input"
    init: str = "normal"
    """What it holds where the tuner measures; not in a manifest."""
    transposed: Expression | None = None
    """Whether the memory holds the transpose; in a manifest true or None."""
    when: Expression | None = None
    """Where it is false, the problem has no such tensor, and kernels get a null pointer; None for always."""
    between: tuple[Expression, ...] = ()
    """Least and largest number that it holds where the tuner measures, or of ``range`` the first and the step; empty
    for any."""
    file: Path | None = None
    """Of ``file``: what it holds there, in an ``.npy`` file or by a function of a Python file."""
    function: str = ""

    @property
    def ever(self) -> bool:
        """Whether some problem has it, as far as that is known."""
        return self.when is None or self.when.tree != 0


@dataclass(frozen=True)
class ScalarEntry:
    """A number passed to the kernel by value; a caller of winners may give another."""

    name: str
    dtype: str
    value: Expression


@dataclass(frozen=True)
class ScratchEntry:
    """Device memory that a configuration needs between its launches."""

    name: str
    shape: tuple[Expression, ...]
    dtype: str
    zeroed: bool = False
    """Whether it is set to zero before every run, inside the timing."""
    zeroed_once: bool = False
    """Whether it is zero before the first run, and every run leaves it zero."""
    when: Expression | None = None
    """Where it is false, the memory is not allocated; None for always."""


@dataclass(frozen=True)
class MapEntry:
    """How the tensor memory accelerator cuts a matrix, which the argument names, into boxes."""

    box: tuple[Expression, ...]
    """Rows and columns of a box, in memory order."""
    swizzle: Expression
    """Swizzle width in bytes: 0, 32, 64 or 128."""
    promotion: Expression
    """L2 promotion in bytes: 0, 64, 128 or 256."""
    instead: tuple[str, ...] = ()
    """Other matrices: if the one that the argument names is absent, the first of these that is present is mapped."""


@dataclass(frozen=True)
class ArgumentEntry:
    """A kernel argument: a tensor, scratch memory or scalar by name, or an expression with a C type."""

    name: str = ""
    value: Expression | None = None
    dtype: str = "int32"
    map: MapEntry | None = None
    """Pass a tensor map of the matrix of that name instead of its address."""
    cluster_order: Expression | None = None
    """Pass a table of cluster numbers by value; so many consecutive numbers share what they read. 0: no argument."""
    kind: str = ""
    """What a manifest says that the name is: ``tensor``, ``scratch`` or ``scalar``; or ``stride``: the elements from
    row to row of the tensor of that name."""
    one_of: tuple[str, ...] = ()
    """Tensors and scratch memory, of which ``index`` says which is passed."""
    index: Expression | None = None
    fields: tuple[ArgumentEntry, ...] = ()
    """Pass a struct of these by value."""
    alignment: int = 1
    """Of a struct: bytes that its type asks for beyond what its fields do."""
    when: Expression | None = None
    """If it is false, the argument is left out. Dtypes and options decide it: a manifest has none."""

    @property
    def leaves(self) -> Iterator[ArgumentEntry]:
        """What is passed: itself, or each field of a struct."""
        for field in self.fields:
            yield from field.leaves
        if not self.fields:
            yield self

    @property
    def buffers(self) -> tuple[str, ...]:
        """Each name that it may be passed by."""
        instead = self.map.instead if self.map is not None else ()
        inner = (name for field in self.fields for name in field.buffers)
        return (*((self.name,) if self.name else ()), *instead, *self.one_of, *inner)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that decide what is passed."""
        cut = (*self.map.box, self.map.swizzle, self.map.promotion) if self.map is not None else ()
        inner = (one for field in self.fields for one in field.expressions)
        own = (self.value, self.cluster_order, self.index)
        return (*cut, *(one for one in own if one is not None), *inner)


@dataclass(frozen=True)
class RepeatEntry:
    """A loop around launches."""

    name: str
    """By which expressions within it know the pass, from 0."""
    count: Expression
    """Of passes; of a loop within another for each pass of that."""


@dataclass(frozen=True)
class LaunchEntry:
    """One kernel launch."""

    entry: str
    arguments: tuple[ArgumentEntry, ...]
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared_bytes: Expression
    cluster: tuple[Expression, ...] = ()
    cooperative: bool = False
    carveout: Expression | None = None
    """Percentage of the L1 to use as shared memory; None leaves it to the driver."""
    alignment: Expression | None = None
    """Bytes of which every tensor's address must be a multiple; None for 1."""
    when: Expression | None = None
    """Where it is false, the launch is left out; None for always."""
    resident: Expression | None = None
    """Where it is true, blocks wait for each other, so that all must be resident at once; None for never."""
    programmatic: bool = False
    """Whether it may begin before the launch before it has ended (programmatic dependent launch), where a GPU can."""
    cubin: str = ""
    source: str = ""
    """Names of files in a bundle."""
    constants: tuple[tuple[str, str], ...] = ()
    """Variables of the code, each with the input that it is filled from before the launch; in a manifest by symbol."""
    repeat: tuple[RepeatEntry, ...] = ()
    """The loops that it is in, the outermost first. Neighbours whose first loops have the same names share these."""

    @property
    def varying(self) -> frozenset[str]:
        """Names with another value in each pass."""
        return frozenset(loop.name for loop in self.repeat)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All that decide how it is launched."""
        sides = (*self.grid, *self.block, *self.cluster, self.shared_bytes)
        others = (self.carveout, self.alignment, self.when, self.resident)
        arguments = (one for argument in self.arguments for one in argument.expressions)
        loops = (loop.count for loop in self.repeat)
        return (*sides, *(one for one in others if one is not None), *arguments, *loops)


Constraints = tuple[tuple[str, Expression], ...]
"""Pairs of the reason shown to users and the condition that must be true."""


@dataclass(frozen=True)
class Computation:
    """What a kernel computes for one choice of dtypes and options."""

    dtypes: Mapping[str, str]
    options: Mapping[str, int | float | bool | str]
    tensors: tuple[TensorEntry, ...]
    scalars: tuple[ScalarEntry, ...] = ()


@dataclass(frozen=True)
class ConfigurationEntry:
    """A compiled configuration of a computation, for one compute capability."""

    computation: int
    cc: int
    variant: str
    parameters: Mapping[str, int | float | bool | str]
    """For people: the expressions have their values."""
    requires: Constraints
    """Of sizes and the GPU's limits."""
    scratch: tuple[ScratchEntry, ...]
    launches: tuple[LaunchEntry, ...]
    slices: tuple[LaunchEntry, ...] = ()
    """Its launches where rows of outputs, or of inputs of their shape, lie apart; none where there are no such."""

    def __str__(self) -> str:
        return " ".join([self.variant, *(f"{name}={value}" for name, value in self.parameters.items())])


@dataclass(frozen=True)
class WinnerEntry:
    """Which configuration won at some sizes on a GPU."""

    computation: int
    gpu: str
    sizes: Mapping[str, int]
    configuration: int
    time_ns: float
    mode: str


@dataclass(frozen=True)
class DefaultEntry:
    """The tool's own configuration for a computation and a compute capability."""

    computation: int
    cc: int
    configuration: int


@dataclass(frozen=True)
class MemberEntry:
    """A configuration of a portfolio."""

    configuration: int
    cost: Expression = ONE
    """How long it takes, in no unit, as a whole number from 1: what it is for other sizes, relatively."""


@dataclass(frozen=True)
class PointEntry:
    """A problem at which a portfolio was measured."""

    sizes: Mapping[str, int]
    residuals: tuple[int | None, ...]
    """Of each member the logarithm of its slowdown there less what its cost says of it, in units; None where it cannot
    run it."""


@dataclass(frozen=True)
class PortfolioEntry:
    """Few configurations that together run all sizes, and what they took at some; ``portfolio.py`` ranks them."""

    computation: int
    gpu: str
    bound: float
    """The slowdown that was allowed where it was made."""
    neighbours: int
    """Points that count for a problem."""
    reach: int
    """Units within which points are equally near."""
    cost_weight: int
    """How much costs count, of 1024."""
    members: tuple[MemberEntry, ...]
    points: tuple[PointEntry, ...]


@dataclass(frozen=True)
class ProbeEntry:
    """A helper kernel that tells in which GPC a cluster runs."""

    cubin: str
    entry: str


@dataclass(frozen=True)
class Manifest:
    """All that a bundle says of its files."""

    tool: str
    kernel: str
    summary: str
    license: str
    minimum_driver: int
    """As cuDriverGetVersion counts."""
    sizes: tuple[str, ...]
    probe: Mapping[int, ProbeEntry]
    """By compute capability times ten."""
    computations: tuple[Computation, ...]
    configurations: tuple[ConfigurationEntry, ...]
    winners: tuple[WinnerEntry, ...]
    defaults: tuple[DefaultEntry, ...]
    portfolios: tuple[PortfolioEntry, ...] = ()
