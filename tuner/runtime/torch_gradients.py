"""Gradients of the built-in kernels, as functions of torch's own operations, and of products by products; element
expressions are computed once more by torch."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import CallError
from .arrays import one_or_all
from .entries import Manifest, TensorEntry


@dataclass(frozen=True)
class Differentiated:
    """A call whose gradients are asked for.

    Attributes:
        grads: one for each result.
        inputs: as they were passed; None for those that were not kept.
        outputs: likewise.
        dtypes, shapes: of the inputs.
        needs: which inputs need a gradient.
        scalars: what was passed, or else the kernel's own.
        options: of the computation.
    """

    grads: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    shapes: tuple[Any, ...]
    needs: tuple[bool, ...]
    scalars: Mapping[str, float]
    options: Mapping[str, Any]


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
    """

    formula: Formula
    keeps: Callable[[Needs], Needs]


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


def of_built_in(manifest: Manifest) -> Gradient | None:
    """Return the gradient of a built-in kernel other than gemm; None for another kernel."""
    summary, gradient = _BUILT_IN.get(manifest.kernel, ("", None))
    if gradient is None or manifest.summary != summary:
        return None
    if manifest.kernel == "reduce" and all(each.options["op"] != "max" for each in manifest.computations):
        return Gradient(gradient.formula, keep_none)
    return gradient


def is_gemm(manifest: Manifest) -> bool:
    """Return whether it is the built-in product of matrices."""

    def kinds(tensors: Sequence[TensorEntry]) -> list[Any]:
        return [(tensor.name, tensor.role, tuple(part.tree for part in tensor.shape)) for tensor in tensors]

    expected = [("a", "input", ("m", "k")), ("b", "input", ("k", "n")), ("c", "output", ("m", "n"))]
    return (manifest.kernel, manifest.summary) == ("gemm", "C = A B") and all(
        kinds(each.tensors) == expected and not each.scalars for each in manifest.computations
    )


def _vector_add(call: Differentiated) -> Sequence[Any]:
    return [call.grads[0].to(dtype) for dtype in call.dtypes]


def _saxpy(call: Differentiated) -> Sequence[Any]:
    (grad,) = call.grads
    return [grad * call.scalars["alpha"], grad]


def _transform(call: Differentiated) -> Sequence[Any]:
    """Return the expression once more, in float32, by torch's operations, which have gradients."""
    text, again = str(call.options["op"]), torch.is_grad_enabled()
    with torch.enable_grad():
        values = dict(zip(element_names(text), (each.float() for each in call.inputs), strict=True))
        result = evaluate_element(text, values)
    needed = [each for each, needs in zip(call.inputs, call.needs, strict=True) if needs]
    if not result.requires_grad:
        return [None] * len(call.inputs)
    results = iter(
        torch.autograd.grad(result, needed, call.grads[0].float(), create_graph=again, allow_unused=True)
    )
    return [next(results) if needs else None for needs in call.needs]


def _reduce(call: Differentiated) -> Sequence[Any]:
    (grad,), (shape,), (dtype,) = call.grads, call.shapes, call.dtypes
    op = call.options["op"]
    if op == "max":  # as torch.amax: elements that are equally large share it
        (x,), (out,) = call.inputs, call.outputs
        largest = x == out
        return [(largest * (grad / largest.sum())).to(dtype)]
    if op == "mean":
        grad = grad / shape[0]
    return [grad.to(dtype).expand(shape)]


def _mean_matvec(call: Differentiated) -> Sequence[Any]:
    x, w = call.inputs
    (grad,), dimension = call.grads, 1 if call.options["layout"] == "nml" else 0
    grad_x = (grad.float() @ w.float() / x.shape[dimension]).to(x.dtype).unsqueeze(dimension).expand(x.shape)
    grad_w = (grad.float().t() @ x.mean(dimension, dtype=torch.float32)).to(w.dtype)
    return [grad_x, grad_w]


def _transpose(call: Differentiated) -> Sequence[Any]:
    return [call.grads[0].transpose(1, 2)]


def _permute(call: Differentiated) -> Sequence[Any]:
    axes = str(call.options["axes"])
    return [call.grads[0].permute([axes.index(axis) for axis in "abc"])]


_BUILT_IN = {
    "vector_add": ("c = a + b, element by element", Gradient(_vector_add, keep_none)),
    "saxpy": ("y = alpha x + y, in place", Gradient(_saxpy, keep_none)),
    "transform": (
        "out = op(x, y, z), element by element, with an expression of your own",
        Gradient(_transform, keep_inputs),
    ),
    "reduce": ("sum, maximum or mean of an array", Gradient(_reduce, keep_all)),
    "transpose": ("matrices transposed: out[b, c, r] = x[b, r, c]", Gradient(_transpose, keep_none)),
    "permute": (
        "three axes in another order: x [a, b, c] as [b, a, c], ...",
        Gradient(_permute, keep_none),
    ),
    "mean_matvec": ("y_n = W mean_m x_nm, for groups of vectors", Gradient(_mean_matvec, keep_inputs)),
}
"""By name, with the summary: a kernel of one's own may have the same name."""


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
