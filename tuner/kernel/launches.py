"""What is launched, with everything settled but addresses: records that other processes get, and nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.expressions.dtypes import ITEMSIZE
from tuner.model import Value


@dataclass(frozen=True)
class Buffer:
    """Device memory: a tensor of the problem, or scratch of a variant."""

    name: str
    shape: tuple[int, ...]
    """As it lies in memory, row-major."""
    dtype: str
    role: str
    init: str = "normal"
    transposed: bool = False
    """Whether memory holds the transpose of what the kernel means by this tensor."""
    zeroed: bool = False
    """Cleared before every run, inside the timing."""
    zeroed_once: bool = False
    """Zero before its first use; each run leaves it zero."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes it takes."""
        return self.count * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class TensorMap:
    """What the tensor memory accelerator is told of a matrix, but for its address."""

    dtype: str
    rows: int
    columns: int
    box_rows: int
    box_columns: int
    swizzle: int
    """Bytes; 0 for none."""
    promotion: int
    """Bytes that the L2 fetches at a time; 0 for the least."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch with everything settled but the addresses."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[tuple[str, str, Value], ...]
    """Triples (kind, name or dtype, value): ``("buffer", "a", 0)`` or ``("scalar", "int64", 4096)``. A tensor that
    the problem does not have is a null pointer, ``("scalar", "int64", 0)``. A tensor map is ``("map", "a", text)`` with
    the text of a :class:`TensorMap`. A table of places is ``("places", "uint8", 8)`` with how many clusters share what
    they read."""
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    carveout: int | None = None
    alignment: int = 1
    """Bytes of which every tensor's address must be a multiple."""
    resident: bool = False
    """Whether blocks wait for others, so that all must be on the GPU at once."""

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return math.prod(self.block)

    @property
    def clusters(self) -> int:
        """Clusters in the grid; its blocks where it has none."""
        return math.prod(self.grid) // math.prod(self.cluster or (1,))

    @property
    def needs_cluster_order(self) -> bool:
        """Whether it takes a table of places."""
        return any(kind == "places" for kind, _, _ in self.arguments)


@dataclass(frozen=True)
class Plan:
    """All launches of a configuration, in order, and the scratch memory between them."""

    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...]
