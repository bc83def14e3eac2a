"""What a call means: which computation its arrays are, and of which sizes.

One kind of call is checked once: arrays of the same shapes, dtypes and strides only bring other addresses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import CallError, suggestion
from .arrays import ArrayLayout
from .dtypes import ITEMSIZE
from .entries import Computation, Manifest, TensorEntry
from .expressions import NoValueError, told_by
from .gpu_plans import MAP_ALIGNMENT, MOST_APART, GpuPlans, PreparedPlan
from .libraries import Library

_WHOLE = "give an array without gaps; products write so from a bundle that was made with --slices"
LISTED = 12
"""Most computations that a message lists."""


@dataclass(frozen=True)
class CallMatch:
    """A computation, and its sizes.

    Attributes:
        computation: its number in the manifest.
        sizes: by name.
        inputs: tensors of the arrays that were passed, in order; None where the problem has none.
        outputs: tensors to allocate or of ``out=``, in order.
        shapes: of all tensors by name, as the kernel means them.
        strides: elements from row to row of inputs and outputs whose rows lie apart, as those of a part of a larger
            matrix do.
    """

    computation: int
    sizes: dict[str, int]
    inputs: tuple[TensorEntry | None, ...]
    outputs: tuple[TensorEntry, ...]
    shapes: dict[str, tuple[int, ...]]
    strides: dict[str, int]


class ApartError(CallError):
    """Rows of an array lie apart, and the configuration cannot take them so; it can take a copy."""


class _Mismatch(Exception):  # noqa: N818 - a reason, not an error: another computation may fit
    """Why a computation is not what the arrays mean.

    Args:
        stage: how far it fitted; the reason of the one that fitted best is shown.
        reason: what does not fit.
    """

    def __init__(self, stage: int, reason: str) -> None:
        super().__init__(reason)
        self.stage, self.reason = stage, reason


def computations_with(manifest: Manifest, meant: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of the computations with some dtypes and options, by name; those that are not given are free.

    Raises:
        CallError: there is none.
    """
    names = {name for each in manifest.computations for name in (*each.dtypes, *each.options)}
    for name in meant:
        if name not in names:
            raise CallError(f"{manifest.kernel} has no dtype or option {name!r}", suggestion(name, names))
    fitting = tuple(
        number
        for number, each in enumerate(manifest.computations)
        if all({**each.dtypes, **each.options}.get(name) == value for name, value in meant.items())
    )
    if not fitting:
        raise CallError(f"there is no {manifest.kernel} of {_words(meant)}", available(manifest))
    return fitting


def match(
    manifest: Manifest,
    numbers: Sequence[int],
    arrays: Sequence[ArrayLayout | None],
    outs: Sequence[ArrayLayout | None] | None,
    sizes: Mapping[str, int],
    limits: Mapping[str, int],
) -> CallMatch:
    """Return what the arrays mean.

    Args:
        manifest: what there is.
        numbers: of the computations that are meant.
        arrays: of the inputs, in order; None for one that the problem has not.
        outs: of the outputs; None if they are to be allocated.
        sizes: what the shapes do not tell.
        limits: of the GPU, which shapes may depend on.

    Raises:
        CallError: no computation fits, or several do.
    """
    fitting: list[CallMatch] = []
    reasons: list[_Mismatch] = []
    for number in numbers:
        try:
            fitting.append(_match(manifest, number, arrays, outs, sizes, limits))
        except _Mismatch as mismatch:
            reasons.append(mismatch)
    if not fitting:
        furthest = max(mismatch.stage for mismatch in reasons)
        texts = dict.fromkeys(mismatch.reason for mismatch in reasons if mismatch.stage == furthest)
        raise CallError(" or ".join(list(texts)[:3]), available(manifest) if furthest in (1, 3) else "")
    first = min(fitting, key=lambda each: _transposed(manifest, each))
    for other in fitting:
        if other is not first and not _same_for(manifest, first, other):
            texts = dict.fromkeys(_named(manifest.computations[each.computation]) for each in fitting)
            raise CallError(
                f"these arrays may mean {' or '.join(list(texts)[:LISTED])}",
                "say which by options= or dtypes= of load",
            )
    return first


def _transposed(manifest: Manifest, each: CallMatch) -> tuple[bool, ...]:
    return tuple(bool(tensor.transposed) for tensor in manifest.computations[each.computation].tensors)


def _same_for(manifest: Manifest, one: CallMatch, other: CallMatch) -> bool:
    """Return whether both fit only because sizes of 1 are row-major and column-major: then either will do.

    They may differ in as many options as tensors that lie differently; another option means another result.
    """
    a, b = (manifest.computations[each.computation] for each in (one, other))
    lie_differently = sum(
        x != y for x, y in zip(_transposed(manifest, one), _transposed(manifest, other), strict=False)
    )
    return (
        a.dtypes == b.dtypes
        and sum(a.options[name] != b.options[name] for name in a.options) <= lie_differently
    )


