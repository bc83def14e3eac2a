"""Kinds of calls: what a call of torch is as a problem of a kernel, and how that is called, or why it cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from tuner.runtime.arrays import ArrayLayout

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
PRODUCTS = (
    *("mm", "mm.out", "mm.dtype", "mm.dtype_out", "bmm", "bmm.out", "bmm.dtype", "bmm.dtype_out"),
    *(
        "addmm",
        "addmm.out",
        "_addmm_activation",
        "_addmm_activation.out",
        "baddbmm",
        "baddbmm.out",
        "_grouped_mm",
    ),
)
"""Overloads of ``aten`` that are products. ``linear``, ``matmul`` and ``einsum`` end in these on a device."""
PRODUCT_KERNELS = ("gemm", "linear", "bmm", "grouped")
"""What serves them: a product, one with what is added and an activation, a batch, groups of rows."""
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
        """Whether one of the kernels of products can serve it."""
        return self.kernel in PRODUCT_KERNELS and not self.obstacle

    @property
    def op(self) -> str:
        """The expression of a product that is more than one; empty of one that is not."""
        return dict(self.options).get("op", "")

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
    if call == "_grouped_mm":
        return _grouped_kind(args, kwargs)
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
        return _batch_kind(
            call, a, b, (("batch", batch), ("m", m), ("n", n), ("k", k)), dtype, flop, obstacle
        )
    sizes = (("m", view[0].shape[0]), ("n", n), ("k", k))
    orders = [order(matrix) for matrix in view]
    if not all(orders):
        gaps = f"operand {'ab'[orders.index('')]} is a part of a larger matrix: its rows lie apart"
        return CallKind(call, "", sizes, dtype, (), flop, obstacle or gaps)
    layout = ("layout", "".join(orders))
    if not _adds(call) or obstacle:
        return CallKind(call, "gemm", sizes, dtype, (layout,), flop, obstacle)
    op = expression_of(call, args, kwargs)
    if not op:
        what = "adds what is no bias, row or row-major matrix of its dtype"
        return CallKind(call, "gemm", sizes, dtype, (layout,), flop, obstacle or what)
    return CallKind(call, "linear", sizes, dtype, (layout, ("op", op)), flop, obstacle)


def _batch_kind(
    call: str, a: Any, b: Any, sizes: tuple[tuple[str, int], ...], dtype: str, flop: float, obstacle: str
) -> CallKind:
    """Return the kind of a batch of different products."""
    orders = [_batch_order(each) for each in (a, b)]
    broadcast = "a" if a.stride(0) == 0 else "b" if b.stride(0) == 0 else "none"
    if not all(orders) or (a.stride(0) == 0 and b.stride(0) == 0):
        obstacle = obstacle or f"matrices of a batch of {a.shape[0]} that lie apart"
        return CallKind(call, "", sizes, dtype, (), flop, obstacle)
    options = (("layout", "".join(orders)), ("broadcast", broadcast))
    return CallKind(call, "bmm", sizes, dtype, options, flop, obstacle)


def _grouped_kind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallKind | None:
    """Return the kind of a product of groups of rows, which a third argument ends; None of others."""
    a, b = args[:2]
    ends = ends_of(args, kwargs)
    if a.dim() != 2 or b.dim() != 3 or ends is None or a.shape[1] != b.shape[1] or not a.numel() * b.numel():
        return None
    groups, k, n = b.shape
    m, dtype = a.shape[0], DTYPES.get(a.dtype) or str(a.dtype).removeprefix("torch.")
    flop, sizes = 2.0 * m * n * k, (("groups", groups), ("m", m), ("n", n), ("k", k))
    orders = order(a) + _batch_order(b)
    obstacle = _product_obstacle("_grouped_mm", "_grouped_mm", a, b, {})
    if kwargs.get("bias") is not None or kwargs.get("out_dtype") not in (None, a.dtype) or len(args) > 3:
        obstacle = obstacle or "has a bias, or an output of another dtype"
    if ends.dtype != torch.int32 or ends.shape != (groups,) or not ends.is_contiguous():
        obstacle = obstacle or "ends of groups that are no int32 side by side"
    if orders not in ("nn", "nt") or dtype == "float32":
        return CallKind("_grouped_mm", "", sizes, dtype, (), flop, obstacle or "operands that lie otherwise")
    return CallKind(
        "_grouped_mm", "grouped", sizes, dtype, (("layout", orders), ("ragged", "m")), flop, obstacle
    )


def ends_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return where the groups of a call end."""
    return args[2] if len(args) > 2 else kwargs.get("offs")


def _batch_order(matrices: Any) -> str:
    """Return the order of matrices that lie one below the other, or are one and the same; nothing for others."""
    _, rows, columns = matrices.shape
    return order(matrices[0]) if matrices.stride(0) in (0, rows * columns) else ""


