"""Element expressions, such as those of the kernel transform, by torch's operations: they have gradients."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

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
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in ("abs", "sqrt", "exp", "log", "tanh", "sin", "cos", "maximum", "minimum", "where")
}


def element_names(text: str) -> list[str]:
    """Return the names of tensors that an expression uses, sorted."""
    names = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
    return sorted(names - set(_FUNCTIONS))


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