def _match(
    manifest: Manifest,
    number: int,
    arrays: Sequence[ArrayLayout | None],
    outs: Sequence[ArrayLayout | None] | None,
    sizes: Mapping[str, int],
    limits: Mapping[str, int],
) -> CallMatch:
    computation = manifest.computations[number]
    there = [tensor for tensor in computation.tensors if tensor.ever]
    inputs = [tensor for tensor in there if tensor.role != "output"]
    outputs = [tensor for tensor in there if tensor.role == "output"]
    _count(manifest, "arrays", inputs, len(arrays))
    if outs is not None:
        _count(manifest, "outputs", outputs, len(outs))
    pairs = [
        (tensor, layout)
        for tensor, layout in zip((*inputs, *outputs), (*arrays, *(outs or [])), strict=False)
        if layout is not None
    ]
    for tensor, layout in pairs:
        if layout.dtype != tensor.dtype:
            raise _Mismatch(1, f"{tensor.name} is {layout.dtype}, not {tensor.dtype}")
    solved = _sizes(manifest, pairs, sizes)
    names = {**solved, **limits}
    shapes = {
        tensor.name: shape_of(tensor, solved, names)
        for tensor in there
        if tensor.when is None or tensor.when.holds(names)
    }
    for tensor, layout in pairs:
        meant = shapes.get(tensor.name, layout.shape)
        if layout.shape != meant:
            raise _Mismatch(2, f"{tensor.name} has shape {layout.shape}, and {_words(solved)} means {meant}")
    strides = {tensor.name: _stride(tensor, layout) for tensor, layout in pairs}
    present = [layout is not None for layout in arrays]
    for tensor, is_there in zip(inputs, present, strict=True):
        if is_there != (tensor.name in shapes):
            raise _Mismatch(
                4, f"{tensor.name} is {'not there' if is_there else 'missing'} at {_words(solved)}"
            )
    return CallMatch(
        number,
        solved,
        tuple(tensor if is_there else None for tensor, is_there in zip(inputs, present, strict=True)),
        tuple(tensor for tensor in outputs if tensor.name in shapes),
        shapes,
        {name: stride for name, stride in strides.items() if stride},
    )


def _count(manifest: Manifest, what: str, tensors: Sequence[TensorEntry], count: int) -> None:
    if len(tensors) != count:
        names = ", ".join(tensor.name for tensor in tensors)
        raise _Mismatch(4, f"{manifest.kernel} has {len(tensors)} {what} ({names}), not {count}")


