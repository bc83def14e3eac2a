"""Grid, block and arguments of a launch, by how a kernel's code computes indices, or how the source launches it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.kernel.draft import Given, LaunchDraft, TensorDraft
from tuner.kernel.source.cooperative_groups import is_cooperative
from tuner.kernel.source.expressions import (
    Sum,
    expression_text,
    number_of,
    numbers_of,
    python_of,
    python_text,
    replaced,
    sum_text,
    whole_of,
)
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import is_block
from tuner.kernel.source.threads import (
    beside_block,
    divided,
    folded,
    step_of,
    threads_asserted,
    threads_kept,
    threads_named,
    threads_of,
)
from tuner.kernel.source.tree import code, names_in, text_of
from tuner.kernel.source.types import Parameter
from tuner.kernel.source.use import AXES, CodeUse

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_THREADS = 1024
"""Of a block; what an index has more of are elements."""


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
        given = zip(names.called.template if names.called else (), names.kernel.template, strict=False)
        of_template = {one: names.named(name) for one, (_, name, _) in given if one.isidentifier()}
        self._in_call = {one: name for one, name in of_template.items() if name in names.found}
        """Variables of the calling function that are parameters here."""
        self.blocks: dict[str, str] = {}
        """The parameters that are threads of a block, with their axis."""
        self.constraints: dict[str, str] = {}
        self._unsure = False
        self._threads: dict[str, str] = {}
        """Of a block, along the axes that have been read."""

    def draft(self) -> LaunchDraft:
        """Return the launch."""
        read = {axis: self._axis(axis) for axis in self._in_order()}
        blocks, grids, gaps = zip(*(read[axis] for axis in AXES), strict=True)
        self.blocks |= {one: axis for axis, one in zip(AXES, blocks, strict=True) if one in self._names.found}
        fixed = self._called is None and sum(text.isdecimal() and text != "1" for text in blocks) > 1
        fixed |= self._unsure or (self._called is None and folded(self._use))
        grid = Given(_without_ones(grids), "blocks", gap=True) if any(gaps) else _without_ones(grids)
        template = f"<{', '.join(self._names.entry_arguments)}>" if self._names.entry_arguments else ""
        return LaunchDraft(
            self._names.file,
            (self._kernel.short_name if self._kernel.extern_c else self._kernel.name) + template,
            [self._argument(one) for one in self._kernel.parameters],
            grid,
            Given(_without_ones(blocks), "threads of a block", gap=True) if fixed else _without_ones(blocks),
            self._shared(),
            more=self._more(),
        )

    @property
    def clusters(self) -> str:
        """``fixed`` where the code says the blocks of a cluster, ``asked`` where it asks for them, else empty."""
        of_kernel = rf"__cluster_dims__\s*\([^()]*\)[^;{{}}]*\b{self._kernel.short_name}\s*\("
        if re.search(of_kernel, self._names.source.text):
            return "fixed"
        return "asked" if self._use.uses("this_cluster") else ""

    def _more(self) -> dict[str, Any]:
        """Return the keys of a launch that few have."""
        more: dict[str, Any] = {"cooperative": True} if is_cooperative(self._use.code) else {}
        if self.clusters == "asked":
            more["cluster"] = Given(["2"], "blocks of a cluster", gap=True)
        return more

    def _in_order(self) -> list[str]:
        """Return the axes; those of which a block's threads along another say the grid come last."""

        def others(axis: str) -> int:
            span = self._use.span(axis)
            parts = {part for product in span[0] for part in product} if span else set()
            return len(parts & {f"blockDim_{one}" for one in AXES if one != axis})

        return sorted(AXES, key=others)

    def blocks_of_call(self) -> dict[str, str] | None:
        """Return the number of blocks along each axis of the code where the source launches the kernel and says it."""
        axes = [axis for axis in AXES if self._use.uses(f"blockIdx.{axis}")]
        said = {axis: text for axis in axes if (text := self._called_shape(0, axis)) is not None}
        return said if self._called is not None and len(said) == len(axes) else None

    def elements(self) -> dict[str, str]:
        """Return how many blocks the source launches, by sizes, where an index has a block's number by itself."""
        found = {}
        products = [
            one for of in self._use.pointers.values() for index in of.indices for one in index.items()
        ]
        for axis in AXES:
            block, grid = f"blockIdx_{axis}", self._called_shape(0, axis) or ""
            alone = any(
                n == 1 and block in one and all(part == block or self._use.is_size(part) for part in one)
                for one, n in products
            )
            names = {*re.findall(r"[A-Za-z_]\w*", grid)}
            if alone and names and names <= {*self._names.sizes} and not self._use.uses(f"gridDim.{axis}"):
                found[block] = grid
        return found

    def _argument(self, one: Parameter) -> Any:
        name = self._names.named(one.name)
        if name in self._names.members:
            return {"fields": [self._argument(member) for member in self._names.members[name]]}
        if name in self._names.sizes and one.type.dtype not in ("int32", "uint32"):
            return {"value": name, "dtype": one.type.dtype}
        if name not in self._names.scalars and self._names.is_empty(one.type.text):
            return {"value": "0", "dtype": "uint8"}  # its only byte
        return name

    def _axis(self, axis: str) -> tuple[str, str, bool]:
        """Return block and grid along an axis, and whether the grid is a guess."""
        of_grid = axis == "x" and self._use.uses("this_grid")
        threads = self._use.uses(f"threadIdx.{axis}") or self._use.uses(f"blockDim.{axis}")
        if of_groups := axis == "x" and not threads and self._use.uses("this_thread_block"):
            self._unsure |= self._called is None and divided(self._use, axis) == 1  # ranks do not say it
        threads |= of_grid or of_groups
        span = self._use.span(axis)
        if span is None:
            block = self._use.extents.get(f"threadIdx_{axis}") or (
                self._block(axis, self._factor(axis)) if threads else self._called_shape(1, axis) or "1"
            )
            called = self._called_shape(1, axis)
            self._threads[axis] = block = called if called in self._names.found else block
            if (blocks := self._use.extents.get(f"blockIdx_{axis}")) is not None:
                return block, self._names.text(blocks), False
            many = self._called is not None and self._called_shape(0, axis) != "1"
            missed = self._use.uses(f"blockIdx.{axis}") or (axis == "x" and (many or not self._axes()))
            grid = self._by_block(block, self._called_shape(0, axis)) if missed else None
            return block, grid or ("sm_count" if of_grid else "1"), missed
        factor, bound = span
        self._threads[axis] = block = (
            self._block(axis, self._factor(axis)) if threads else self._called_shape(1, axis) or "1"
        )
        if (blocks := self._use.extents.get(f"blockIdx_{axis}")) is not None:
            return block, blocks, False
        if of_grid and is_cooperative(self._use.code) and self._use.uses("gridDim.x"):
            return block, "sm_count", False
        covered = self._names.text(sum_text(factor))
        for one, of_axis in self._threads.items():
            covered = covered.replace(f"blockDim_{one}", of_axis)
        known = self._known(expression_text(python_text(covered)))
        whole = False  # whether a block computes a whole row of a tensor, whose number of rows is all that is open
        if bound is None and (bound := self._unbound(axis, rows=known == "1")) is not None:
            whole = any([bound, known] == tensor.shape for tensor in self._tensors.values())
        parts = [part for product in factor for part in product]
        plain = all(one == f"blockDim_{axis}" or (one.isidentifier() and "Dim_" not in one) for one in parts)
        gap = plain and f"blockDim_{axis}" in parts and known is None and span[1] is not None
        if gap:  # what the file does not know is left out: too many blocks, which the code leaves out as well
            known = self._known(block)
        called = self._called_shape(0, axis)
        if bound is not None:
            bound = expression_text(python_text(self._names.text(bound))) or bound
        if bound is None or known is None or self._known(bound) is None:
            named = "[A-Za-z]" if known == "1" else rf"\b{re.escape(block)}(?!\w)"
            called = self._by_block(block, called)
            return block, called or "1", called is None or not re.search(named, called)
        if bound in self._use.extents.values() and known != "1":
            of_block = f"({known})" if re.search(r"\W", known) else known
            self.constraints[f"{bound} is a whole number of blocks"] = f"{bound} % {of_block} == 0"
        covering = bound if whole or known == "1" else f"ceil_div({bound}, {known})"
        fixed = re.fullmatch(r"(?:(\d+) \* )?(sm_count)(?: \* (\d+))?|(\d+)", called or "")
        if self._use.uses(f"gridDim.{axis}") and fixed:  # blocks of a loop over the grid: any number is right
            usual = ("grid_size", "blocks") if self._axes() == 1 else (f"grid_{axis}", f"blocks_{axis}")
            most = self._names.free(*(("blocks_per_sm", "per_sm") if fixed[2] else usual))
            self._names.found[most] = int(fixed[1] or fixed[3] or fixed[4] or 1)
            return block, f"min({covering}, {most}{' * sm_count' * bool(fixed[2])})", False
        return block, covering, gap

    def _by_block(self, block: str, called: str | None) -> str | None:
        """Return the number of blocks that the host launches, with a parameter for the threads of its own launch."""
        if called is None or block not in self._names.found:
            return called
        own = re.compile(rf"\b{self._names.found[block]}\b")
        called = own.sub(block, called) if len(own.findall(called)) == 1 else called
        if (whole := re.fullmatch(r"(\w+) // (\w+)", called)) and whole[2] in self._names.found:
            self.constraints[f"{whole[1]} is a whole number of blocks"] = f"{whole[1]} % {whole[2]} == 0"
        return called

    def _unbound(self, axis: str, *, rows: bool) -> str | None:
        """Return the extent along an axis that the code compares with nothing: a tensor's outermost dimension.

        Args:
            axis: of the grid; along another than x that is clear only for ``rows``.
            rows: whether each block is one of them.
        """
        if self._called_shape(0, axis):
            return None
        outer = [tensor.shape[0] for tensor in self._tensors.values() if len(tensor.shape) > 1]
        free = [one for one in outer if not self._use.is_extent(one)]
        along_x = self._use.span("x")
        if free and (axis == "x" or (rows and along_x and along_x[1] and len({*free}) == 1)):
            return free[0]
        return None

    def _factor(self, axis: str) -> Sum:
        """Return what a block's number is multiplied by beside the threads of an axis, mostly along the same one."""
        for of in (axis, *AXES):
            beside, span = beside_block(self._use, of), self._use.span(of)
            if span is not None and (axis in beside or (of == axis and len(beside) != 1)):
                return span[0]
        return {}

    def _block(self, axis: str, factor: Sum) -> str:
        names = [self._names.renamed.get(name, name) for product in factor for name in product]
        found, by_block = self._names.found, f"blockDim_{axis}" in names
        threads = divided(self._use, axis, number := next(iter(factor.values()), 1))
        choices = [name for name in names if name in found]
        step = self._names.renamed.get(stepped := step_of(self._use, axis), stepped)
        if not by_block and step in found:
            for tile in choices if step not in choices else ():
                self.constraints[f"{tile} is a whole number of {step}"] = f"{tile} % {step} == 0"
            return step
        called = self._called_shape(1, axis)
        asserted = [*filter(None, map(self._known, threads_asserted(self._use, axis)))]
        for other in asserted[1:]:
            self.constraints[f"the code asserts {other} threads"] = f"{other} == {asserted[0]}"
        if asserted and called is None:
            return asserted[0]
        made = python_of(next(iter(self._kernel.launch_bounds), "0"))
        text = self._known(expression_text(replaced(made, {}, numbers_of(self._names.source, found)))) or "0"
        if called is None and self._axes() == 1 and re.search(r"[A-Za-z].*\W", text):
            return text
        tuned = [name for name in re.findall(r"[A-Za-z_]\w*", called or "") if name in found]
        if called is not None and tuned:
            self.blocks |= {tuned[0]: axis} if len(tuned) == 1 and found[tuned[0]] is None else {}
            return called
        launched = called if called is not None and called.isdecimal() else None
        kept, each = threads_named(self._use, axis)
        kept = self._names.renamed.get(kept, kept)
        if " * " in kept and called is None and {*kept.split(" * ")} <= found.keys():
            return kept
        of_option = self._names.options.get(kept, Given([None], "")).value[0]
        of_kept = f"{each} * {kept}" if each > 1 else kept
        if kept and str((found.get(kept) or of_option or 0) * each) == launched:
            return of_kept
        if kept in self._names.options and called is None and not self._use.uses(f"blockDim.{axis}"):
            return of_kept
        asks = self._use.uses(f"blockDim.{axis}") or self._use.uses("this_thread_block")
        asks &= not self._same_number(axis)
        values = {found[name] for name in choices}
        apart = bool(choices) and launched is not None and values.isdisjoint({None, int(launched)})
        if apart and not by_block and not (asks and self._use.uses(f"blockDim.{axis}")):
            return str(launched)
        if not by_block and choices and not apart:
            self._unsure |= len(choices) > 1 and not any(map(is_block, choices))
            order = names_in(self._kernel.body)
            choice = min(
                choices, key=lambda one: (not is_block(one), order.index(one) if one in order else -1)
            )
            return threads_of(choice, number, threads)
        if not names and number > 1 and (most := number * threads) <= MOST_THREADS and most == int(most):
            return launched or str(most)
        free = next((one for one in found if is_block(one) and _on(axis, one) and one not in self.blocks), "")
        if not by_block and free:
            if f"(2 ** {free})" in names:
                return f"2 ** {free}"
            self.blocks[free] = axis
            return free
        says = rf"\bblockDim\.{axis} == (\w+)" + r"|\bcub ?:: ?Block\w+ ?< ?[^,<>]+, ?(\w+)" * (axis == "x")
        said = re.search(says, self._use.code)
        terms = self._use.sum(python_of(next(filter(None, said.groups())))) if said else None
        if terms and set(terms) == {()}:
            return str(terms[()])
        if called is not None and not (asks and launched):
            return called  # of a kernel that does not ask for it, another size may not be right
        fixed = number_of(stepped, numbers_of(self._names.source, found)) if stepped else None
        if fixed and fixed <= MOST_THREADS and not self._use.uses(f"blockDim.{axis}"):
            return str(fixed)
        if kept not in found and self._axes() == 1:
            of_kept = kept = next(filter(is_block, found), "")
        if kept in found and kept not in self.blocks:
            self.blocks |= {kept: axis} if of_kept == kept else {}
            return of_kept
        self._unsure |= self._called is None and not asks
        fitting = ("block_size", "threads") if self._axes() <= 1 else (f"block_{axis}", f"threads_{axis}")
        name = self._names.free(*fitting)
        found[name] = int(launched or 0) or None
        shape = self._called.shape[1:2] if self._called is not None else ()
        self._in_call |= {text_of(one): name for one in shape if one.type == "identifier"}
        self.blocks[name] = axis
        return name

    def _same_number(self, axis: str) -> bool:
        """Return whether the code, too, has the number that the launch has for its threads, as a macro ``BLOCK``."""
        source, called = self._names.source, self._called
        if called is None or len(called.shape) < 2 or axis in threads_kept(self._use):
            return False
        block = called.shape[1]
        written = {*names_in(block), *names_in(called.variables.get(text_of(block)))}
        fixed = written & {*source.macros, *source.constants}
        return not fixed.isdisjoint(source.reached(self._kernel.name)[1])

    def _axes(self) -> int:
        return sum(self._use.uses(f"threadIdx.{axis}") for axis in AXES)

    def _called_shape(self, place: int, axis: str) -> str | None:
        """Return grid (0) or block (1) along an axis as the source launches the kernel; None if that is not clear.

        Nor is 0: what a variable begins as.
        """
        if self._called is None or place >= len(self._called.shape):
            return None
        node = self._called.shape[place]
        if axis == "x" and text_of(node) in self._in_call:
            return self._in_call[text_of(node)]
        if text_of(node) not in map(text_of, self._called.arguments):
            node = self._called.variables.get(text_of(node), node)
        parts = [node]
        if node.type in ("argument_list", "initializer_list", "parameter_list"):
            parts = node.named_children
        elif node.named_children and text_of(node.named_children[0]) == "dim3":
            parts = node.named_children[-1].named_children
        number = AXES.index(axis)
        if number and node.type == "identifier":
            return None  # a dim3 perhaps
        text = self.in_file(parts[number]) if number < len(parts) else "1"
        text = str(whole) if text and (whole := whole_of(python_text(text))) is not None else text
        return None if text == "0" or "." in (text or "") else text

    def in_file(self, node: Node) -> str | None:
        """Return an expression of the calling function as the file has it; None if that has not all its names."""
        assert self._called is not None
        called = {name: python_of(value) for name, value in self._called.variables.items()}
        values = numbers_of(self._names.source, self._names.found) | called
        values |= dict.fromkeys(self._called.multiprocessors, ast.Name("sm_count"))
        return self._known(expression_text(replaced(python_of(node), self._passed(), values)))

    def _passed(self) -> dict[str, str]:
        """Return what the file calls what the calling function passes."""
        assert self._called is not None
        passed = {}
        for argument, one in zip(self._called.arguments, self._kernel.parameters, strict=False):
            passed[text_of(argument)] = name = self._names.named(one.name)
            for member in self._names.members.get(name, ()):
                short = self._names.short[member.name]
                passed[f"{text_of(argument)}_{short}"] = self._names.named(member.name)
        return passed | self._in_call

    def _known(self, text: str | None) -> str | None:
        """Return an expression if the file has all its names."""
        words = ("ceil_div", "min", "max", "if", "else", "and", "or", "sm_count")
        names = set(re.findall(r"[A-Za-z_]\w*", text or "")).difference(words)
        return text if names <= {*self._names.sizes, *self._names.found, *self._names.options} else None

    def _shared(self) -> str | Given:
        items, _ = self._names.source.reached(self._kernel.name)
        if not any(re.search(r"extern [^;{]*__shared__|__shared__ extern", code(one.node)) for one in items):
            return ""
        shape = self._called.shape if self._called else ()
        written = (self.in_file(shape[2]) if len(shape) > 2 else None) or ""
        if re.search("[A-Za-z]", written) or (written and not self._names.found):
            return written
        return Given(written or "4 * 1024", "bytes of dynamic shared memory", gap=True)


def _on(axis: str, name: str) -> bool:
    """Return whether a parameter may be of an axis: not if its name ends with another one's."""
    return not re.search(rf"_?[{''.join(one for one in AXES if one != axis)}]\Z", name.lower())


def _without_ones(texts: Sequence[str]) -> list[str]:
    """Return dimensions without the last ones that are 1."""
    last = max((place for place, text in enumerate(texts) if text != "1"), default=0)
    return list(texts[: last + 1])
