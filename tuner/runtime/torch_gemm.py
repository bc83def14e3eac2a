"""The built-in product of matrices as an operator: ``linear``, matrices without elements, gradients by products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .arrays import ArrayLayout, row_major
from .entries import Manifest
from .torch_gradients import Differentiated, Gradient, keep_factors
from .torch_launch import Launcher, dense
from .torch_signature import DTYPES

Product = Callable[[Any, Any], Any]


class ProductLauncher(Launcher):
    """Launches a product of two matrices; of matrices without elements it is zeros."""

    empty_means_zeros = True


class LinearLauncher(ProductLauncher):
    """Launches ``x @ weight.T``, where the leading dimensions of x are the rows of a matrix."""

    def _fits(self, number: int, layout: ArrayLayout) -> bool:
        return layout.is_row_major() or (number == 1 and layout.is_column_major())

    def _copy(self, number: int, tensor: Any) -> Any:
        return tensor.contiguous() if number == 0 else dense(tensor)

    def _as_kernel(self, layouts: list[ArrayLayout | None]) -> list[ArrayLayout | None]:
        x, weight = layouts
        assert x is not None
        assert weight is not None
        rows = (math.prod(x.shape[:-1]), *x.shape[-1:])
        return [
            x._replace(shape=rows, strides=row_major(rows)),
            weight._replace(shape=weight.shape[::-1], strides=weight.strides[::-1]),
        ]


def fake_linear(fake: Callable[..., Any], x: Any, weight: Any) -> Any:
    """Return the result of ``linear`` without elements."""
    product = fake(x.new_empty((math.prod(x.shape[:-1]), x.shape[-1])), weight.t())
    return product.new_empty((*x.shape[:-1], weight.shape[0]))


def product_gradient(manifest: Manifest, computations: Sequence[int], product: Product) -> Gradient:
    """Return the gradient of ``a @ b``, by the same products with other strides.

    Args:
        manifest: tells which layouts there are; a product of another one is torch's.
        computations: of the operation.
        product: the operator.
    """
    multiply = _Products(manifest, computations, product)

    def formula(call: Differentiated) -> Sequence[Any]:
        a, b = call.inputs
        (grad,) = call.grads
        return [
            multiply(grad, b.t(), call.dtypes[0]) if call.needs[0] else None,
            multiply(a.t(), grad, call.dtypes[1]) if call.needs[1] else None,
        ]

    return Gradient(formula, keep_factors)


def linear_gradient(manifest: Manifest, computations: Sequence[int], product: Product) -> Gradient:
    """Return the gradient of ``x @ weight.T``, likewise."""
    multiply = _Products(manifest, computations, product)

    def formula(call: Differentiated) -> Sequence[Any]:
        x, weight = call.inputs
        grad = call.grads[0].reshape(-1, call.grads[0].shape[-1])
        return [
            multiply(grad, weight, call.dtypes[0]).reshape(call.shapes[0]) if call.needs[0] else None,
            multiply(grad.t(), x.reshape(-1, x.shape[-1]), call.dtypes[1]) if call.needs[1] else None,
        ]

    return Gradient(formula, keep_factors)


class _Products:
    """Products in the layouts that there are; torch's in others."""

    def __init__(self, manifest: Manifest, computations: Sequence[int], product: Product) -> None:
        self._product = product
        self._orders = {
            (DTYPES[a.dtype], bool(a.transposed), bool(b.transposed))
            for a, b, _ in (manifest.computations[number].tensors for number in computations)
        }

    def __call__(self, a: Any, b: Any, dtype: Any) -> Any:
        a, b = a.to(dtype), b.to(dtype)
        if (dtype, _is_transposed(a), _is_transposed(b)) in self._orders:
            return self._product(a, b).to(dtype)
        return torch.mm(a, b)


def _is_transposed(matrix: Any) -> bool:
    """Return whether its columns are side by side; a copy of one with gaps keeps that."""
    rows, columns = matrix.stride()
    return bool(rows < columns)
