"""The body of an operator of torch: plain CUDA tensors in, a launch, new tensors out; and what gemm has besides:
``linear``, matrices without elements, gradients by products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..core.errors import CallError
from .arrays import ArrayLayout, one_or_all
from .libraries import library_of
from .matching import ApartError, PreparedCall
from .torch_gradients import Differentiated, Gradient, keep_factors
from .torch_signature import DTYPES, Signature

if TYPE_CHECKING:
    from .operation import Operation


@dataclass(frozen=True)
class _Ready:
    """What is left to do for tensors of a kind that was seen before."""

    call: PreparedCall | None
    """None: an input is empty, so that the outputs are zeros."""
    copied: tuple[int, ...]
    """Inputs that are not without gaps."""
    outputs: tuple[tuple[tuple[int, ...], tuple[int, ...], Any], ...]
    """Shape, strides and dtype of each."""
    device: Any
    stream: Callable[[int], int]


def _is_read(layout: ArrayLayout, *, transposed: bool = False, apart: bool) -> bool:
    """Return whether an array's elements, or those of its transpose, lie row by row."""
    return layout.is_dense(transposed=transposed) or (
        apart and len(layout.shape) > 1 and layout.row_stride(transposed=transposed) > 0
    )


def dense(tensor: Any) -> Any:
    """Return a copy without gaps: a matrix keeps the order of its strides, others become row-major."""
    return tensor.clone() if tensor.ndim == 2 else tensor.clone(memory_format=torch.contiguous_format)


