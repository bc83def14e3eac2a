"""Grid, block and arguments of a launch, by how a kernel's code computes indices, or how the source launches it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.kernel.draft import Given, LaunchDraft, TensorDraft
from tuner.kernel.source.choices import shared, stepped
from tuner.kernel.source.expressions import Sum, bare, expression_text, python_of, sum_of, text_of
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import is_block
from tuner.kernel.source.signature import Parameter
from tuner.kernel.source.tokens import joined
from tuner.kernel.source.types import CType, base_of, vector_of
from tuner.kernel.source.use import AXES, CodeUse
from tuner.runtime.dtypes import ITEMSIZE


class LaunchGuess:
    """How a kernel is launched.

    Args:
        names: what the source's names become; gets a parameter for the size of a block that has none.
        use: what the code does.
        tensors: the kernel's.
    """

    def __init__(self, names: SourceNames, use: CodeUse, tensors: Mapping[str, TensorDraft]) -> None:
        self._names, self._use, self._tensors = names, use, tensors
        self._kernel, self._called = names.kernel, names.called
        self._in_call: dict[str, str] = {}
        """Variables of the calling function that are parameters here."""
        self.blocks: dict[str, str] = {}
        """The parameters that are threads of a block, with their axis."""
        self.constraints: dict[str, str] = {}

    def draft(self) -> LaunchDraft:
        """Return the launch."""
        blocks, grids, gaps = zip(*(self._axis(axis) for axis in AXES), strict=True)
        self.blocks |= {one: axis for axis, one in zip(AXES, blocks, strict=True) if one in self._names.found}
        fixed = self._called is None and sum(text.isdecimal() and text != "1" for text in blocks) > 1
        grid: Any = _without_ones(grids)
        if any(gaps):
            grid = Given(grid, "blocks", gap=True)
        template = f"<{', '.join(self._names.entry_arguments)}>" if self._names.entry_arguments else ""
        return LaunchDraft(
            self._names.file,
            (self._kernel.short_name if self._kernel.extern_c else self._kernel.name) + template,
            [self._argument(one) for one in self._kernel.parameters],
            grid,
            Given(_without_ones(blocks), "threads of a block", gap=True) if fixed else _without_ones(blocks),
            self._shared(),
        )

    def _argument(self, one: Parameter) -> Any:
        name = self._names.named(one.name)
        if name in self._names.sizes and one.type.dtype == "int64":
            return {"value": name, "dtype": "int64"}
        return name

    def _axis(self, axis: str) -> tuple[str, str, bool]:
        """Return block and grid along an axis, and whether the grid is a guess."""
        threads = self._use.uses(f"threadIdx.{axis}") or self._use.uses(f"blockDim.{axis}")
        span = self._use.span(axis)
        if span is None:
            block = self._block(axis, {}) if threads else "1"
            missed = self._use.uses(f"blockIdx.{axis}") or (axis == "x" and not self._axes())
            return block, (missed and self._called_shape(0, axis)) or "1", missed
        factor, bound = span
        block = self._block(axis, factor) if threads else "1"
        covered = self._names.text(text_of(factor)).replace(f"blockDim_{axis}", block)
        known = self._known(expression_text(covered))
        bound = self._unbound(axis) if bound is None else bound
        if bound is None or known is None:
            return block, self._called_shape(0, axis) or "1", True
        bound = self._names.text(bare(bound))
        return block, bound if known == "1" else f"ceil_div({bound}, {known})", False

    def _unbound(self, axis: str) -> str | None:
        """Return the extent along an axis that the code compares with nothing: a tensor's outermost dimension."""
        if self._called_shape(0, axis):
            return None
        outer = [tensor.shape[0] for tensor in self._tensors.values() if len(tensor.shape) > 1]
        free = [one for one in outer if not self._use.is_extent(one)]
        if free and axis == "x":
            return free[0]
        return self._names.in_order(self._use.sizes)[0] if len(self._use.sizes) == 1 else None

    def _block(self, axis: str, factor: Sum) -> str:
        names = [name for product in factor for name in product]
        number = next(iter(factor.values()), 1)
        threads = self._use.divided(axis)
        in_file = [self._names.renamed.get(name, name) for name in names]
        choices = [name for name in in_file if name in self._names.found]
        step = self._names.renamed.get(name := stepped(self._use, axis), name)
        if f"blockDim_{axis}" not in names and step in self._names.found:
            for tile in choices if step not in choices else ():
                self.constraints[f"{tile} is a whole number of {step}"] = f"{tile} % {step} == 0"
            return step
        if f"blockDim_{axis}" not in names and choices:
            order = [token.text for token in self._kernel.body]
            choices.sort(key=lambda name: (not is_block(name), order.index(name) if name in order else -1))
            return f"{threads} * {choices[0]}" if threads > 1 else choices[0]
        if not names and number > 1:
            return str(number * threads)
        if f"blockDim_{axis}" not in names:
            free = (name for name in self._names.found if is_block(name) and _on(axis, name))
            if chosen := next((name for name in free if name not in self.blocks), None):
                self.blocks[chosen] = axis
                return chosen
        called = self._called_shape(1, axis)
        if called is not None and not called.isdecimal():
            return called
        fitting = ("block_size", "threads") if self._axes() == 1 else (f"block_{axis}", f"threads_{axis}")
        name = self._names.free(*fitting)
        self._names.found[name] = int(called) if called and int(called) else None
        if self._called is not None and len(self._called.shape) > 1 and self._called.shape[1].isidentifier():
            self._in_call[self._called.shape[1]] = name
        self.blocks[name] = axis
        return name

    def _axes(self) -> int:
        return sum(self._use.uses(f"threadIdx.{axis}") for axis in AXES)

    def _called_shape(self, place: int, axis: str) -> str | None:
        """Return grid (0) or block (1) along an axis as the source launches the kernel; None if that is not clear."""
        if self._called is None or place >= len(self._called.shape):
            return None
        text = self._called.variables.get(self._called.shape[place], self._called.shape[place])
        match = re.fullmatch(r"dim3\s*[({](.*)[)}]", text)
        parts = [part.strip() for part in re.split(r",(?![^(]*\))", match[1])] if match else [text]
        number = AXES.index(axis)
        return self._from_call(parts[number]) if number < len(parts) else "1"

    def _from_call(self, text: str) -> str | None:
        """Return an expression of the calling function with the names of the kernel; None if it has others."""
        assert self._called is not None
        passed = {
            argument: self._names.named(one.name)
            for argument, one in zip(self._called.arguments, self._kernel.parameters, strict=False)
        }
        source, found = self._names.source, self._names.found
        variables = {name: macro.value for name, macro in source.macros.items() if name not in found}
        variables |= {**source.constants, **self._called.variables}
        passed |= self._in_call

        def resolved(text: str, depth: int = 8) -> str:
            def named(match: re.Match[str]) -> str:
                name = match[0]
                if name in passed or name not in variables or not depth:
                    return passed.get(name, name)
                return f"({resolved(variables[name], depth - 1)})"

            return re.sub(r"[A-Za-z_]\w*", named, text)

        text = resolved(text)
        return self._known(expression_text(text))

    def _known(self, text: str | None) -> str | None:
        """Return an expression if the file has all its names."""
        words = ("ceil_div", "min", "max", "if", "else", "and", "or")
        names = set(re.findall(r"[A-Za-z_]\w*", text or "")).difference(words)
        return text if names <= {*self._names.sizes, *self._names.found, *self._names.options} else None

    def _shared(self) -> str | Given:
        if "extern __shared__" not in joined(self._kernel.body):
            return ""
        shape = self._called.shape if self._called else ()
        written = self._from_call(shape[2]) if len(shape) > 2 else None
        return written or Given("4 * 1024", "bytes of dynamic shared memory", gap=True)

    def static_shared(self, most: Mapping[str, int]) -> str:
        """Return the bytes of static shared memory by the parameters; empty if no values ask for more than there is.

        Args:
            most: the largest value of each parameter.
        """
        total = "0"
        for kind, extents in shared(self._use):
            base, lanes = vector_of(base_of(kind))
            dtype = self._names.dtype(CType("", base, 1)) or "float32"
            dtype = self._names.dtypes[dtype][0] if dtype in self._names.dtypes else dtype
            sums = [text_of(self._use.sum(one) or {}) for one in extents]
            total += "".join([f" + {lanes * ITEMSIZE[dtype]}", *(f" * ({one})" for one in sums)])
        terms = sum_of(python_of(self._names.text(total))) or {}
        if not {name for product in terms for name in product} <= set(most):
            return ""
        bytes_ = sum(factor * math.prod(most[name] for name in product) for product, factor in terms.items())
        return text_of(terms) if bytes_ > 48 * 1024 else ""


def _on(axis: str, name: str) -> bool:
    """Return whether a parameter may be of an axis: not if its name ends with another one's."""
    return not re.search(rf"_?[{''.join(one for one in AXES if one != axis)}]\Z", name.lower())


def _without_ones(texts: Sequence[str]) -> list[str]:
    """Return dimensions without the last ones that are 1."""
    left = list(texts)
    while len(left) > 1 and left[-1] == "1":
        left.pop()
    return left
