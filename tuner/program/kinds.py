"""Kinds of calls: what a call of torch is as a problem of a kernel, or why no kernel can serve it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from tuner.runtime.arrays import ArrayLayout

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
PRODUCTS = (
    *("mm", "mm.out", "mm.dtype", "mm.dtype_out", "bmm", "bmm.out", "bmm.dtype", "bmm.dtype_out"),
    *("addmm", "addmm.out", "_addmm_activation", "_addmm_activation.out", "baddbmm", "baddbmm.out"),
)
"""Overloads of ``aten`` that are products. ``linear``, ``matmul`` and ``einsum`` end in these on a device."""
REDUCTIONS = ("sum", "mean", "max")
"""Overloads that reduce everything. Additions are not among these: there torch's dispatcher gives functions in Python a
plain number for what was a tensor, which torch's own function does not take."""


class CallMode(StrEnum):
    """How a call reaches the device."""

    EAGER = "eager"
    """By Python: by itself, or from compiled code."""
    GRAPH = "graph"
    """By the replay of a CUDA graph."""


@dataclass(frozen=True)
class CallKind:
    """What calls have in common."""

    call: str
    """torch's name, without the overload: ``mm``."""
    kernel: str
    """The built-in kernel that computes this; empty if there is none."""
    sizes: tuple[tuple[str, int], ...]
    """By the kernel's names; without a kernel, those of the product."""
    dtype: str
    options: tuple[tuple[str, str], ...] = ()
    flop: float = 0.0
    """Operations of one call."""
    obstacle: str = ""
    """Why the kernel cannot serve it; empty if it can."""

    @property
    def is_product(self) -> bool:
        """Whether gemm can serve it."""
        return self.kernel == "gemm" and not self.obstacle

    @property
    def problem(self) -> str:
        """The problem in words, as the tuner prints it."""
        words = [self.kernel or self.call, *(f"{name}={size}" for name, size in self.sizes), self.dtype]
        return " ".join([*words, *(f"{name}={value}" for name, value in self.options)])


def kind_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return what a call of an overload is; None if it computes nothing that a kernel has or a product is."""
    if name in PRODUCTS:
        return product_kind(name, args, kwargs)
    return _reduction_kind(name, args, kwargs)


def product_kind(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a product; None of an empty one, and of shapes that torch will refuse."""
    call = name.partition(".")[0]
    a, b = args[1:3] if _adds(call) else args[:2]
    dims = 3 if "bmm" in call else 2
    if not a.dim() == b.dim() == dims or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    batch = math.prod(a.shape[:-2])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if not batch * m * n * k:
        return None
    dtype = DTYPES.get(a.dtype) or str(a.dtype).removeprefix("torch.")
    flop = 2.0 * batch * m * n * k
    view = folded(a, b)
    obstacle = _product_obstacle(call, name, a, b, kwargs)
    if view is None:
        obstacle = obstacle or f"a batch of {batch} different products"
        return CallKind(call, "", (("batch", batch), ("m", m), ("n", n), ("k", k)), dtype, (), flop, obstacle)
    sizes = (("m", view[0].shape[0]), ("n", n), ("k", k))
    orders = [order(matrix) for matrix in view]
    if not all(orders):
        gaps = f"operand {'ab'[orders.index('')]} is a part of a larger matrix: its rows lie apart"
        return CallKind(call, "", sizes, dtype, (), flop, obstacle or gaps)
    return CallKind(call, "gemm", sizes, dtype, (("layout", "".join(orders)),), flop, obstacle)


def _adds(call: str) -> bool:
    return "add" in call


def _product_obstacle(call: str, name: str, a: Any, b: Any, kwargs: Mapping[str, Any]) -> str:
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        return f"dtype {str(a.dtype).removeprefix('torch.')}"
    if "dtype" in name:
        return "an output of another dtype"
    if call == "_addmm_activation":
        return "adds a bias and applies an activation, which the kernel does not"
    if _adds(call):
        return "adds a bias, which the kernel does not"
    out = kwargs.get("out")
    shape = (*a.shape[:-1], b.shape[-1])
    if out is not None and not (out.dtype == a.dtype and out.shape == shape and out.is_contiguous()):
        return "the given output is not row-major, or of another shape or dtype"
    return ""


def folded(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Return the matrices of a product as views, batches as one product where they are one; None where they are not.

    A batch is one product if it has one member, or if all members multiply by the same matrix.
    """
    if a.dim() == 2:
        return a, b
    if a.shape[0] == 1:
        return a[0], b[0]
    if b.stride(0) == 0 and a.is_contiguous():
        return a.view(-1, a.shape[2]), b[0]
    return None


def order(matrix: Any) -> str:
    """Return ``n`` for a row-major matrix, ``t`` for a column-major one, and nothing for one with gaps."""
    layout = ArrayLayout("", tuple(matrix.shape), tuple(matrix.stride()), 0, "")
    return "n" if layout.is_row_major() else "t" if layout.is_column_major() else ""


def _reduction_kind(call: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    x = args[0]
    if x.dtype not in DTYPES or not x.is_contiguous() or not x.numel():
        return None
    if len(args) > 1 or kwargs.get("dtype") not in (None, x.dtype):
        return None
    n = x.numel()
    return CallKind(call, "reduce", (("n", n),), DTYPES[x.dtype], (("op", call),), n)


Product = Callable[[Any, Any, Any], Any]
"""A product of two matrices into a given one, or into a new one for None."""


def call_product(product: Product, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a call of a product without obstacles gives, computed by another function."""
    a, b = args[:2]
    out = kwargs.get("out")
    if a.dim() == 2:
        return product(a, b, out)
    view = folded(a, b)
    assert view is not None, name
    if out is not None:
        product(*view, out.view(-1, out.shape[2]))
        return out
    return product(*view, None).view(a.shape[0], a.shape[1], b.shape[2])