def _adds(call: str) -> bool:
    return "add" in call


def _product_obstacle(call: str, name: str, a: Any, b: Any, kwargs: Mapping[str, Any]) -> str:
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        return f"dtype {str(a.dtype).removeprefix('torch.')}"
    if "dtype" in name:
        return "an output of another dtype"
    if call == "baddbmm":
        return "adds to a batch of products, which the kernel does not"
    out = kwargs.get("out")
    shape = (*a.shape[:-1], b.shape[-1])
    if out is not None and not (out.dtype == a.dtype and out.shape == shape and out.is_contiguous()):
        return "the given output is not row-major, or of another shape or dtype"
    return ""


def expression_of(call: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return what ``addmm`` or ``_addmm_activation`` does to a product, as linear's expression; nothing for none."""
    added, a, b = args[:3]
    (m, n), place = (a.shape[0], b.shape[1]), ""
    if added.dtype != a.dtype:
        return ""
    if added.shape[-1:] == (n,) and added.numel() == n and added.stride(-1) == 1:
        place = "bias"
    elif added.shape == (m, 1) and added.is_contiguous():
        place = "row_bias"
    elif added.shape == (m, n) and added.is_contiguous():
        place = "residual"
    if not place:
        return ""
    scaled = _number(kwargs, "alpha") != 1 or _number(kwargs, "beta") != 1
    text = f"alpha * x + beta * {place}" if scaled else f"x + {place}"
    if call != "_addmm_activation":
        return text
    gelu = "gelu_tanh" if a.is_cuda else "gelu"  # torch's own differ so
    return f"{gelu if kwargs.get('use_gelu') else 'relu'}({text})"


def _number(kwargs: Mapping[str, Any], name: str) -> float:
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


NUMBERS = {"alpha": 0.5, "beta": 2.0}
"""With which calls that have some are timed."""
Product = Callable[..., Any]
"""An operation of the kernel: takes tensors, ``out=`` if one is given, and numbers by name."""


def call_product(product: Product, kind: CallKind, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a call of a kind without obstacles gives, computed by an operation of its kernel."""
    a, b, *added = (*args[1:3], args[0]) if kind.kernel == "linear" else args[:2]
    if kind.kernel == "grouped":
        added = [ends_of(args, kwargs)]
    numbers = {name: _number(kwargs, name) for name in ("alpha", "beta") if f"{name} * " in kind.op}
    return call_tuned(product, kind, a, b, *added, out=kwargs.get("out"), **numbers)


def call_tuned(
    product: Product, kind: CallKind, a: Any, b: Any, *added: Any, out: Any = None, **numbers: float
) -> Any:
    """Return what an operation of a kind's kernel gives for operands, and what is added, as torch's call has them."""
    numbers = numbers or (NUMBERS if "alpha" in kind.op else {})
    if kind.kernel in ("bmm", "grouped"):
        tensors, shape = tuple(_in_memory(kind, a, b)), None
    else:
        view = folded(a, b)
        assert view is not None, kind
        tensors, shape = view, None if a.dim() == 2 else (a.shape[0], a.shape[1], b.shape[2])
    if added:
        one_row = added[0].dim() == 2 and added[0].shape[1] != 1 and "bias" in kind.op
        tensors = (*tensors, added[0].reshape(-1) if one_row else added[0])
    if out is None:
        made = product(*tensors, **numbers)
        return made if shape is None else made.view(shape)
    product(*tensors, out=out if shape is None else out.view(-1, shape[2]), **numbers)
    return out


def _in_memory(kind: CallKind, a: Any, b: Any) -> Iterator[Any]:
    """Yield the operands of a batch or of groups as they lie, and one matrix where all of a batch are one."""
    options = dict(kind.options)
    for name, order_of, each in zip("ab", options["layout"], (a, b), strict=True):
        matrices = each[:1] if options.get("broadcast") == name else each
        yield matrices.transpose(1, 2) if order_of == "t" else matrices


def torch_call(kind: CallKind) -> Callable[..., Any]:
    """Return torch's call of a kind of product: a function of its two operands, and of what it adds."""
    numbers = NUMBERS if "alpha" in kind.op else {}
    if kind.kernel == "grouped":
        return lambda a, b, ends: torch._grouped_mm(a, b, offs=ends)
    if kind.kernel != "linear":
        plain: Callable[..., Any] = torch.bmm if kind.kernel == "bmm" else torch.mm
        return plain
    if kind.call == "_addmm_activation":
        gelu = "gelu" in kind.op
        return lambda a, b, c: torch._addmm_activation(c, a, b, use_gelu=gelu, **numbers)
    return lambda a, b, c: torch.addmm(c, a, b, **numbers)
