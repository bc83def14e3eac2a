"""Kinds of calls: what a call of torch is as a problem of a kernel, or why it is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from tuner.runtime.arrays import ArrayLayout
from tuner.runtime.gpu_plans import MAP_ALIGNMENT

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
EIGHT_BITS = {torch.float8_e4m3fn: "float8_e4m3fn"}
PRODUCTS = (
    *(f"{call}{overload}" for call in ("mm", "bmm") for overload in ("", ".out", ".dtype", ".dtype_out")),
    *(
        f"{call}{overload}"
        for call in ("addmm", "_addmm_activation", "baddbmm", "_scaled_mm")
        for overload in ("", ".out")
    ),
    "_grouped_mm",
)
"""Overloads of ``aten`` that are products. ``linear``, ``matmul`` and ``einsum`` end in these on a device."""
PRODUCT_KERNELS = ("gemm", "linear", "bmm", "baddbmm", "grouped", "scaled_mm")
"""What serves them: a product, one with what is added and an activation, a batch, one with what is added, groups of
rows, 8 bits with scales."""
BATCHES = ("bmm", "baddbmm")
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
    """And the dtype of the output where that is not the inputs'."""
    flop: float = 0.0
    """Operations of one call."""
    obstacle: str = ""
    """Why the kernel cannot serve it; empty if it can."""
    apart: tuple[tuple[str, int], ...] = ()
    """Elements from row to row in memory of operands that are parts of larger matrices: ``lda``, ``ldb``."""

    @property
    def is_product(self) -> bool:
        """Whether one of the kernels of products can serve it."""
        return self.kernel in PRODUCT_KERNELS and not self.obstacle

    @property
    def op(self) -> str:
        """The expression of a product that is more than one; empty of one that is not."""
        return dict(self.options).get("op", "")

    @property
    def output(self) -> str:
        """The dtype of the result where that is not the operands'; else nothing."""
        return dict(self.options).get("output", "")

    @property
    def place(self) -> str:
        """Which operand of the expression is what is added; nothing if nothing is."""
        return next((place for place in ("row_bias", "residual", "bias") if place in self.op), "")

    @property
    def added_shape(self) -> tuple[int, ...]:
        """Of what is added, as the kernel takes it."""
        sizes = dict(self.sizes)
        m, n, batch = sizes["m"], sizes["n"], [sizes["batch"]] if "batch" in sizes else []
        bias = (*batch, 1, n) if batch else (n,)
        return {"row_bias": (*batch, m, 1), "residual": (*batch, m, n), "bias": bias}[self.place]

    @property
    def problem(self) -> str:
        """The problem in words, as the tuner prints it."""
        words = [self.kernel or self.call, *(f"{name}={size}" for name, size in self.sizes), self.dtype]
        return " ".join([*words, *(f"{name}={value}" for name, value in (*self.options, *self.apart))])


def kind_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return what a call of an overload is; None if it computes nothing that a kernel has or a product is."""
    if name in PRODUCTS:
        return product_kind(name, args, kwargs)
    return _reduction_kind(name, args, kwargs)


def product_kind(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a product; None of an empty one, and of shapes that torch will refuse."""
    call = name.partition(".")[0]
    if call == "_grouped_mm":
        return _grouped_kind(args, kwargs)
    if call == "_scaled_mm":
        return _scaled_kind(args, kwargs)
    a, b = args[1:3] if adds(call) else args[:2]
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
    of_result = args[2] if name.startswith(("mm.dtype", "bmm.dtype")) else a.dtype
    obstacle = _product_obstacle(a, b, of_result, kwargs)
    sizes: tuple[tuple[str, int], ...] = (("n", n), ("k", k))
    if view is None:
        plain, finished, sizes = "bmm", "baddbmm", (("batch", batch), ("m", m), *sizes)
        options, apart, why = _lying_batch(a, b)
    else:
        plain, finished, sizes = "gemm", "linear", (("m", view[0].shape[0]), *sizes)
        options, apart, why = _lying(*view)
    if why:
        return CallKind(call, "", sizes, dtype, (), flop, obstacle or why)
    kernel = plain
    if adds(call) and not obstacle:
        op = expression_of(call, args, kwargs)
        if op is None:
            obstacle = "adds what is no bias, row or row-major matrix of its dtype"
        elif op:
            kernel, options = finished, (*options, ("op", op))
    elif of_result != a.dtype and not obstacle:
        kernel, options = finished, (*options, ("op", "x"), ("output", DTYPES[of_result]))
    return CallKind(call, kernel, sizes, dtype, options, flop, obstacle, apart)


