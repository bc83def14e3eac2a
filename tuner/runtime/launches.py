"""Launches and buffers as plain records for other processes: everything but device addresses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from .dtypes import ITEMSIZE

MAX_CLUSTERS = 256
"""Length of a table of cluster numbers, and so the most clusters of a launch that takes one."""

OUTPUTS, RESTORED = ("output", "inout"), ("inout", "destroyed")
"""Roles of what a kernel has to write; of what has its first value before each run. A destroyed input is both no output
and restored: the kernel may use it as scratch memory. To callers it is an inout."""

Argument = tuple[str, str, int | float | bool | str]
"""Of a launch: see :attr:`Launch.arguments`."""


@dataclass(frozen=True)
class Buffer:
    """Device memory: a tensor of the problem, or scratch memory of a variant."""

    name: str
    shape: tuple[int, ...]
    """In memory order, row-major."""
    dtype: str
    role: str
    init: str = "normal"
    transposed: bool = False
    """Whether the memory holds the tensor's transpose."""
    zeroed: bool = False
    """Whether it is set to zero before every run, inside the timing."""
    zeroed_once: bool = False
    """Whether it is zero before the first run, and every run leaves it zero."""
    between: tuple[int | float, int | float] | None = None
    """Least and largest of random numbers, or first number and step of ``range``, whole for integers; None for any."""
    file: Path | None = None
    """The ``.npy`` file or the Python file that says what it holds."""
    function: str = ""
    """Of the Python file."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def meant_shape(self) -> tuple[int, ...]:
        """The shape as the kernel and its reference mean it."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def size_bytes(self) -> int:
        """Bytes it takes."""
        return self.count * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class TensorMap:
    """A tensor map for the tensor memory accelerator, without the matrix's address."""

    dtype: str
    rows: int
    columns: int
    box_rows: int
    box_columns: int
    swizzle: int
    """Bytes; 0 for none."""
    promotion: int
    """L2 promotion in bytes; 0 for none."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, without addresses."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]
    """Triples (kind, name or dtype, value): ``("buffer", "a", 0)`` or ``("scalar", "int64", 4096)``. A tensor that the
    problem lacks is a null pointer, ``("scalar", "int64", 0)``. The elements from row to row of a tensor are
    ``("stride", "c", 4096)``, of which it has 4096 in a row. A tensor map is ``("map", "a", text)`` with the JSON of a
    :class:`TensorMap`. A table of cluster numbers (``cluster_order.py``) is
    ``("cluster_order", "uint8", 8)`` if 8 clusters read the same data."""
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    carveout: int | None = None
    alignment: int = 1
    """Bytes of which every tensor's address must be a multiple."""
    resident: bool = False
    """Whether blocks wait for each other, so that all must be resident at once."""
    programmatic: bool = False
    """Whether it may begin before the kernel before it has ended, for whose end it waits itself."""
    constants: tuple[tuple[str, str, int], ...] = ()
    """Variables of the code, each with the input that it is filled from, and its bytes."""
    code: int = 0
    """Which of the plan's codes it launches: those of a loop launch theirs in each pass."""

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return math.prod(self.block)

    @property
    def clusters(self) -> int:
        """Clusters in the grid; its blocks if it has none."""
        return math.prod(self.grid) // math.prod(self.cluster or (1,))

    @property
    def needs_cluster_order(self) -> bool:
        """Whether an argument is a table of cluster numbers."""
        return any(kind == "cluster_order" for kind, _, _ in self.arguments)


@dataclass(frozen=True)
class Plan:
    """All launches of a configuration, in order, and the scratch memory between them."""

    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...]
    state: tuple[str, ...] = ()
    """Variables of the code in which it keeps something from one run to the next, on purpose."""

    @property
    def by_code(self) -> tuple[tuple[Launch, ...], ...]:
        """The launches of each code, in order."""
        groups: dict[int, list[Launch]] = {}
        for launch in self.launches:
            groups.setdefault(launch.code, []).append(launch)
        return tuple(tuple(groups[code]) for code in sorted(groups))
