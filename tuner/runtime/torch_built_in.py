"""Gradients of the built-in kernels but gemm, by torch's own operations: what has an element expression, and what works
on rows, is computed once more by them, in float32; products in their own dtype."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..core.errors import CallError
from .entries import Manifest
from .torch_gradients import (
    Differentiated,
    Formula,
    Gradient,
    Needs,
    evaluate_element,
    keep_all,
    keep_inputs,
    keep_none,
    none,
)


def of_built_in(manifest: Manifest) -> Gradient | None:
    """Return the gradient of a built-in kernel other than gemm; None for another kernel."""
    summary, gradient = _BUILT_IN.get(manifest.kernel, ("", None))
    if manifest.summary != summary:
        return None
    if manifest.kernel in ("reduce", "reduce_axis"):
        chosen = [
            (str(each.options["op"]), each.options.get("before", "x")) for each in manifest.computations
        ]
        if any("arg" in op for op, _ in chosen):
            return Gradient(none(manifest.kernel).formula, keep_none, constants=(0,))
        if all(op != "max" and before == "x" for op, before in chosen):
            return Gradient(_spread, keep_none)
    return gradient


def _vector_add(call: Differentiated) -> Sequence[Any]:
    return [call.grads[0].to(dtype) for dtype in call.dtypes]


def _saxpy(call: Differentiated) -> Sequence[Any]:
    (grad,) = call.grads
    return [grad * call.scalars["alpha"], grad]


def _again(function: Callable[[Differentiated], Sequence[Any]], factors: Sequence[str] = ()) -> Formula:
    """Return the formula of a kernel that computes a function of torch.

    Args:
        function: takes the call, with inputs in float32; returns the outputs.
        factors: inputs that keep their dtype: those of a product, which float32 would slow down.
    """

    def formula(call: Differentiated) -> Sequence[Any]:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            floats = tuple(
                each.float() if each.is_floating_point() and name not in factors else each
                for name, each in zip(call.names, call.inputs, strict=True)
            )
            results = function(replace(call, inputs=floats))
        needed = [each for each, needs in zip(call.inputs, call.needs, strict=True) if needs]
        depends = [
            (result, grad)
            for result, grad in zip(results, call.grads, strict=False)  # behind them are constants
            if result.requires_grad and grad is not None
        ]
        if not depends:
            return [None] * len(call.inputs)
        given = torch.autograd.grad(
            [result for result, _ in depends], needed, [grad.float() for _, grad in depends],
            create_graph=again, allow_unused=True,
        )  # fmt: skip
        grads = iter(given)
        return [next(grads) if needs else None for needs in call.needs]

    return formula


def _element(text: Any, tensors: Mapping[str, Any], call: Differentiated) -> Any:
    """Return the value of an element expression of tensors and scalars; what it may not use is left out."""
    like = next(iter(tensors.values()))
    scalars = {name: torch.full((), value, device=like.device) for name, value in call.scalars.items()}
    return evaluate_element(str(text), {**tensors, **scalars})


def _transform(call: Differentiated) -> Sequence[Any]:
    return [_element(call.options["op"], call.tensors, call)]


def _linear(call: Differentiated) -> Sequence[Any]:
    return _finished(call.tensors["a"] @ call.tensors["b"], call)


def _bmm(call: Differentiated) -> Sequence[Any]:
    a, b = (
        call.tensors[name].transpose(1, 2) if order == "t" else call.tensors[name]
        for name, order in zip("ab", str(call.options["layout"]), strict=True)
    )
    return _finished(a @ b, call)


def _finished(product: Any, call: Differentiated) -> Sequence[Any]:
    """Return what an expression makes of a product, or the product where there is none."""
    return [_element(call.options.get("op", "x"), {"x": product.float(), **call.tensors}, call)]


def _softmax(call: Differentiated) -> Sequence[Any]:
    tensors, options = call.tensors, call.options
    score = _element(options["before"], {"x": tensors["x"], **tensors}, call)
    if options["mask"] == "boolean":
        score = score.masked_fill(~tensors["keep"], -torch.inf)
    if options["mask"] == "causal":
        (rows, columns), offset = score.shape, int(call.scalars["offset"])
        last = torch.arange(rows, device=score.device) % max(columns - offset, 1) + offset
        score = score.masked_fill(torch.arange(columns, device=score.device) > last.unsqueeze(1), -torch.inf)
    return [getattr(torch, options["op"])(score, 1)]


def _norm(call: Differentiated) -> Sequence[Any]:
    tensors, options = call.tensors, call.options
    z = _element(options["before"], {"x": tensors["x"], **tensors}, call)
    distance = z - z.mean(1, keepdim=True) if options["op"] == "layer_norm" else z
    n = distance * torch.rsqrt((distance * distance).mean(1, keepdim=True) + call.scalars["eps"])
    out = _element(options["after"], {"n": n, **tensors}, call)
    return [out, z] if "residual" in tensors else [out]


def _cross_entropy(call: Differentiated) -> Sequence[Any]:
    """Return what the kernel has written in the forward pass, times the gradient of the losses.

    That is a constant, so a gradient that shall have one itself is computed once more.
    """
    scale = call.scalars["scale"]
    if call.options["gradient"] == "none" or torch.is_grad_enabled() or scale == 0.0:
        return _again(_losses)(call)
    factors = call.grads[0].unsqueeze(1) / scale
    return [(call.outputs[1] * factors).to(call.dtypes[0]), None]


def _losses(call: Differentiated) -> Sequence[Any]:
    x, target, ignored = call.tensors["x"], call.tensors["target"], int(call.scalars["ignore_index"])
    return [torch.nn.functional.cross_entropy(x, target, reduction="none", ignore_index=ignored)]


def _gated(call: Differentiated) -> Sequence[Any]:
    gate, up = call.tensors["x"].chunk(2, 1)
    return [_element(call.options["op"], {"gate": gate, "up": up}, call)]


def _spread(call: Differentiated) -> Sequence[Any]:
    """Return the gradient of sums and means, of `reduce` or of `reduce_axis`, whose outputs lack an axis."""
    (shape,), (dtype,), over = call.shapes, call.dtypes, call.options.get("over")
    axis = 1 if over == "columns" else 0
    grad = call.grads[0] if over is None else call.grads[0].unsqueeze(axis)
    return [(grad / shape[axis] if call.options["op"] == "mean" else grad).to(dtype).expand(shape)]


def _reduced(call: Differentiated) -> Sequence[Any]:
    op, over = str(call.options["op"]), call.options.get("over")
    function = torch.amax if op == "max" else getattr(torch, op)  # elements that are equally large share it
    element = _element(call.options.get("before", "x"), {"x": call.tensors["x"], **call.tensors}, call)
    return [function(element, 1 if over == "columns" else 0, keepdim=over is None)]


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


def _keep_angles(needs: Needs) -> Needs:
    """Return what is kept for a rotation: what decides its angles, and for the gradients of tables all inputs."""
    return [needs[2] or needs[3], needs[2] or needs[3], True, True, False]


def _rope(call: Differentiated) -> Sequence[Any]:
    """Return the gradients: those of q and k are the same rotation by the negative angles."""
    q, k, first, second = call.inputs
    if call.options["angles"] != "table":
        if call.needs[3]:
            raise CallError("rope has no gradient for its frequencies", "pass them without requires_grad")
        return [*call.again(*call.grads, -first, second), None, None]
    tables: list[Any] = [None, None]
    if call.needs[2] or call.needs[3]:
        (x, y), (of_x, of_y) = (_of_pairs(both, call.options["style"]) for both in ((q, k), call.grads))
        tables = [(of_x * x + of_y * y).sum(1), (of_y * x - of_x * y).sum(1)]
    return [*call.again(*call.grads, first, -second), *tables]


def _of_pairs(tensors: Sequence[Any], style: str) -> tuple[Any, Any]:
    """Return the first and the second elements of pairs, of the heads of all tensors, in float32."""
    joined = torch.cat(list(tensors), 1).float()
    return joined.chunk(2, -1) if style == "half" else (joined[..., ::2], joined[..., 1::2])


_BUILT_IN = {
    "vector_add": ("c = a + b, element by element", Gradient(_vector_add, keep_none)),
    "saxpy": ("y = alpha x + y, in place", Gradient(_saxpy, keep_none)),
    "transform": (
        "out = op(x, y, z), element by element, with an expression of your own",
        Gradient(_again(_transform), keep_inputs),
    ),
    "bmm": ("C[i] = A[i] B[i], a batch of products", Gradient(_again(_bmm, ("a", "b")), keep_inputs)),
    "baddbmm": (
        "C[i] = op(A[i] B[i]), a batch of products with what is added before rounding",
        Gradient(_again(_bmm, ("a", "b")), keep_inputs),
    ),
    "linear": (
        "C = op(A B), with bias, activation, scales or a residual before rounding",
        Gradient(_again(_linear, ("a", "b")), keep_inputs),
    ),
    "reduce": ("sum, maximum or mean of an array", Gradient(_again(_reduced), keep_inputs)),
    "softmax": (
        "softmax or log_softmax of each row, of an expression of your own",
        Gradient(_again(_softmax), keep_inputs),
    ),
    "norm": (
        "rms_norm or layer_norm of each row, with a residual, weights and expressions of your own",
        Gradient(_again(_norm), keep_inputs),
    ),
    "cross_entropy": (
        "cross entropy of each row of logits, with the gradient in the same pass",
        Gradient(_cross_entropy, keep_all, constants=(1,)),
    ),
    "gated": (
        "silu(gate) * up, or another expression of two halves of each row",
        Gradient(_again(_gated), keep_inputs),
    ),
    "transpose": ("matrices transposed: out[b, c, r] = x[b, r, c]", Gradient(_transpose, keep_none)),
    "permute": (
        "three axes in another order: x [a, b, c] as [b, a, c], ...",
        Gradient(_permute, keep_none),
    ),
    "reduce_axis": (
        "sum, mean, maximum, or the place of one, over the columns or the rows of a matrix",
        Gradient(_again(_reduced), keep_inputs),
    ),
    "rope": ("rotary position embedding of q and k", Gradient(_rope, _keep_angles)),
    "mean_matvec": ("y_n = W mean_m x_nm, for groups of vectors", Gradient(_mean_matvec, keep_inputs)),
}
"""By name, with the summary: a kernel of one's own may have the same name."""