class Launcher:
    """Launches an operation for an operator.

    A tensor with gaps (a slice, an expanded one) or at an address that the kernel does not take is copied first, unless
    only its rows lie apart, and the configuration reads them by tensor maps. An order of a matrix that the operation
    does not have is refused, as by the operation itself.

    Args:
        operation: what is launched.
        signature: of the operator.
        fake: gives the outputs without elements.
        in_place: whether tensors that the kernel changes are changed, or copies of them are returned.
        empty_means_zeros: whether inputs without elements give zeros, as of a product; otherwise they are refused.
    """

    def __init__(
        self,
        operation: Operation,
        signature: Signature,
        fake: Callable[..., Any],
        *,
        in_place: bool = False,
        empty_means_zeros: bool = False,
    ) -> None:
        self._operation, self._fake, self._empty_means_zeros = operation, fake, empty_means_zeros
        self._sizes, self._changed, self._mutates = signature.sizes, signature.changed, in_place

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        """Return the outputs, one or a tuple, and before them what is changed unless that happens in place.

        Raises:
            CallError: the tensors are not what the kernel takes; nothing was launched.
            BundleError, DeviceError: as the operation's.
        """
        sizes = tuple([named.pop(name) for name in self._sizes])
        kinds = [
            None if each is None else (each.dtype, each.shape, each.stride(), each.get_device())
            for each in tensors
        ]
        key = (self, sizes, *kinds)
        ready = self._operation.kept.get(key)
        if ready is None:
            ready = self._prepare(tensors, dict(zip(self._sizes, sizes, strict=True)))
            self._operation.keep(key, ready)
        device = ready.device
        if ready.call is None:
            return one_or_all(
                [torch.zeros(shape, dtype=dtype, device=device) for shape, _, dtype in ready.outputs]
            )
        given: Sequence[Any] = tensors
        if ready.copied or self._changed:
            given = self._copies(tensors, ready.copied)
        made = [
            torch.empty_strided(shape, strides, dtype=dtype, device=device)
            for shape, strides, dtype in ready.outputs
        ]
        addresses = [each.data_ptr() for each in (*given, *made) if each is not None]
        try:
            ready.call.check(addresses)
        except CallError:
            given = self._aligned(tensors, given)
            if ready.call.strides and any(a is not b for a, b in zip(given, tensors, strict=True)):
                # Copies have no gaps, for which another call is prepared.
                return self(*given, **dict(zip(self._sizes, sizes, strict=True)), **named)
            addresses = [each.data_ptr() for each in (*given, *made) if each is not None]
            ready.call.check(addresses)
        if named:
            passed = {name: value for name, value in named.items() if value is not None}
            named = self._operation.scalars(ready.call, passed)
        self._operation.launch(ready.call, addresses, named, ready.stream(device.index))
        if not self._changed:
            return made[0] if len(made) == 1 else tuple(made)
        if not self._mutates:
            return one_or_all([*(given[number] for number in self._changed), *made])
        for number in self._changed:
            if given[number] is not tensors[number]:
                tensors[number].copy_(given[number])
        return one_or_all(made) if made else None

    def _copies(self, tensors: Sequence[Any], copied: Sequence[int]) -> list[Any]:
        """Return the tensors with copies of those that have gaps, or that are not to be changed."""
        given = list(tensors)
        for number in copied:
            given[number] = self._copy(number, given[number])
        if not self._mutates:
            for number in self._changed:
                if number not in copied:
                    given[number] = given[number].clone()
        return given

    def _aligned(self, tensors: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Return copies of the tensors that are no copies yet: an allocation's address fits every kernel."""
        if self._mutates and any(given[number] is tensors[number] for number in self._changed):
            return list(given)  # refused: what overlaps must not be written by way of a copy
        return [
            tensor.clone() if tensor is not None and tensor is original else tensor
            for original, tensor in zip(tensors, given, strict=True)
        ]

    def _prepare(self, tensors: Sequence[Any], sizes: dict[str, int]) -> _Ready:
        try:
            return self._prepared(tensors, sizes, apart=True)
        except ApartError:
            return self._prepared(tensors, sizes, apart=False)

    def _prepared(self, tensors: Sequence[Any], sizes: dict[str, int], *, apart: bool) -> _Ready:
        first = next(tensor for tensor in tensors if tensor is not None)
        library = library_of(first)
        layouts = [None if tensor is None else library.layout(tensor, None) for tensor in tensors]
        copied = tuple(
            number
            for number, layout in enumerate(layouts)
            if layout and not self._fits(number, layout, apart=apart and number not in self._changed)
        )
        for number in copied:
            tensor, layout = tensors[number], layouts[number]
            like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
            assert layout is not None
            layouts[number] = layout._replace(strides=tuple(self._copy(number, like).stride()))
        kinds = [
            None if tensor is None else torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            for tensor in tensors
        ]
        fakes = self._fake(*kinds, **sizes)
        outputs = [] if fakes is None else [fakes] if isinstance(fakes, torch.Tensor) else list(fakes)
        if not self._mutates:
            del outputs[: len(self._changed)]
        call = None
        if not (self._empty_means_zeros and any(layout and 0 in layout.shape for layout in layouts)):
            call = self._operation.prepare_call(library, self._as_kernel(layouts), None, None, sizes)
        return _Ready(
            call,
            copied,
            tuple((tuple(fake.shape), tuple(fake.stride()), fake.dtype) for fake in outputs),
            first.device,
            library.stream,
        )

    def _fits(self, _number: int, layout: ArrayLayout, *, apart: bool) -> bool:
        """Return whether an input is passed as it is; ``apart`` says whether also where rows lie apart."""
        return _is_read(layout, apart=apart) or _is_read(layout, transposed=True, apart=apart)

    def _copy(self, _number: int, tensor: Any) -> Any:
        """Return a copy of an input that is not."""
        return dense(tensor)

    def _as_kernel(self, layouts: list[ArrayLayout | None]) -> list[ArrayLayout | None]:
        """Return the layouts as the kernel's arguments."""
        return layouts


Product = Callable[[Any, Any], Any]


class LinearLauncher(Launcher):
    """Launches ``x @ weight.T``, where the leading dimensions of x are the rows of a matrix."""

    def _fits(self, number: int, layout: ArrayLayout, *, apart: bool) -> bool:
        return _is_read(layout, apart=apart) or (
            number == 1 and _is_read(layout, transposed=True, apart=apart)
        )

    def _copy(self, number: int, tensor: Any) -> Any:
        return tensor.contiguous() if number == 0 else dense(tensor)

    def _as_kernel(self, layouts: list[ArrayLayout | None]) -> list[ArrayLayout | None]:
        x, weight = layouts
        assert x is not None
        assert weight is not None
        rows = (math.prod(x.shape[:-1]), *x.shape[-1:])
        return [
            x._replace(shape=rows, strides=(x.row_stride() or rows[1], 1)),
            weight._replace(shape=weight.shape[::-1], strides=weight.strides[::-1]),
        ]


def fake_linear(fake: Callable[..., Any], x: Any, weight: Any) -> Any:
    """Return the result of ``linear`` without elements."""
    product = fake(x.new_empty((math.prod(x.shape[:-1]), x.shape[-1])), weight.t())
    return product.new_empty((*x.shape[:-1], weight.shape[0]))


def product_gradient(signature: Signature, product: Product) -> Gradient:
    """Return the gradient of ``a @ b``, by the same products with other strides.

    Args:
        signature: tells which layouts there are; a product of another one is torch's.
        product: the operator.
    """
    multiply = _in_known_orders(signature, product)

    def formula(call: Differentiated) -> Sequence[Any]:
        a, b = call.inputs
        (grad,) = call.grads
        return [
            multiply(grad, b.t(), call.dtypes[0]) if call.needs[0] else None,
            multiply(a.t(), grad, call.dtypes[1]) if call.needs[1] else None,
        ]

    return Gradient(formula, keep_factors)


def linear_gradient(signature: Signature, product: Product) -> Gradient:
    """Return the gradient of ``x @ weight.T``, likewise."""
    multiply = _in_known_orders(signature, product)

    def formula(call: Differentiated) -> Sequence[Any]:
        x, weight = call.inputs
        grad = call.grads[0].reshape(-1, call.grads[0].shape[-1])
        return [
            multiply(grad, weight, call.dtypes[0]).reshape(call.shapes[0]) if call.needs[0] else None,
            multiply(grad.t(), x.reshape(-1, x.shape[-1]), call.dtypes[1]) if call.needs[1] else None,
        ]

    return Gradient(formula, keep_factors)


def _in_known_orders(signature: Signature, product: Product) -> Callable[[Any, Any, Any], Any]:
    """Return what multiplies matrices in a dtype: by the product in the layouts that there are, by torch in others."""
    orders = {
        (DTYPES[a.dtype], bool(a.transposed), bool(b.transposed))
        for a, b, _ in (computation.tensors for computation in signature.computations)
    }

    def multiply(a: Any, b: Any, dtype: Any) -> Any:
        a, b = a.to(dtype), b.to(dtype)
        if (dtype, _is_transposed(a), _is_transposed(b)) in orders:
            return product(a, b).to(dtype)
        return torch.mm(a, b)

    return multiply


def _is_transposed(matrix: Any) -> bool:
    """Return whether its columns are side by side; a copy of one with gaps keeps that."""
    rows, columns = matrix.stride()
    return bool(rows < columns)