Pairs = tuple[tuple[str, Any], ...]


def _lying(a: Any, b: Any) -> tuple[Pairs, Pairs, str]:
    """Return the options of how two matrices lie, how far rows lie apart, and why no kernel takes them."""
    orders, apart = _orders(a, b)
    if len(orders) == 2:
        return (("layout", orders),), apart, ""
    which = "ab"[bool(_lies(a)[0])]
    return (), (), f"operand {which} is a part of a larger matrix that no tensor map can have"


def _lying_batch(a: Any, b: Any) -> tuple[Pairs, Pairs, str]:
    """Return the same of the matrices of a batch."""
    orders, apart = _orders(a, b)
    shared = [each.stride(0) == 0 for each in (a, b)]
    why = "" if len(orders) == 2 and not all(shared) else f"matrices of a batch of {len(a)} that lie apart"
    broadcast = "a" if shared[0] else "b" if shared[1] else "none"
    return (("layout", orders), ("broadcast", broadcast)), apart, why


def _grouped_kind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a product of groups of rows, which a third argument ends; None of others."""
    a, b = args[:2]
    ends = ends_of(args, kwargs)
    if a.dim() != 2 or b.dim() != 3 or ends is None or a.shape[1] != b.shape[1] or not a.numel() * b.numel():
        return None
    groups, k, n = b.shape
    m, dtype = a.shape[0], DTYPES.get(a.dtype) or str(a.dtype).removeprefix("torch.")
    flop, sizes = 2.0 * m * n * k, (("groups", groups), ("m", m), ("n", n), ("k", k))
    orders, apart = _orders(a, b)
    obstacle = _product_obstacle(a, b, a.dtype, {})
    if kwargs.get("bias") is not None or kwargs.get("out_dtype") not in (None, a.dtype) or len(args) > 3:
        obstacle = obstacle or "has a bias, or an output of another dtype"
    if ends.dtype != torch.int32 or ends.shape != (groups,) or not ends.is_contiguous():
        obstacle = obstacle or "ends of groups that are no int32 side by side"
    if orders not in ("nn", "nt") or dtype == "float32":
        return CallKind("_grouped_mm", "", sizes, dtype, (), flop, obstacle or "operands that lie otherwise")
    options = (("layout", orders), ("ragged", "m"))
    return CallKind("_grouped_mm", "grouped", sizes, dtype, options, flop, obstacle, apart)


def _scaled_kind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a product of 8 bits with scales; None of an empty one, and of what torch will refuse."""
    a, b, scale_a, scale_b, bias, of_result, dtype, fast = (*args, *(None,) * 8)[:8]
    if not a.dim() == b.dim() == 2 or a.shape[1] != b.shape[0] or not a.numel() * b.numel():
        return None
    (m, k), n, dtype = a.shape, b.shape[1], dtype or a.dtype
    blocks = ((m, -(-k // 128)), (-(-k // 128), -(-n // 128)))
    shapes = (tuple(scale_a.shape), tuple(scale_b.shape))
    scales = ""
    if scale_a.numel() == scale_b.numel() == 1:
        scales = "tensor"
    elif shapes == ((m, 1), (1, n)) and scale_a.is_contiguous() and scale_b.is_contiguous():
        scales = "rows"
    elif shapes == blocks and scale_a.t().is_contiguous() and scale_b.t().is_contiguous():
        scales = "blocks"
    obstacle = _out_obstacle(kwargs.get("out"), (m, n), dtype)
    if not scales or scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        obstacle = obstacle or "scales of another kind"
    if a.dtype not in EIGHT_BITS or b.dtype not in EIGHT_BITS or dtype not in DTYPES:
        obstacle = obstacle or f"dtypes {a.dtype}, {b.dtype}, {dtype}".replace("torch.", "")
    if bias is not None or of_result is not None:
        obstacle = obstacle or "has a bias, or a scale of its result"
    name = str(a.dtype).removeprefix("torch.")
    sizes, flop = (("m", m), ("n", n), ("k", k)), 2.0 * m * n * k
    orders, apart = _orders(a, b.t())
    if orders != "nn":
        return CallKind("_scaled_mm", "", sizes, name, (), flop, obstacle or "operands that lie otherwise")
    options = (
        *(("scales", scales), ("accumulation", "fast" if fast else "promoted"), ("layout", "nt")),
        ("output", DTYPES.get(dtype, "")),
    )
    return CallKind("_scaled_mm", "scaled_mm", sizes, name, options, flop, obstacle, apart)


def ends_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return where the groups of a call end."""
    return args[2] if len(args) > 2 else kwargs.get("offs")


def _orders(a: Any, b: Any) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the orders of both operands, of those that have one, and how far apart rows lie where they lie apart."""
    lie = {f"ld{name}": _lies(each) for name, each in zip("ab", (a, b), strict=True)}
    orders = "".join(order for order, _ in lie.values())
    return orders, tuple((name, stride) for name, (_, stride) in lie.items() if stride)


def _lies(operand: Any) -> tuple[str, int]:
    """Return ``n`` for a row-major matrix, or matrices one below the other, ``t`` for column-major ones.

    And how many elements lie from row to row in memory where rows lie apart, as far as tensor maps can have it: then
    there is nothing between matrices but what is between rows. Nothing and 0 for others. One matrix for a whole batch
    counts once.
    """
    one = operand[:1] if operand.dim() == 3 and operand.stride(0) == 0 else operand
    ways = [("n", one), ("t", one.transpose(-1, -2))]
    for order, each in ways:
        if each.is_contiguous():
            return order, 0
    for order, each in ways:
        stride = ArrayLayout("", tuple(each.shape), tuple(each.stride()), 0, "").row_stride()
        if stride and stride * each.element_size() % MAP_ALIGNMENT == 0:
            return order, stride
    return "", 0


def adds(call: str) -> bool:
    """Return whether the first argument of a call is what is added."""
    return "add" in call


def _product_obstacle(a: Any, b: Any, of_result: Any, kwargs: Mapping[str, Any]) -> str:
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        return f"dtype {str(a.dtype).removeprefix('torch.')}"
    if of_result not in (a.dtype, torch.float32):
        return "an output of another dtype"
    return _out_obstacle(kwargs.get("out"), (*a.shape[:-1], b.shape[-1]), of_result)


def _out_obstacle(out: Any, shape: tuple[int, ...], dtype: Any) -> str:
    if out is not None and not (out.dtype == dtype and out.shape == shape and out.is_contiguous()):
        return "the given output is not row-major, or of another shape or dtype"
    return ""


def expression_of(call: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return what a call does to a product, as an expression of linear or baddbmm.

    Nothing for a product as it is; None for what they do not add.
    """
    added, a, b = args[:3]
    alpha, beta = (number(kwargs, name) for name in ("alpha", "beta"))
    text = "x" if alpha == 1 else "alpha * x"
    if beta != 0:  # else torch does not even read what would be added
        place = _place(added, a, b)
        if not place:
            return None
        text = f"x + {place}" if alpha == beta == 1 else f"alpha * x + beta * {place}"
    if call == "_addmm_activation":
        gelu = "gelu_tanh" if a.is_cuda else "gelu"  # torch's own differ so
        return f"{gelu if kwargs.get('use_gelu') else 'relu'}({text})"
    return "" if text == "x" else text


def _place(added: Any, a: Any, b: Any) -> str:
    """Return as which operand a matrix is added; nothing if as none."""
    if added.dtype != a.dtype or not added.is_contiguous() or not added.dim():
        return ""
    n, last, count = b.shape[-1], added.shape[-1], added.numel()
    rows = a.numel() // a.shape[-1]
    of_batch = folded(a, b) is None
    if added.shape == (a.shape[0], 1, n) if of_batch else (last, count) == (n, n):
        return "bias"
    return {(1, rows): "row_bias", (n, n * rows): "residual"}.get((last, count), "")


def number(kwargs: Mapping[str, Any], name: str) -> float:
    """Return the factor of a call, ``alpha`` or ``beta``."""
    return float(kwargs.get(name, 1))


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


def _reduction_kind(call: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    x = args[0]
    if x.dtype not in DTYPES or not x.is_contiguous() or not x.numel():
        return None
    if len(args) > 1 or kwargs.get("dtype") not in (None, x.dtype):
        return None
    n = x.numel()
    return CallKind(call, "reduce", (("n", n),), DTYPES[x.dtype], (("op", call),), n)
