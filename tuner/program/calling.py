"""How a kind of product is called: by torch, and by an operation of its kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from tuner.program.kinds import BATCHES, CallKind, adds, ends_of, folded, number

NUMBERS = {"alpha": 0.5, "beta": 2.0}
"""With which calls that have some are timed."""
Product = Callable[..., Any]
"""An operation of the kernel: takes tensors, ``out=`` if one is given, and numbers by name."""


def call_product(product: Product, kind: CallKind, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a call of a kind without obstacles gives, computed by an operation of its kernel."""
    a, b = args[1:3] if adds(kind.call) else args[:2]
    added = [args[0]] if kind.place else []
    if kind.kernel == "grouped":
        added = [ends_of(args, kwargs)]
    if kind.kernel == "scaled_mm":
        added = [each.view(1, 1) if each.numel() == 1 else each for each in args[2:4]]
    numbers = {name: number(kwargs, name) for name in ("alpha", "beta") if f"{name} * " in kind.op}
    return call_tuned(product, kind, a, b, *added, out=kwargs.get("out"), **numbers)


def call_tuned(
    product: Product, kind: CallKind, a: Any, b: Any, *added: Any, out: Any = None, **numbers: float
) -> Any:
    """Return what an operation of a kind's kernel gives for operands, and what is added, as torch's call has them."""
    numbers = numbers or {name: value for name, value in NUMBERS.items() if f"{name} * " in kind.op}
    if kind.kernel in (*BATCHES, "grouped"):
        tensors, shape = tuple(_in_memory(kind, a, b)), None
    else:
        view = folded(a, b)
        assert view is not None, kind
        tensors, shape = view, None if a.dim() == 2 else (a.shape[0], a.shape[1], b.shape[2])
    tensors = (*tensors, *(each.view(kind.added_shape) if kind.place else each for each in added))
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
    """Return torch's call of a kind of product: a function of its two operands, and of what else it takes."""
    if kind.kernel == "grouped":
        return lambda a, b, ends: torch._grouped_mm(a, b, offs=ends)
    if kind.kernel == "scaled_mm":
        fast = dict(kind.options)["accumulation"] == "fast"
        named = {"out_dtype": getattr(torch, kind.output), "use_fast_accum": fast}
        return lambda a, b, of_a, of_b: torch._scaled_mm(a, b, of_a, of_b, **named)
    plain: Callable[..., Any] = torch.bmm if kind.kernel in BATCHES else torch.mm
    if kind.output:
        return partial(plain, out_dtype=getattr(torch, kind.output))
    if not kind.op:
        return plain
    adding = torch.baddbmm if kind.kernel == "baddbmm" else torch.addmm
    if kind.call == "_addmm_activation":
        adding = partial(torch._addmm_activation, use_gelu="gelu" in kind.op)
    numbers = NUMBERS if "alpha * " in kind.op else {}
    if not kind.place:
        return lambda a, b: adding(a.new_empty(1), a, b, **{**numbers, "beta": 0})
    return lambda a, b, c: adding(c, a, b, **numbers)
