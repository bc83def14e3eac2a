"""Operators of torch that are compared with torch's own functions in float64: results, gradients, and their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tuner.core.model import Problem, Value
from tuner.kernel.load import load_kernel
from tuner.kernel.reference import tolerance
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class OperatorCase:
    """An operator at one problem.

    Attributes:
        kernel: its name.
        sizes: of the problem.
        shapes: of the inputs.
        expected: the function of torch that it is.
        terms: how many terms are added up in an element of the result, and of each gradient.
        choices: options of the problem, some for each of several computations.
        columns: inputs that are column-major.
        method: of the operator: it itself, or ``linear``.
        made: makes the inputs that are no normal numbers, by number.
        first: whether the first of several outputs is meant.
        joined: the axis along which several outputs are joined.
        sizes_of: the sizes of the terms of the result and of each gradient, where the function of absolute values does
            not give them: from weights and inputs.
        roundings: of a gradient to its dtype: two where it is kept, and multiplied by that of the result.
    """

    kernel: str
    sizes: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]
    expected: Callable[..., Any]
    terms: tuple[int, ...]
    choices: Sequence[Mapping[str, Value]] = ({},)
    columns: tuple[bool, ...] = ()
    method: str = ""
    name: str = field(default="")
    made: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)
    first: bool = False
    joined: int | None = None
    sizes_of: Callable[..., Sequence[Any]] | None = None
    roundings: int = 1

    def problems(self, dtype: str) -> tuple[KernelSpec, list[Problem]]:
        """Return the kernel, and a problem for each computation."""
        kernel = load_kernel(self.kernel)
        return kernel, [
            kernel.problem(dict(self.sizes), {"input": dtype}, dict(each)) for each in self.choices
        ]

    def inputs(self, dtype: str, device: str) -> list[Any]:
        """Return tensors that need gradients; a seed makes them the same each time."""
        generator = torch.Generator().manual_seed(0)
        made = []
        for number, shape in enumerate(self.shapes):
            flipped = bool(self.columns and self.columns[number])
            drawn = torch.randn(shape[::-1] if flipped else shape, generator=generator)
            each = (
                self.made[number](drawn).to(device)
                if number in self.made
                else drawn.to(device, getattr(torch, dtype))
            )
            made.append((each.t() if flipped else each).requires_grad_(each.is_floating_point()))
        return made

    def function(self, operator: Any) -> Callable[..., Any]:
        """Return what is called of an operator; several outputs are joined along an axis."""
        called = getattr(operator, self.method) if self.method else operator
        if self.first:
            return lambda *inputs: called(*inputs)[0]
        return called if self.joined is None else (lambda *inputs: torch.cat(called(*inputs), self.joined))


def _add(a: Any, b: Any) -> Any:
    return a + b


def _saxpy(x: Any, y: Any) -> Any:
    return 2.5 * x + y


def _bilinear(x: Any, y: Any) -> Any:
    return x * y + 0.5 * x


def _transposed(x: Any) -> Any:
    return x.transpose(1, 2)


def _last_first(x: Any) -> Any:
    return x.permute(2, 0, 1)


def _linear(a: Any, b: Any, bias: Any, residual: Any) -> Any:
    return 0.5 * (a @ b) + bias + 2 * residual


def _rotated(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
    x, y = torch.cat([q, k], 1).chunk(2, -1)
    cosine, sine = cosine[:, None], sine[:, None]
    return torch.cat([x * cosine - y * sine, y * cosine + x * sine], -1)


def _sizes_of_rotated(weights: Any, *inputs: Any) -> Sequence[Any]:
    def turned(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
        x, y = torch.cat([q, k], 1).chunk(2, -1)
        cosine, sine = cosine[:, None], sine[:, None]
        return torch.cat([x * cosine + y * sine, y * cosine + x * sine], -1)

    return with_gradients(turned, weights, *(each.abs().requires_grad_() for each in inputs))


def _batched(a: Any, b: Any) -> Any:
    return a @ b.transpose(1, 2)


def _biased(a: Any, b: Any, bias: Any) -> Any:
    return torch.baddbmm(bias, a, b, beta=2, alpha=0.5)


def _of_columns(x: Any) -> Any:
    return torch.amax(x, 0)


def _dots(x: Any, y: Any) -> Any:
    return (x * y).sum(1)


def _sum(x: Any) -> Any:
    return x.sum().reshape(1)


def _mean(x: Any) -> Any:
    return x.mean().reshape(1)


def _largest(x: Any) -> Any:
    return torch.amax(x, 0, keepdim=True)


def _means(axis: int) -> Callable[[Any, Any], Any]:
    return lambda x, w: x.mean(axis) @ w.t()


def _softmax(x: Any, y: Any) -> Any:
    return torch.softmax(0.5 * x + y, 1)


def _masked_softmax(x: Any, keep: Any) -> Any:
    return torch.softmax(x.masked_fill(~keep, -torch.inf), 1)


def _causal_softmax(x: Any) -> Any:
    squares = x.new_ones((len(x) // x.shape[1] + 1, x.shape[1], x.shape[1])).tril().flatten(0, 1)
    return torch.softmax(x.masked_fill(squares[: len(x)] == 0.0, -torch.inf), 1)


def _sizes_of_causal(weights: Any, x: Any) -> list[Any]:
    return _sizes_of_softmax(weights, x, torch.zeros_like(x))[:2]


def _sizes_of_softmax(weights: Any, x: Any, y: Any) -> list[Any]:
    result = torch.softmax(0.5 * x + y if y.is_floating_point() else x.masked_fill(~y, -torch.inf), 1)
    weights = weights.reshape(x.shape)
    size = 4.0 + 2.0 * (x.abs() + y.abs() if y.is_floating_point() else x.abs()).amax(1, keepdim=True)
    grad = size * result * (weights + (weights * result).sum(1, keepdim=True))
    return [size * result, grad, grad]


def _rms_norm(x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return torch.cat([torch.nn.functional.rms_norm(total, total.shape[1:], weight, 1e-5), total])


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, 1e-5)


def _cross_entropy(x: Any, target: Any) -> Any:
    return torch.nn.functional.cross_entropy(x, target, reduction="none")


def _targets(drawn: Any) -> Any:
    return torch.where(drawn > 1.0, -100, (7.0 * drawn.abs()).long())


def _sizes_of_cross_entropy(weights: Any, x: Any, target: Any) -> list[Any]:
    hot = torch.zeros_like(x).scatter_(1, target.clamp(0).unsqueeze(1), 1.0)
    size = 8.0 + 4.0 * x.abs().amax(1)
    # The gradient that the kernel has written is rounded to the dtype of the logits.
    return [size, 16.0 * (size * weights).unsqueeze(1) * (torch.softmax(x, 1) + hot)]


def _silu_mul(x: Any) -> Any:
    gate, up = x.chunk(2, 1)
    return torch.nn.functional.silu(gate) * up


def _sizes_of_norm(weights: Any, x: Any, *others: Any) -> list[Any]:
    """Return sizes that hold for both: rows of some hundred normal numbers have a deviation of about 1."""
    wide = 16.0 * (1.0 + x.abs().amax() + others[0].abs().amax()) ** 2 * (1.0 + others[-1].abs().amax())
    return [
        wide.expand(len(weights) // x.shape[1], x.shape[1]),
        *(
            wide * weights.sum() / (1 if each.ndim == 1 else x.shape[0]) * torch.ones_like(each)
            for each in (x, *others)
        ),
    ]


def row_cases(rows: int, columns: int) -> list[OperatorCase]:
    """Return the cases of the kernels that work on rows."""
    sizes, shape = {"rows": rows, "columns": columns}, (rows, columns)
    return [
        OperatorCase(
            "softmax", sizes, (shape, shape), _softmax, (columns, columns, columns),
            [{"before": "0.5 * x + y"}], name="softmax", sizes_of=_sizes_of_softmax,
        ),
        OperatorCase(
            "softmax", sizes, (shape, shape), _masked_softmax, (columns, columns), [{"mask": "boolean"}],
            name="softmax masked", made={1: lambda drawn: drawn > -1.0}, sizes_of=_sizes_of_softmax,
        ),
        OperatorCase(
            "softmax", sizes, (shape,), _causal_softmax, (columns, columns), [{"mask": "causal"}],
            name="softmax causal", sizes_of=_sizes_of_causal,
        ),
        OperatorCase(
            "norm", sizes, (shape, shape, (columns,)), _rms_norm, (columns, columns, columns, rows),
            [{"before": "x + residual"}], name="rms_norm", joined=0, sizes_of=_sizes_of_norm,
        ),
        OperatorCase(
            "norm", sizes, (shape, (columns,), (columns,)), _layer_norm, (columns, columns, rows, rows),
            [{"op": "layer_norm", "after": "n * weight + bias"}], name="layer_norm", sizes_of=_sizes_of_norm,
        ),
        OperatorCase(
            "cross_entropy", sizes, (shape, (rows,)), _cross_entropy, (columns, columns), name="cross_entropy",
            made={1: _targets}, first=True, sizes_of=_sizes_of_cross_entropy, roundings=2,
        ),
        OperatorCase("gated", sizes, ((rows, 2 * columns),), _silu_mul, (9, 12), name="gated"),
    ]  # fmt: skip


def cases(
    n: int, product: tuple[int, int, int], means: tuple[int, int, int], rows: tuple[int, int] = (6, 40)
) -> list[OperatorCase]:
    """Return the cases of all built-in kernels.

    Args:
        n: elements of arrays.
        product: m, n and k.
        means: groups, vectors and length.
        rows: rows and columns.
    """
    m, columns, k = product
    groups, vectors, length = means
    gemm = {"m": m, "n": columns, "k": k}
    layouts = [{"layout": layout} for layout in ("nn", "nt", "tn", "tt")]
    result = [
        OperatorCase(
            "gemm", gemm, ((m, k), (k, columns)), torch.mm, (k, columns, m), layouts, (a, b), "",
            f"gemm {'nt'[a]}{'nt'[b]}",
        )
        for a in (False, True)
        for b in (False, True)
    ]  # fmt: skip
    result.append(
        OperatorCase(
            "gemm", gemm, ((2, m // 2, k), (columns, k)), torch.nn.functional.linear, (k, columns, m), layouts,
            (), "linear", "linear",
        )
    )  # fmt: skip
    finished = [{"op": "alpha * x + bias + beta * residual", **layout} for layout in layouts]
    result.append(
        OperatorCase(
            "linear",
            gemm,
            ((m, k), (k, columns), (columns,), (m, columns)),
            _linear,
            (k + 4, columns, m, m, 1),
            finished,
            name="product with bias and residual",
        )
    )
    result.append(
        OperatorCase(
            "bmm", {"batch": 2, **gemm}, ((2, m, k), (2, columns, k)), _batched, (k, columns, m),
            [{"layout": "nt", "broadcast": "none"}], name="batch of products",
        )
    )  # fmt: skip
    result.append(
        OperatorCase(
            "baddbmm", {"batch": 2, **gemm}, ((2, m, k), (2, k, columns), (2, 1, columns)), _biased,
            (k + 2, columns, m, m), [{"op": "alpha * x + beta * bias"}], name="batch with a bias",
        )
    )  # fmt: skip
    pair = ((n,), (n,))
    result += [
        OperatorCase("vector_add", {"n": n}, pair, _add, (2, 1, 1), name="vector_add"),
        OperatorCase("saxpy", {"n": n}, pair, _saxpy, (2, 1, 1), name="saxpy"),
        OperatorCase(
            "transform", {"n": n}, pair, _bilinear, (3, 2, 1), [{"op": "x * y + 0.5 * x"}], name="transform"
        ),
        OperatorCase("reduce", {"n": n}, ((n,),), _sum, (n, 1), [{"op": "sum"}], name="reduce sum"),
        OperatorCase("reduce", {"n": n}, ((n,),), _mean, (n, 1), [{"op": "mean"}], name="reduce mean"),
        OperatorCase("reduce", {"n": n}, ((n,),), _largest, (1, 1), [{"op": "max"}], name="reduce max"),
    ]
    axes = (2, m, columns)
    result += [
        OperatorCase(
            "transpose", dict(zip(("batch", "rows", "columns"), axes, strict=True)), (axes,), _transposed, (1, 1),
            name="transpose",
        ),
        OperatorCase(
            "permute", dict(zip("abc", axes, strict=True)), (axes,), _last_first, (1, 1), [{"axes": "cab"}],
            name="permute",
        ),
        OperatorCase(
            "reduce_axis", {"rows": m, "columns": columns}, ((m, columns),), _of_columns, (1, 1),
            [{"op": "max", "over": "rows"}], name="reduce_axis",
        ),
        OperatorCase(
            "reduce_axis", {"rows": m, "columns": columns}, ((m, columns), (m, columns)), _dots, (columns, 1, 1),
            [{"op": "sum", "over": "columns", "before": "x * y"}], name="reduce_axis dots",
        ),
        OperatorCase(
            "rope", {"tokens": m, "q_heads": 3, "k_heads": 2, "pairs": k},
            ((m, 3, 2 * k), (m, 2, 2 * k), (m, k), (m, k)), _rotated, (2, 2, 2, 10, 10), name="rope", joined=1,
            made={2: torch.clone, 3: torch.clone}, sizes_of=_sizes_of_rotated,
        ),
    ]  # fmt: skip
    for layout, axis in (("nml", 1), ("mnl", 0)):
        shape = (groups, vectors, length) if axis else (vectors, groups, length)
        result.append(
            OperatorCase(
                "mean_matvec", {"groups": groups, "vectors": vectors, "length": length}, (shape, (length, length)),
                _means(axis), (length + vectors, length, groups + vectors),
                [{"layout": layout, "product": "float32"}], name=f"mean_matvec {layout}",
            )
        )  # fmt: skip
    return [*result, *row_cases(*rows)]


def with_gradients(function: Callable[..., Any], weights: Any, *inputs: Any) -> list[Any]:
    """Return a result, and the gradients of its sum with weights."""
    result = function(*inputs)
    varied = [each for each in inputs if each.requires_grad]
    return [result, *torch.autograd.grad(result, varied, weights.to(result.dtype).reshape(result.shape))]


def error_ratios(case: OperatorCase, function: Callable[..., Any], dtype: str, device: str) -> list[float]:
    """Return the largest error of the result and of each gradient, as a part of what is allowed.

    They are compared with torch's in float64. What is allowed is what a tuner's own verification allows for as many
    terms; the size of terms comes from the same function of absolute values.
    """
    inputs = case.inputs(dtype, device)
    exact = [each.detach().double().requires_grad_() if each.is_floating_point() else each for each in inputs]
    count = case.expected(*exact).numel()
    weights = torch.randn(count, generator=torch.Generator().manual_seed(1)).to(device, getattr(torch, dtype))
    actual = with_gradients(function, weights, *inputs)
    wanted = with_gradients(case.expected, weights.double(), *exact)
    if case.sizes_of is not None:
        magnitudes = case.sizes_of(weights.double().abs(), *(each.detach() for each in exact))
    else:
        sizes = [each.detach().abs().requires_grad_() for each in exact]
        magnitudes = with_gradients(case.expected, weights.double().abs(), *sizes)
    ratios = []
    for terms, mine, right, magnitude in zip(case.terms, actual, wanted, magnitudes, strict=False):
        allowed = tolerance(terms, "float32", str(mine.dtype).removeprefix("torch."))
        bound = (
            allowed.coefficient * magnitude.detach().abs()
            + case.roundings * allowed.unit * right.detach().abs()
            + allowed.tiny
        )
        error = (mine.detach().double() - right.detach()).abs()
        ratios.append(float((error / bound).max()) if bool(torch.isfinite(mine).all()) else float("inf"))
    return ratios
