"""What a GPU can launch: the limits of grids, blocks, clusters, tensor maps and arguments, checked on plain numbers.

Kernel files and bundles describe launches in languages of their own; what those come to is checked here for both.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..core.errors import KernelError, TunerError
from .dtypes import DTYPES, ITEMSIZE
from .launches import MAX_CLUSTERS, Buffer, Launch, TensorMap

DEVICE_LIMITS = (
    "cc", "sm_count", "l2_bytes", "shared_bytes_optin", "shared_bytes_per_sm", "registers_per_sm",
    "max_threads_per_sm", "max_blocks_per_sm", "max_threads_per_block",
)  # fmt: skip
"""The GPU's limits that expressions may use: fields of :class:`tuner.core.model.Gpu`."""
GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
CLUSTER_LIMITS = (16, 16, 16)
MAP_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn")
"""Dtypes of matrices that may have a tensor map."""
ALIGNMENT = 256
"""Bytes of which the address of every tensor and scratch memory is a multiple: cuMemAlloc guarantees it."""
NULL_POINTER = ("scalar", "int64", 0)
MAX_SIZE = 2**62
"""Arithmetic with sizes, on NumPy arrays of 64-bit integers, must not overflow too easily."""

Triple = tuple[int, int, int]


class UnlaunchableError(TunerError):
    """The GPU cannot launch this configuration; raised before compiling.

    Args:
        problem: what it cannot.
        remedy: what it can.
        key: of the launch in a kernel's file, if one says it.
    """

    def __init__(self, problem: str, remedy: str = "", key: str = "") -> None:
        super().__init__(problem, remedy)
        self.key = key


class ArgumentRangeError(UnlaunchableError):
    """An integer argument is beyond the range of its dtype."""


def triple(sizes: Sequence[int], what: str, limits: Triple) -> Triple:
    """Return one to three sizes as three, the others 1.

    Raises:
        UnlaunchableError: one is beyond its limit.
    """
    for size, limit in zip(sizes, limits, strict=False):
        if size > limit:
            raise UnlaunchableError(f"{what} of {size}", f"the limit in this dimension is {limit}", what)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def cluster_of(sizes: Sequence[int], grid: Triple, cc: int) -> Triple | None:
    """Return the blocks of a cluster; None without clusters, or if each block is one.

    Args:
        sizes: none, or one to three.
        grid: blocks of the launch.
        cc: the GPU's compute capability times ten.

    Raises:
        UnlaunchableError: the GPU has no clusters, or the grid is no multiple of one.
    """
    if not sizes:
        return None
    cluster = triple(sizes, "cluster", CLUSTER_LIMITS)
    if cc < 90:
        raise UnlaunchableError("a launch in clusters", "clusters need compute capability 9.0")
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise UnlaunchableError(f"grid {grid} is no multiple of cluster {cluster}", key="grid")
    return None if cluster == (1, 1, 1) else cluster


def check_launch(launch: Launch, limits: Mapping[str, int]) -> None:
    """Raise an error for a launch that the GPU would refuse.

    Args:
        launch: with a grid and a block within their limits.
        limits: of the GPU, by the names of :data:`DEVICE_LIMITS`.

    Raises:
        UnlaunchableError: too many threads, bytes of shared memory or clusters, or the GPU is too old.
    """
    threads, most = launch.threads, limits["max_threads_per_block"]
    if threads > most:
        raise UnlaunchableError(f"a block of {threads} threads", f"this GPU allows {most}", "block")
    shared, most = launch.shared_bytes, limits["shared_bytes_optin"]
    if shared > most:
        problem = f"{shared} bytes of shared memory"
        raise UnlaunchableError(problem, f"this GPU allows {most}", "shared_bytes")
    if launch.carveout is not None and launch.carveout > 100:
        raise UnlaunchableError(f"carveout of {launch.carveout}", "it is a percentage")
    if launch.needs_cluster_order and launch.clusters > MAX_CLUSTERS:
        problem = f"a table of numbers for {launch.clusters} clusters"
        raise UnlaunchableError(problem, f"such a table has {MAX_CLUSTERS}")


