"""What an operation is as an operator of torch: its arguments, and what it returns for tensors of which only the kind
is known."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import CallError
from .dtypes import ITEMSIZE
from .entries import Computation, Manifest, TensorEntry
from .expressions import ARITHMETIC, Expression, NoValueError, Tree, ceil_div, round_up, told_by
from .launch_limits import DEVICE_LIMITS

DTYPES = {name: getattr(torch, name) for name in ITEMSIZE if hasattr(torch, name)}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

# With sizes that torch keeps as symbols. Another operation makes them numbers: the graph is compiled for those alone.
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    **{name: ARITHMETIC[name] for name in ("+", "-", "*", "//", "%")},
    "ceil_div": ceil_div,
    "round_up": round_up,
}


@dataclass(frozen=True)
class Signature:
    """An operator's arguments and results.

    Attributes:
        kernel: its name.
        computations: those that may be meant.
        inputs: tensors that are passed, in order, those that the kernel changes among them.
        outputs: tensors that it allocates.
        scalars: names of numbers that may be passed.
        sizes: names of sizes that no shape tells, and that must be passed.
    """

    kernel: str
    computations: tuple[Computation, ...]
    inputs: tuple[TensorEntry, ...]
    outputs: tuple[TensorEntry, ...]
    scalars: tuple[str, ...]
    sizes: tuple[str, ...]

    @property
    def changed(self) -> tuple[int, ...]:
        """Numbers of the inputs that the kernel changes in place."""
        return tuple(number for number, tensor in enumerate(self.inputs) if tensor.role == "inout")

    def schema(self, *, in_place: bool) -> str:
        """Return the arguments and results in torch's language.

        Args:
            in_place: whether it changes the tensors that the kernel changes, or returns changed copies of them.
        """
        arguments = []
        for number, tensor in enumerate(self.inputs):
            mark = f"({chr(97 + number)}!)" if in_place and tensor.role == "inout" else ""
            optional, ending = "" if _always(tensor) else "?", "_" if keyword.iskeyword(tensor.name) else ""
            arguments.append(f"Tensor{mark}{optional} {tensor.name}{ending}")
        named = [f"float? {name}=None" for name in self.scalars] + [f"SymInt {name}" for name in self.sizes]
        if named:
            arguments += ["*", *named]
        count = len(self.outputs) + (0 if in_place else len(self.changed))
        returned = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        return f"({', '.join(arguments)}) -> {returned}"

    def meant(self, dtypes: Sequence[Any], shapes: Sequence[Any]) -> list[Computation]:
        """Return the computations that take tensors of these dtypes and dimensions; None for one that is not there.

        Raises:
            CallError: there is none.
        """
        given = [
            None if dtype is None else (_NAMES.get(dtype, str(dtype)), len(shape))
            for dtype, shape in zip(dtypes, shapes, strict=True)
        ]
        fitting, taken = [], []
        for computation in self.computations:
            entries = {tensor.name: tensor for tensor in computation.tensors}
            own = [entries[tensor.name] for tensor in self.inputs]
            kinds = [(entry.dtype, len(entry.shape)) for entry in own]
            taken.append(kinds)
            if all(each is None or each == kind for each, kind in zip(given, kinds, strict=True)):
                fitting.append(computation)
        if not fitting:
            texts = dict.fromkeys(map(_words, taken))
            raise CallError(f"{self.kernel} is called with {_words(given)}", f"it takes {' or '.join(texts)}")
        return fitting

    def fake_outputs(self, tensors: Sequence[Any], sizes: Mapping[str, Any]) -> list[Any]:
        """Return the outputs without elements, for tensors whose sizes may be symbols.

        Args:
            tensors: the inputs.
            sizes: all that were passed by name, and no others.

        Raises:
            CallError: no computation takes them, or several that return something else.
            RuntimeError: their shapes contradict each other; torch's own.
        """
        dtypes = [None if each is None else each.dtype for each in tensors]
        shapes = [None if each is None else each.shape for each in tensors]
        first, *others = self.meant(dtypes, shapes)
        if any(_returned(first) != _returned(other) for other in others):
            raise CallError(
                f"these tensors may mean several computations of {self.kernel}",
                "say which by options= or dtypes= of load",
            )
        entries = {tensor.name: tensor for tensor in first.tensors}
        named = dict(sizes)
        for tensor, given in zip(self.inputs, tensors, strict=True):
            if given is None:
                continue
            for part, size in zip(entries[tensor.name].shape, given.shape, strict=True):
                name, factor, more = told_by(part.tree) or ("", 1, 0)
                if not name or name in DEVICE_LIMITS:
                    continue
                if name in named:
                    shown = f"{tensor.name} of {self.kernel} has shape {tuple(given.shape)}: {name} differs"
                    torch._check(size == factor * named[name] + more, lambda shown=shown: shown)
                else:
                    named[name] = (size - more) // factor if factor > 1 else size - more
        like = next(given for given in tensors if given is not None)
        made = []
        for tensor in self.outputs:
            entry = entries[tensor.name]
            shape = [_dimension(part.tree, named) for part in entry.shape]
            order = slice(None, None, -1 if entry.transposed else 1)
            array = like.new_empty(shape[order], dtype=DTYPES[entry.dtype])
            made.append(array.permute(*range(len(shape))[order]) if entry.transposed else array)
        return made


def signature_of(manifest: Manifest, numbers: Sequence[int]) -> Signature:
    """Return the signature that computations share.

    Raises:
        CallError: they take different tensors, so that they are not one operator, or an output is not always there.
    """
    computations = tuple(manifest.computations[number] for number in numbers)
    kinds = {_arguments(manifest, computation): computation for computation in computations}
    if len(kinds) > 1:
        raise CallError(
            f"{manifest.kernel} is here with computations that take different tensors",
            "say which by options= or dtypes= of load",
        )
    ((inputs, outputs, scalars, sizes), computation), *_ = kinds.items()
    tensors = {tensor.name: tensor for tensor in computation.tensors}
    for name in outputs:
        if not _always(tensors[name]):
            raise CallError(
                f"{name} is an output of {manifest.kernel} for some sizes only", "call op() itself"
            )
    passed, made = tuple(tensors[name] for name, *_ in inputs), tuple(tensors[name] for name in outputs)
    return Signature(manifest.kernel, computations, passed, made, scalars, sizes)


def _arguments(
    manifest: Manifest, computation: Computation
) -> tuple[tuple[tuple[Any, ...], ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    there = [tensor for tensor in computation.tensors if tensor.ever]
    inputs = [tensor for tensor in there if tensor.role != "output"]
    dimensions = [part for tensor in inputs if _always(tensor) for part in tensor.shape]
    told = {name for name, *_ in filter(None, (told_by(part.tree) for part in dimensions))}
    return (
        tuple((tensor.name, tensor.role, _always(tensor)) for tensor in inputs),
        tuple(tensor.name for tensor in there if tensor.role == "output"),
        tuple(scalar.name for scalar in computation.scalars),
        tuple(name for name in manifest.sizes if name not in told),
    )


def _words(kinds: Sequence[tuple[str, int] | None]) -> str:
    return ", ".join("None" if kind is None else f"{kind[0]} of {kind[1]} dimensions" for kind in kinds)


def _always(tensor: TensorEntry) -> bool:
    """Return whether it is settled that there is such a tensor: for all sizes, or for none."""
    return tensor.when is None or not isinstance(tensor.when.tree, (str, tuple))


def _returned(computation: Computation) -> tuple[Any, ...]:
    """Return what decides the outputs' kinds, given the inputs'."""
    return tuple(
        (tensor.name, tensor.shape, tensor.role == "output" and (tensor.dtype, bool(tensor.transposed)))
        for tensor in computation.tensors
    )


def _dimension(part: Tree, sizes: Mapping[str, Any]) -> Any:
    if isinstance(part, str):
        return sizes[part]
    if not isinstance(part, tuple):
        return part
    name, *operands = part
    if isinstance(name, str) and name in _SYMBOLIC:
        return _SYMBOLIC[name](*(_dimension(operand, sizes) for operand in operands))
    try:
        return int(Expression(part).evaluate({name: int(size) for name, size in sizes.items()}))
    except (NoValueError, KeyError) as error:
        raise CallError(f"an output has no shape at {dict(sizes)}: {error}") from None
