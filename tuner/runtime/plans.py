"""From entries, sizes and a GPU's limits to launches in numbers: the plans of candidates, references, baselines and
winners."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..core.errors import KernelError
from . import launch_limits as limits
from .dtypes import DTYPES
from .entries import ArgumentEntry, LaunchEntry, ScalarEntry, ScratchEntry, TensorEntry
from .expressions import MAX_INTEGER, Expression, Names, round_up
from .launches import OUTPUTS, Argument, Buffer, Launch, Plan
from .repeats import expanded
from .structs import size_of, struct_argument

MAX_FLOAT = 1e300
"""Of what tensors are filled with: a difference of two has room."""
STRUCT_BYTES = 4096
"""Of all structs of a launch: what every driver takes."""


class PlanMaker:
    """Makes launches in numbers, for one set of names.

    Args:
        names: a value for each name of the entries' expressions.
        tensors, scalars, scratch: what arguments may name.
        dtypes: by role, for entries that name a role.
        problem: whose they are, for errors.
        suffixes: of arguments that name a tensor, each a buffer of its own.
    """

    def __init__(
        self,
        names: Names,
        tensors: Iterable[TensorEntry],
        scalars: Iterable[ScalarEntry],
        scratch: Sequence[ScratchEntry] = (),
        *,
        dtypes: Mapping[str, str] | None = None,
        problem: object = "the problem",
        suffixes: Sequence[str] = ("",),
    ) -> None:
        self._names, self._dtypes, self._problem, self._suffixes = names, dtypes or {}, problem, suffixes
        self._tensors, self._scalars, self._scratch = tensors, scalars, scratch

    @cached_property
    def tensors(self) -> tuple[Buffer, ...]:
        """The problem's tensors with shape, dtype and layout.

        Raises:
            KernelError: a dimension is no whole number above 0, or no tensor is an output.
        """
        buffers = []
        for item in self._tensors:
            if self.true(item.when):
                shape = self._extents(item.shape, f"shape of {item.name}")
                transposed = item.transposed is not None and self.true(item.transposed)
                shape = shape[::-1] if transposed else shape
                dtype = self._dtypes.get(item.dtype, item.dtype)
                if item.init.endswith("inf") and DTYPES[dtype].whole:
                    raise KernelError(f"init of {item.name} is no number of {dtype}", "write a whole number")
                between = self._between(item, dtype, math.prod(shape)) if item.between else None
                init = item.init
                if init == "whole":
                    if not DTYPES[dtype].whole:
                        what = f"init of {item.name}: {dtype} has no whole range"
                        raise KernelError(what, "give one: { uniform = [a, b] }")
                    init, between = "uniform", DTYPES[dtype].limits
                buffer = Buffer(item.name, shape, dtype, item.role, init, transposed)
                buffers.append(replace(buffer, between=between, file=item.file, function=item.function))
        if not any(buffer.role in OUTPUTS for buffer in buffers):
            raise KernelError(f"{self._problem} has no output", "correct the when of the outputs")
        return tuple(buffers)

    @cached_property
    def scalars(self) -> dict[str, tuple[str, float]]:
        """Dtype and value of the scalars by name, each value rounded to its dtype."""
        return {
            item.name: (
                dtype,
                limits.rounded(_fits(item.value.evaluate(self._names), dtype, item.name), dtype),
            )
            for item in self._scalars
            for dtype in [self._dtypes.get(item.dtype, item.dtype)]
        }

    @cached_property
    def scratch(self) -> tuple[Buffer, ...]:
        """The scratch memory that is allocated."""
        buffers = []
        for item in self._scratch:
            if self.true(item.when):
                shape = self._extents(item.shape, f"shape of {item.name}")
                buffer = Buffer(item.name, shape, self._dtypes.get(item.dtype, item.dtype), "scratch")
                buffers.append(replace(buffer, zeroed=item.zeroed, zeroed_once=item.zeroed_once))
        return tuple(buffers)

    @cached_property
    def _present(self) -> dict[str, bool]:
        """For each name of a buffer, whether there is one."""
        entries: list[TensorEntry | ScratchEntry] = [*self._tensors, *self._scratch]
        return {f"{item.name}{suffix}": self.true(item.when) for item in entries for suffix in self._suffixes}

    def steps(self, entries: Sequence[LaunchEntry]) -> list[tuple[int, PlanMaker]]:
        """Return what is launched, in order: the index of its entry, and what makes launches of that pass.

        Errors as of :func:`~.repeats.expanded`.
        """
        _ = self.scratch, self.scalars, self.tensors, self._present  # no pass decides these
        return [(index, self._with(names)) for index, names in expanded(entries, self._names, self._problem)]

    def _with(self, names: Names) -> PlanMaker:
        other = copy(self)
        other._names = names
        return other

    def plan(self, entries: Sequence[LaunchEntry]) -> Plan:
        """Return launches, and the scratch memory between them.

        Raises:
            KernelError: there is no launch, or an expression has a value that is none of its kind.
            UnlaunchableError: there are too many, or a grid, block or amount of shared memory is beyond a limit.
        """
        scratch, steps = self.scratch, self.steps(entries)
        codes = {index: code for code, index in enumerate(sorted({index for index, _ in steps}))}
        return Plan(tuple(maker.launch(entries[index], codes[index]) for index, maker in steps), scratch)

    def launch(self, entry: LaunchEntry, code: int = 0) -> Launch:
        """Return a launch of a code; errors as of :meth:`plan`."""
        grid = limits.triple(self._extents(entry.grid, "grid"), "grid", limits.GRID_LIMITS)
        cluster = self._extents(entry.cluster, "cluster")
        launch = Launch(
            grid,
            limits.triple(self._extents(entry.block, "block"), "block", limits.BLOCK_LIMITS),
            self._whole(entry.shared_bytes, "shared_bytes"),
            tuple(self._argument(item) for item in self.passed(entry)),
            limits.cluster_of(cluster, grid, self._names["cc"]),
            entry.cooperative,
            None if entry.carveout is None else self._whole(entry.carveout, "carveout"),
            1 if entry.alignment is None else self._alignment(entry.alignment),
            entry.resident is not None and self.true(entry.resident),
            entry.programmatic and self._names["cc"] >= 90,
            self._constants(entry) if entry.constants else (),
            code,
        )
        limits.check_launch(launch, self._names)
        if sum(round_up(size_of(one), 16) for one in launch.arguments if one[0] == "struct") > STRUCT_BYTES:
            raise limits.UnlaunchableError(f"structs of more than {STRUCT_BYTES} bytes", "pass an array")
        return launch

    def _constants(self, entry: LaunchEntry) -> tuple[tuple[str, str, int], ...]:
        """Return what variables are filled from, without inputs that the problem lacks."""
        sizes = {buffer.name: buffer.size_bytes for buffer in self.tensors}
        return tuple((symbol, name, sizes[name]) for symbol, name in entry.constants if name in sizes)

    def passed(self, entry: LaunchEntry) -> list[ArgumentEntry]:
        """Return a launch's arguments: a cluster order of 0 is none, nor is one whose condition is false."""
        return [
            item
            for item in entry.arguments
            if (item.cluster_order is None or self._whole(item.cluster_order, "cluster_order"))
            and self.true(item.when)
        ]

    def _between(self, item: TensorEntry, dtype: str, count: int) -> tuple[float, float]:
        """Return the least and largest number of a tensor's init, or of so many in steps the first and the step."""
        first, second = (expression.evaluate(self._names) for expression in item.between)
        for text in (one for one in (first, second) if isinstance(one, str)):
            raise KernelError(f"init of {item.name}: {text!r} is no number", "write expressions of numbers")
        steps = item.init == "range"
        low, high = sorted((first, first + second * (count - 1))) if steps else (first, second)
        whole = DTYPES[dtype].whole
        least, most = DTYPES[dtype].limits if whole else (-MAX_FLOAT, MAX_FLOAT)
        numbers = (
            first == int(first) and second == int(second)
            if whole
            else math.isfinite(limits.rounded(float(low), dtype))
        )
        if (
            not least <= low <= high <= most
            or not numbers
            or not math.isfinite(limits.rounded(float(high), dtype))
        ):
            where, form = (
                item.between[0].where or f"init of {item.name}",
                "uniform = [least, largest] }, both",
            )
            form = "range = [first, step] }, all" if steps else form
            if first == second and not steps:
                raise KernelError(f"{where}: {first} is no number of {dtype}", "write one of its dtype")
            what = f"{low} to {high} is no range of {dtype}"
            raise KernelError(f"{where}: {what}", f"write init = {{ {form} numbers of its dtype")
        return (int(first), int(second)) if whole else (first, second)

    def _argument(self, argument: ArgumentEntry) -> Argument:
        name = self._chosen(argument) if argument.index is not None else argument.name
        if argument.value is not None:
            number = argument.value.evaluate(self._names)
            return "scalar", argument.dtype, _fits(number, argument.dtype, argument.value.text or "value")
        if argument.cluster_order is not None:
            return "cluster_order", "uint8", self._whole(argument.cluster_order, "cluster_order")
        if argument.fields:
            return struct_argument([self._argument(field) for field in argument.fields], argument.alignment)
        if argument.map is not None:
            return self._map(argument)
        if argument.kind == "stride":
            return "stride", name, next((one.shape[-1] for one in self.tensors if one.name == name), 0)
        if (present := self._present.get(name)) is not None:
            return ("buffer", name, 0) if present else limits.NULL_POINTER
        if name in self.scalars:
            return "scalar", *self.scalars[name]
        value = self._names[name]
        dtype = "float32" if isinstance(value, float) else "int32"
        return "scalar", dtype, _fits(value, dtype, name)

    def _chosen(self, argument: ArgumentEntry) -> str:
        """Return the one of several buffers that is passed."""
        assert argument.index is not None
        index = self._whole(argument.index, "index")
        if index >= len(argument.one_of):
            what = f"{_said(argument.index, 'index', index)}, and one_of has {len(argument.one_of)}"
            raise KernelError(what, f"the first has index 0: write {argument.index.text} % ..., or name more")
        return argument.one_of[index]

    def _map(self, argument: ArgumentEntry) -> Argument:
        """Return the tensor map of the first matrix that is present."""
        entry = argument.map
        assert entry is not None
        matrices = {buffer.name: buffer for buffer in (*self.tensors, *self.scratch)}
        names = (argument.name, *entry.instead)
        matrix = next((matrices[name] for name in names if name in matrices), None)
        what = f"tensor map of {matrix.name if matrix else argument.name}"
        rows, columns = self._extents(entry.box, f"box of the {what}")
        swizzle = self._whole(entry.swizzle, f"swizzle of the {what}")
        promotion = self._whole(entry.promotion, f"l2_promotion of the {what}")
        return limits.map_argument(matrix, what, (rows, columns), swizzle, promotion, self._names["cc"])

    def _alignment(self, expression: Expression) -> int:
        alignment = self._whole(expression, "alignment", minimum=1)
        if limits.ALIGNMENT % alignment:
            raise KernelError(
                _said(expression, "alignment", alignment),
                f"it must be a power of two up to {limits.ALIGNMENT}, the alignment of all tensors",
            )
        return alignment

    def true(self, condition: Expression | None) -> bool:
        """Return whether a condition holds; None for one that always does."""
        return condition is None or bool(condition.evaluate(self._names))

    def _extents(self, expressions: Iterable[Expression], what: str) -> tuple[int, ...]:
        return tuple(self._whole(item, what, minimum=1) for item in expressions)

    def _whole(self, expression: Expression, what: str, minimum: int = 0) -> int:
        value = expression.evaluate(self._names)
        if type(value) is int and value >= minimum:
            return value
        if not isinstance(value, str) and minimum <= value <= MAX_INTEGER and value == int(value):
            return int(value)
        divided = ": ceil_div(n, d) rounds up, // down" if isinstance(value, float) else ""
        remedy = f"it must be a whole number from {minimum} up{divided}"
        raise KernelError(_said(expression, what, value), remedy)


def _said(expression: Expression, what: str, value: object) -> str:
    """Return an expression's value with its text and place, as far as it has them."""
    if not expression.text:
        return f"{what} = {value}"
    return f"{expression.where or what}: {expression.text} = {value}"


def _fits(value: Any, dtype: str, what: str) -> float:
    if isinstance(value, str):
        raise KernelError(f"argument {what} is the text {value!r}", "a kernel takes numbers only")
    return limits.fits(value, dtype, what)
