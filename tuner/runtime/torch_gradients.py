"""What the gradient of an operator is: a formula, what it keeps, a user's function; element expressions by torch."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import CallError
from .arrays import one_or_all
from .entries import Manifest


@dataclass(frozen=True)
class Differentiated:
    """A call whose gradients are asked for.

    Attributes:
        grads: one for each result.
        names: of the inputs.
        inputs: as they were passed; None for those that were not kept.
        outputs: likewise.
        dtypes, shapes: of the inputs.
        needs: which inputs need a gradient.
        scalars: what was passed, or else the kernel's own.
        options: of the computation.
        again: the operator itself.
    """

    grads: tuple[Any, ...]
    names: Sequence[str]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    shapes: tuple[Any, ...]
    needs: tuple[bool, ...]
    scalars: Mapping[str, float]
    options: Mapping[str, Any]
    again: Callable[..., Any]

    @property
    def tensors(self) -> dict[str, Any]:
        """The inputs by name."""
        return dict(zip(self.names, self.inputs, strict=True))


Formula = Callable[[Differentiated], Sequence[Any]]


Needs = Sequence[bool]
"""Which inputs need a gradient."""


def keep_all(needs: Needs) -> Needs:
    """Return which inputs and (the last) whether the outputs are kept for the gradient: all."""
    return [True] * (len(needs) + 1)


def keep_inputs(needs: Needs) -> Needs:
    """Likewise: the inputs."""
    return [*([True] * len(needs)), False]


def keep_none(needs: Needs) -> Needs:
    """Likewise: nothing."""
    return [False] * (len(needs) + 1)


def keep_factors(needs: Needs) -> Needs:
    """Likewise, of a product: the gradient of a factor takes the other one."""
    return [needs[1], needs[0], False]


@dataclass(frozen=True)
class Gradient:
    """How an operator is differentiated.

    Attributes:
        formula: gives the gradient of each input.
        keeps: which inputs, and whether the outputs, are kept for it, by needs.
        constants: numbers of results that have no gradient of their own.
    """

    formula: Formula
    keeps: Callable[[Needs], Needs]
    constants: Sequence[int] = ()


def none(kernel: str) -> Gradient:
    """Return the gradient of a kernel of which none is known: an error that says so."""

    def formula(_call: Differentiated) -> Sequence[Any]:
        raise CallError(f"{kernel} has no gradient", "give it one: op.torch(backward=function)")

    return Gradient(formula, keep_none)


def of_user(backward: Callable[..., Any], kernel: str) -> Gradient:
    """Return the gradient that a user's function gives."""

    def formula(call: Differentiated) -> Sequence[Any]:
        given = backward(one_or_all(call.grads), call.inputs, one_or_all(call.outputs), **call.scalars)
        grads = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(grads) != len(call.inputs):
            raise CallError(
                f"the backward function of {kernel} returned {len(grads)} gradients",
                f"return {len(call.inputs)}, one for each input; None where it has none",
            )
        return grads

    return Gradient(formula, keep_all)


def is_gemm(manifest: Manifest) -> bool:
    """Return whether it is the built-in product of matrices."""
    return (manifest.kernel, manifest.summary) == ("gemm", "C = A B")


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_OF_TORCH = "abs sqrt exp log tanh erf sigmoid sin cos maximum minimum where relu clamp"
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in _OF_TORCH.split()},
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
}


def evaluate_element(text: str, tensors: Mapping[str, Any]) -> Any:
    """Return the value of an expression for tensors of one shape and dtype, by name.

    Raises:
        ValueError: it has something that element expressions do not.
    """
    like = next(iter(tensors.values()))

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number):
                return torch.full((), float(number), dtype=like.dtype, device=like.device)
            case ast.Name(id=name) if name in tensors:
                return tensors[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return value(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return value(left) ** ast.literal_eval(right)
            case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
                return _BINARY[type(kind)](value(left), value(right))
            case ast.Compare(left=left, ops=[kind], comparators=[right]) if type(kind) in _BINARY:
                return _BINARY[type(kind)](value(left), value(right))
            case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(value, arguments))
        raise ValueError(f"{ast.unparse(node)} is no part of an element expression")

    return value(ast.parse(text, mode="eval").body)