def _sizes(
    manifest: Manifest, pairs: Sequence[tuple[TensorEntry, ArrayLayout]], given: Mapping[str, int]
) -> dict[str, int]:
    """Return the sizes: a dimension tells the one that it is, a multiple of, or so much more than."""
    solved = dict(given)
    for tensor, layout in pairs:
        if len(layout.shape) != len(tensor.shape):
            raise _Mismatch(2, f"{tensor.name} has {len(layout.shape)} dimensions, not {len(tensor.shape)}")
        for expression, size in zip(tensor.shape, layout.shape, strict=True):
            name, factor, more = told_by(expression.tree) or ("", 1, 0)
            if name in manifest.sizes and size >= more + factor:
                solved.setdefault(name, (size - more) // factor)
    unknown = [name for name in manifest.sizes if name not in solved]
    if unknown:
        raise _Mismatch(2, f"the shapes do not tell {', '.join(unknown)}: pass sizes={{{unknown[0]!r}: ...}}")
    return {name: solved[name] for name in manifest.sizes}


def shape_of(tensor: TensorEntry, sizes: Mapping[str, int], names: Mapping[str, int]) -> tuple[int, ...]:
    """Return a tensor's shape as the kernel means it.

    Raises:
        CallError: a dimension has no value, or is no whole number from 1 up.
    """
    try:
        values = [dimension.evaluate(names) for dimension in tensor.shape]
    except NoValueError as error:
        raise CallError(f"{tensor.name} has no shape at {_words(sizes)}: {error}") from None
    if any(value != int(value) or value < 1 for value in values):
        raise CallError(f"{tensor.name} would have shape {tuple(values)} at {_words(sizes)}")
    return tuple(int(value) for value in values)


def _stride(tensor: TensorEntry, layout: ArrayLayout) -> int:
    """Return how many elements rows lie apart; 0 if there is nothing between them."""
    transposed = bool(tensor.transposed)
    if layout.is_dense(transposed=transposed):
        return 0
    stride = layout.row_stride(transposed=transposed)
    if stride and tensor.role != "inout":
        return stride
    if not layout.is_dense(transposed=not transposed):
        raise _Mismatch(
            3,
            f"{tensor.name} is neither row-major nor column-major: shape {layout.shape}, strides {layout.strides}",
        )
    meant, actual = ("column", "row") if tensor.transposed else ("row", "column")
    raise _Mismatch(3, f"{tensor.name} is {actual}-major, not {meant}-major")


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _named(computation: Computation) -> str:
    order = ", ".join(f"{tensor.name} column-major" for tensor in computation.tensors if tensor.transposed)
    parts = _words({**computation.dtypes, **computation.options})
    return f"({parts}{'; ' + order if order else ''})"


def available(manifest: Manifest) -> str:
    """Return which computations there are, in words."""
    names = [_named(each) for each in manifest.computations]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{manifest.kernel} is here with {', '.join(names[:LISTED])}{more}"


class PreparedCall:
    """What is left to do for arrays that were seen before.

    Args:
        meant: what the arrays mean.
        gpu: where they are.
        plan: what is launched.
        allocates: whether the outputs are allocated.

    Attributes:
        computation: its number in the manifest.
        changed: numbers of the passed arrays that the kernel changes in place.
        strides: elements from row to row of arrays whose rows lie apart, by name.

    Raises:
        ApartError: the plan takes such an array without its stride.
    """

    def __init__(self, meant: CallMatch, gpu: GpuPlans, plan: PreparedPlan, allocates: bool) -> None:
        self.gpu, self.computation = gpu, meant.computation
        self.changed = [
            number
            for number, tensor in enumerate(meant.inputs)
            if tensor is not None and tensor.role == "inout"
        ]
        self._plan = plan
        made = [(tensor, meant.shapes[tensor.name]) for tensor in meant.outputs if allocates]
        self._outputs = [
            (shape[::-1] if tensor.transposed else shape, tensor.dtype, bool(tensor.transposed))
            for tensor, shape in made
        ]
        tensors = [tensor for tensor in (*meant.inputs, *meant.outputs) if tensor is not None]
        self._names = [tensor.name for tensor in tensors]
        self._bytes = [math.prod(meant.shapes[tensor.name]) * ITEMSIZE[tensor.dtype] for tensor in tensors]
        self.strides = meant.strides
        self._rows = [(0, 0)] * len(tensors)
        for number, tensor in enumerate(tensors):
            if (stride := meant.strides.get(tensor.name)) is None:
                continue
            step = stride * ITEMSIZE[tensor.dtype]
            if tensor.name not in plan.apart or step % MAP_ALIGNMENT or stride > MOST_APART:
                how, remedy = ("read", "pass a copy of it") if tensor.role == "input" else ("write", _WHOLE)
                problem = f"rows of {tensor.name} lie {stride} elements apart, which this configuration cannot {how}"
                raise ApartError(problem, remedy)
            length = meant.shapes[tensor.name][0 if tensor.transposed else -1] * ITEMSIZE[tensor.dtype]
            self._rows[number] = (step, length)
            self._bytes[number] += (self._bytes[number] // length - 1) * (step - length)
        self._low_bits = max(plan.alignments[name] for name in self._names) - 1
        # Memory that was just allocated overlaps nothing.
        there = range(len(tensors) - len(self._outputs))
        written = [number for number in there if tensors[number].role != "input"]
        self._apart = [(a, b) for a in written for b in there if a != b and (b not in written or a < b)]

    def allocated(self, library: Library, like: Any, stream: int | None) -> list[Any]:
        """Return new arrays for the outputs, by the library of an array."""
        arrays = [(library.empty(like, shape, dtype, stream), flip) for shape, dtype, flip in self._outputs]
        return [library.transposed(array) if flip else array for array, flip in arrays]

    def check(self, addresses: Sequence[int]) -> None:
        """Raise an error for memory that the kernel must not be given.

        Raises:
            CallError: there is none, it is not aligned, or what is written overlaps with something else.
        """
        bits = 0
        for address in addresses:
            bits |= address
        if bits & self._low_bits or 0 in addresses:
            self._check_each(addresses)
        for a, b in self._apart:
            distance = addresses[b] - addresses[a]
            if -self._bytes[b] < distance < self._bytes[a] and not self._beside(a, b, distance):
                raise CallError(
                    f"{self._names[a]}, which is written, overlaps with {self._names[b]}",
                    "pass a copy of one",
                )

    def _beside(self, a: int, b: int, distance: int) -> bool:
        """Return whether rows of two arrays lie side by side, as those of two slices of one matrix do."""
        (step, length), (other, width) = self._rows[a], self._rows[b]
        return step > 0 and step == other and length <= distance % step <= step - width

    def _check_each(self, addresses: Sequence[int]) -> None:
        for name, address in zip(self._names, addresses, strict=True):
            alignment = self._plan.alignments[name]
            if not address:
                raise CallError(f"{name} has no memory", "pass an array that has its elements on the GPU")
            if address % alignment:
                raise CallError(
                    f"{name} lies at {address:#x}, and this kernel needs a multiple of {alignment} bytes",
                    "pass one that begins there, such as a copy",
                )

    def run(self, addresses: Sequence[int], scalars: Mapping[str, float], stream: int) -> None:
        """Launch it in a stream.

        Raises:
            DriverFailure: the driver refuses.
        """
        gpu = self.gpu
        with gpu.lock:
            pushed = gpu.context.push()
            try:
                named = dict(zip(self._names, addresses, strict=True))
                self._plan.run(named, scalars, stream, self.strides)
            finally:
                if pushed:
                    gpu.context.pop()
