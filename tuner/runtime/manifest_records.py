"""What the manifest of a bundle holds, as records; ``manifest.py`` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .expressions import Expression


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a computation."""

    name: str
    role: str
    dtype: str
    shape: tuple[Expression, ...]
    """As the kernel means it."""
    transposed: bool
    """Whether the memory holds the transpose."""
    when: Expression
    """Where it is false, a null pointer is passed."""


@dataclass(frozen=True)
class ScalarEntry:
    """A number that is passed by value; a caller may give another."""

    name: str
    dtype: str
    value: Expression


@dataclass(frozen=True)
class Computation:
    """What a kernel computes for one choice of dtypes and options."""

    dtypes: Mapping[str, str]
    options: Mapping[str, int | float | bool | str]
    tensors: tuple[TensorEntry, ...]
    scalars: tuple[ScalarEntry, ...]


@dataclass(frozen=True)
class Requirement:
    """A condition on sizes and limits, and the reason shown where it does not hold."""

    reason: str
    holds: Expression


@dataclass(frozen=True)
class ScratchEntry:
    """Memory that a configuration needs besides the tensors."""

    name: str
    dtype: str
    shape: tuple[Expression, ...]
    zeroed: bool
    """Whether it is set to zero before every run."""
    zeroed_once: bool
    """Whether it is zero before the first run, and every run leaves it zero."""
    when: Expression


@dataclass(frozen=True)
class ArgumentEntry:
    """An argument of a launch."""

    kind: str
    """``tensor``, ``scratch``, ``scalar``, ``value``, ``map`` or ``cluster_order``."""
    names: tuple[str, ...] = ()
    """The tensor, scratch or scalar; of a map the matrices, of which the first that is present is mapped."""
    value: Expression = 0
    """Of a value, or of a cluster order: how many consecutive numbers share what they read; 0: no argument."""
    dtype: str = ""
    box: tuple[Expression, ...] = ()
    swizzle: Expression = 0
    promotion: Expression = 0


@dataclass(frozen=True)
class LaunchEntry:
    """A launch of a configuration."""

    cubin: str
    source: str
    entry: str
    when: Expression
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared_bytes: Expression
    cluster: tuple[Expression, ...]
    cooperative: bool
    programmatic: bool
    carveout: Expression | None
    alignment: Expression
    resident: Expression
    arguments: tuple[ArgumentEntry, ...]


@dataclass(frozen=True)
class ConfigurationEntry:
    """A compiled configuration of a computation, for one compute capability."""

    computation: int
    cc: int
    variant: str
    parameters: Mapping[str, int | float | bool | str]
    """For people: the expressions have their values."""
    requires: tuple[Requirement, ...]
    scratch: tuple[ScratchEntry, ...]
    launches: tuple[LaunchEntry, ...]

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
    cost: Expression
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