def map_argument(
    matrix: Buffer | None, what: str, box: tuple[int, int], swizzle: int, promotion: int, cc: int
) -> tuple[str, str, str]:
    """Return a matrix's tensor map as an argument of a launch.

    Args:
        matrix: None if the problem has none of those that the argument names; of more than two dimensions it is several
            below each other.
        what: the map, for errors.
        box: rows and columns of a box, in memory order.
        swizzle: bytes.
        promotion: L2 promotion in bytes.
        cc: the GPU's compute capability times ten.

    Raises:
        TunerError: for what cuTensorMapEncodeTiled would reject, or would read wrongly.
    """
    if cc < 90:
        raise UnlaunchableError(what, "tensor maps need compute capability 9.0")
    if matrix is None or len(matrix.shape) < 2 or matrix.dtype not in MAP_DTYPES:
        raise KernelError(what, f"maps are of matrices of {', '.join(MAP_DTYPES)}")
    if swizzle not in (0, 32, 64, 128) or promotion not in (0, 64, 128, 256):
        raise KernelError(
            f"{what}: swizzle {swizzle}, l2_promotion {promotion}",
            "swizzle is 0, 32, 64 or 128 bytes, l2_promotion 0, 64, 128 or 256",
        )
    itemsize, (rows, columns) = ITEMSIZE[matrix.dtype], box
    width = columns * itemsize
    if max(box) > 256 or width % 16 or (swizzle and width > swizzle):
        raise UnlaunchableError(
            f"{what}: a box of {rows} x {columns}",
            "a side has at most 256 elements; a row is a multiple of 16 bytes, and at most the swizzle",
        )
    *above, length = matrix.shape
    if length * itemsize % 16:
        raise UnlaunchableError(f"{what}: rows of {length} elements", "they must be a multiple of 16 bytes")
    checked = TensorMap(matrix.dtype, math.prod(above), length, rows, columns, swizzle, promotion)
    return "map", matrix.name, json.dumps(asdict(checked), sort_keys=True, separators=(",", ":"))


def fits(value: float, dtype: str, what: str) -> float:
    """Return a number as an argument of a dtype: a float, or an int within its range.

    Raises:
        KernelError: a fraction is to be an integer.
        ArgumentRangeError: the integer does not fit.
    """
    if not DTYPES[dtype].whole:
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise KernelError(
            f"argument {what} = {value} is not a whole number",
            'give it dtype = "float32", as { value = "...", dtype = "float32" } has, or divide by //',
        )
    low, high = DTYPES[dtype].limits
    if not low <= value <= high:
        remedy = "it is 0 or 1" if dtype == "bool" else 'pass { value = "...", dtype = "int64" }'
        raise ArgumentRangeError(f"argument {what} = {value} does not fit {dtype}", remedy)
    return int(value)


def rounded(value: float, dtype: str) -> float:
    """Return a number rounded to its dtype, ties to even; infinite where it is too large for it."""
    kind = "<e" if dtype == "float16" else "<f"
    if dtype not in (*MAP_DTYPES, "complex64") or not math.isfinite(value):
        return value
    if dtype == "float8_e4m3fn":
        code = _float8(value)
        size, exponent = code % 8, code // 8 % 16
        return math.copysign(math.ldexp(size + 8 * bool(exponent), max(exponent, 1) - 10), value)
    try:
        packed = struct.pack(kind, value)
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype == "bfloat16":
        bits = int.from_bytes(packed, "little")
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        packed = bits.to_bytes(4, "little")
    (result,) = struct.unpack(kind, packed)
    return float(result)


def _float8(value: float) -> int:
    """Return the bits of a number as float8_e4m3fn, ties to even; at most 448, as CUDA's conversions have it."""
    if math.isnan(value):
        return 0x7F
    size = min(abs(value), 448.0)
    exponent = max(math.frexp(size)[1] - 1, -6) if size else -6
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    return sign | ((exponent + 6) * 8 + round(math.ldexp(size, 3 - exponent)))


def packed(value: Any, dtype: str) -> bytes:
    """Return a number as it lies in memory, rounded to its dtype."""
    of = DTYPES[dtype]
    if of.kind == "bfloat":
        return struct.pack("<f", rounded(value, dtype))[2:]
    if of.kind == "float8":
        return bytes([_float8(value)])
    if of.kind == "complex":
        return struct.pack(f"<{of.packed}", *(rounded(part, dtype) for part in (value.real, value.imag)))
    return struct.pack(f"<{of.packed}", int(value) if of.whole else rounded(value, dtype))
