"""A kernel's tensors as its code shows them: shapes, roles, values; what it leaves open is marked.

So is an array of which the calling function allocates another number of elements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.core.errors import TunerError
from tuner.expressions.arithmetic import parse
from tuner.kernel.draft import Given, TensorDraft, plain
from tuner.kernel.source.accesses import Use
from tuner.kernel.source.expressions import Sum, expression_text, plus, python_text, sum_of, sum_text, times
from tuner.kernel.source.extents import values_asked, values_kept
from tuner.kernel.source.launch_guess import LaunchGuess
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import SMALL, is_size
from tuner.kernel.source.shapes import shape_of
from tuner.kernel.source.tree import text_of, walk
from tuner.kernel.source.types import Parameter
from tuner.kernel.source.use import CodeUse
from tuner.runtime.dtypes import DTYPES, ITEMSIZE

PER_ROW = 16
"""The entries of each row of a sparse matrix."""
_ENTRIES = re.compile(r"(?i)n_?nz|\w*(nnz|non_?zeros?|entries)\w*")
WORDS = 'its values? Give yours by init = "inputs.py:FUNCTION", as words of struct'
PADDING = 64
"""Elements that a program may allocate behind those that a kernel uses."""


class Tensors:
    """A kernel's tensors.

    Args:
        names: what the source's names become; gets sizes for what the code leaves open.
        use: what the code does.
    """

    def __init__(self, names: SourceNames, use: CodeUse) -> None:
        self._names, self._use = names, use
        self._tensors: dict[str, TensorDraft] = {}
        self._types = {one.name: one.type for one in names.kernel.parameters}
        self._offsets: dict[str, str] = {}
        """Arrays that say where rows begin, with the size that says how long each is."""
        self.constraints: dict[str, str] = {}

    def all(self) -> dict[str, TensorDraft]:
        """Return the tensors by name, in the order of the kernel's parameters."""
        shapes = {name: shape_of(self._use, name) for name in self._use.pointers}
        self._take_rows(shapes)
        used = {name for shape in shapes.values() for one in shape if one for name in re.findall(r"\w+", one)}
        sizes = [name for name in self._use.sizes if name not in used and not SMALL.fullmatch(name)]
        left = [name for name in (*self._names.in_order(sizes),) if not self._use.is_extent(name)]
        for one in self._names.kernel.parameters:
            if one.type.pointers:
                self._tensors[self._names.named(one.name)] = self._tensor(one, shapes[one.name], left)
        for name, use in self._use.pointers.items():
            if use.limits:
                of = self._use.pointers[use.limits].indices
                inner = any("[" in part for index in of for one in index if len(one) == 1 for part in one)
                shape = self._tensors[self._names.named(use.limits)].shape
                extents = shape[:-1] if self._types[use.limits].lanes > 1 else shape
                most = f"{extents[-1 if inner else 0]} - 1"
                selects = self._names.named(name)
                if self._tensors[selects].dtype in ("uint8", "uint16"):  # a table of all that it may hold
                    entries = 1 + DTYPES[self._tensors[selects].dtype].limits[1]
                    table = self._names.named(use.limits)
                    self._tensors[table] = replace(self._tensors[table], shape=[str(entries), *shape[1:]])
                    continue
                init, tensor = {"uniform": [0, most]}, self._tensors[selects]
                written = self._use.pointers[use.limits]
                part = all(len(index) - (() in index) > 1 for index in of if "[" in str(index))
                asked = "elements are written there" if written.written and not written.added else ""
                asked = "a part of an index" if len(extents) == 1 and part else asked
                if asked:
                    note = "; ".join(filter(None, (tensor.note, f"{asked}: is its init right?")))
                    tensor = replace(tensor, note=note, gap=True)
                self._tensors[selects] = replace(tensor, init=init)
        if all(tensor.role == "input" for tensor in self._tensors.values()) and self._tensors:
            last = list(self._tensors)[-1]
            self._tensors[last] = replace(
                self._tensors[last], role="inout", note="which array does the kernel write?", gap=True
            )
        return self._tensors

    def _take_rows(self, shapes: dict[str, list[str | None]]) -> None:
        """Set the shapes of rows that lie one behind the other, as those of a sparse matrix, and of their offsets."""
        found = _rows_of(self._use)
        for name in found:  # of a row's first offset: the next one is one more
            indices = self._use.pointers[name].indices
            firsts = [index for index in indices if plus([index, {(): 1}]) in indices]
            shapes[name] = shape_of(self._use, name, firsts)
        for name, inside in found.items():
            rows = next(iter(shapes[name]), None)
            if rows is None or not DTYPES[self._names.dtype(self._types[name]) or "float32"].whole:
                continue
            each = self._names.free("per_row", "entries_per_row")
            self._names.sizes[each] = PER_ROW
            self._offsets[name] = each
            whole = sum_of(python_text(rows)) or {}
            shapes[name] = [sum_text(plus([whole, {(): 1}]) or {})]
            shapes |= {other: [sum_text(times(whole, {(each,): 1}) or {})] for other in inside}
            for scalar, given in self._names.scalars.items():
                if _ENTRIES.fullmatch(scalar) and isinstance(given, Given):
                    self._names.scalars[scalar] = (given.value[0], f"{self._names.text(rows)} * {each}")

    def _tensor(self, one: Parameter, shape: list[str | None], left: list[str]) -> TensorDraft:
        use = self._use.pointers[one.name]
        note = ""
        if not shape or None in shape:
            shape, note = self._guessed(use, shape, left)
        elif self._use.again & {name for index in use.indices for product in index for name in product}:
            note = "the shape: an index is set more than once"
        elif any(self._strided(index) for index in use.indices):
            note = "the shape: its indices are multiples of a number that the kernel is passed"
        if use.moved:
            note = f"the shape: {use.moved}"
        extents = [self._names.text(expression_text(python_text(str(extent))) or "1") for extent in shape]
        lanes = one.type.lanes
        if lanes > 1:
            extents.append(str(lanes))
        whole = re.fullmatch(r"(\w+) // (\d+)", extents[-2]) if len(extents) > 1 else None
        if whole and extents[-1] == whole[2]:
            extents = [*extents[:-2], whole[1]]
            self.constraints[f"{whole[1]} is a whole number of vectors"] = f"{whole[1]} % {whole[2]} == 0"
        elif extents[-1] in self._names.sizes and use.lanes > 1 and not self._use.inner:
            of_vectors = f"{extents[-1]} is a whole number of vectors"
            self.constraints.setdefault(of_vectors, f"{extents[-1]} % {use.lanes} == 0")
        for size, group in re.findall(r"'(\w+) // (\w+)'", str(extents)):
            if group in self._names.options:
                self.constraints[f"{size} is a whole number of {group}"] = f"{size} % {group} == 0"
        role, init, more = self._role_of(one, use)
        if (each := self._offsets.get(one.name)) is not None:
            init, more = (
                {"range": [0, each]},
                (f'rows of {each} entries: give those that you have by init = "inputs.py:{one.name}"?'),
            )
        words = f"{WORDS} {of}" if (of := self._names.structs.get(one.name)) and role != "output" else ""
        gap = bool(note or words) or more.endswith("?")
        note = "; ".join(filter(None, (note, more, words)))
        return TensorDraft(extents, self._names.dtype(one.type) or "float32", role, init, note, gap)

    def _strided(self, index: Sum) -> bool:
        """Return whether an index has multiples of a passed number that is not known to be a row's length."""
        given = {
            one.name: self._names.scalars.get(self._names.named(one.name)) for one in self._names.numbers
        }
        passed = {
            name for name, one in given.items() if isinstance(one, Given) or (one and isinstance(one[1], int))
        }
        trees = [self._use.begins.get(part) for product in index for part in product]
        sums = (index, *(sum_of(tree, self._use.first) or {} for tree in trees if tree is not None))
        return any(len(one) > 1 and passed.intersection(one) for terms in sums for one in terms)

    def _behind(self, index: Sum) -> bool:
        """Return whether an index leaves out the first elements: of ``y[i + 1]``, or where i begins at 1."""
        full = sum_of(python_text(sum_text(index)), self._use.first) or {}
        return any(map(self._use.sizes.issuperset, full)) and all(n > 0 for n in full.values())

    def _counted(self, index: Sum) -> int:
        """Return to what number a loop counts that goes through rows or planes, j of ``x[j * n + i]``, or 0."""
        sizes = {one: sum(map(self._use.is_size, one)) for one in index}
        rows = [one for one, count in sizes.items() if count and count == max(sizes.values())]
        rows = [one for one in rows if index[one] == max(index[other] for other in rows)]
        counted = [part for one in rows for part in one if part in self._use.begins]
        if len(rows) != 1 or len(counted) != 1:
            return 0
        number = re.search(rf"\b{counted[0]} < (\w+)", self._use.code)
        return (self._names.number(number[1]) or 0) if number else 0

    def _guessed(self, use: Use, shape: list[str | None], left: list[str]) -> tuple[list[str | None], str]:
        """Return a shape of which the code does not show all, and what to say about it."""
        sizes: list[str | None] = [
            *self._names.in_order(name for name in self._use.sizes if not SMALL.fullmatch(name))
        ]
        parts = {part for index in use.indices for product in index for part in product}
        if (
            not shape
            and (use.indices or use.added)
            and self._names.scalars.keys() >= {*map(self._names.named, parts)}
        ):
            most = max((index.get((), 0) for index in use.indices), default=0)
            return [str(most + 1)], "" if use.added or not parts else "the shape"
        if not shape:
            return (sizes if 0 < len(sizes) <= 3 else sizes[:1] or ["1"]), "the shape"
        far = any("[" in part for index in use.indices for one in index for part in one)
        counts = {self._counted(index) for index in use.indices}
        if len(shape) > 1 and len(counts) == 1 and 0 not in counts:
            (count,) = counts
            return [str(count) if one is None else one for one in shape], ""
        if left:
            sure = len(left) == 1 and is_size(left[0]) and (far or len(shape) > 1)
            placed = (one for of in self._use.pointers.values() for index in of.indices for one in index)
            sure &= not any(left[0] in one for one in placed) and "gridDim" not in str(use.indices)
            return [left[0] if one is None else one for one in shape], "" if sure else "the shape"
        if len(shape) > 1:
            if len(others := [size for size in sizes if size not in shape]) == 1:
                return [others[0] if one is None else one for one in shape], "the shape"
            known = (name for name in ("rows", "blocks") if name in self._names.sizes)
            rows = next(known, None) or self._names.free("rows", "blocks")
            self._names.sizes.setdefault(rows, None)
            return [rows if one is None else one for one in shape], "" if far else "the shape"
        return (sizes[:1] or ["1"], "" if len(sizes) == 1 and far else "the shape")

    def _role_of(self, one: Parameter, use: Use) -> tuple[str, Any, str]:
        """Return role, init and a note of an array."""
        init: Any = None
        dtype = DTYPES.get(str(self._names.dtype(one.type)))
        whole = dtype is not None and dtype.whole
        most = values_kept(self._use, one.name) if whole else None
        if most is not None:
            init = {"uniform": [0, most - 1]}
        asked = "" if use.limits or init else values_asked(self._use, one.name, whole=whole)
        if one.type.const or not (use.written or use.added or use.passed):
            ranges = whole and bounds_loops(self._use, one.name)
            return "input", init, "its elements bound a loop: is its init right?" if ranges else asked
        if use.passed:
            return "inout", init, "a function gets it: is it input, output or inout?"
        atomic = re.search(rf"\batomic\w+\(\W*{one.name}\b", self._use.code)
        if use.added and (atomic or not use.indices):
            return "inout", "zeros", "added to"
        if use.read or one.name in self._names.structs:
            return "inout", init, asked
        if not use.whole or (use.indices and all(map(self._behind, use.indices))):
            return "inout", "zeros", "not every element is written: the others stay zero"
        return "output", None, ""


def bounds_loops(use: CodeUse, name: str) -> bool:
    """Return whether the head of a ``for`` has a name."""
    heads = (one.named_children[:-1] for one in walk(use.body, "for_statement"))
    return any(text_of(one) == name for head in heads for part in head for one in walk(part, "identifier"))


def _rows_of(use: CodeUse) -> dict[str, list[str]]:
    """Return arrays of which two neighbours say where a row of others begins and ends, and those others."""
    found = {}
    for name, one in use.pointers.items():
        between = any(plus([index, {(): 1}]) == other for index in one.indices for other in one.indices)
        starts = {
            variable
            for variable, tree in use.begins.items()
            if f"{name}[" in sum_text(sum_of(tree, use.first) or {})
        }
        inside = [
            other
            for other, of in use.pointers.items()
            if starts.intersection(part for index in of.indices for product in index for part in product)
        ]
        if between and inside and not one.written:
            found[name] = inside
    return found


def with_allocations(
    names: SourceNames, guess: LaunchGuess, tensors: Mapping[str, TensorDraft]
) -> dict[str, TensorDraft]:
    """Return tensors, with a mark at those of which the calling function allocates more or less, and as many elements.

    Args:
        names: what the source's names become.
        guess: the launch.
        tensors: as the kernel's code shows them.
    """
    found = dict(tensors)
    called = names.called
    for argument, one in zip(called.arguments if called else (), names.kernel.parameters, strict=False):
        bytes_ = called.allocated.get(text_of(argument)) if called else None
        text = guess.in_file(bytes_) if bytes_ is not None else None
        if text is None or (tensor := found.get(names.named(one.name))) is None:
            continue
        if not names.found.keys().isdisjoint(re.findall(r"\w+", text)):
            continue  # shapes are those of all configurations
        dtype = names.dtypes[tensor.dtype][0] if tensor.dtype in names.dtypes else tensor.dtype
        own, whole = f"({') * ('.join(tensor.shape)})", _divided(text, ITEMSIZE[dtype])
        if not (more := _more(own, whole, names)):
            continue
        note = f"the shape: the source allocates {whole} elements"
        of_sizes = [not names.sizes.keys().isdisjoint(re.findall(r"\w+", text)) for text in (own, whole)]
        if of_sizes != [True, False] or tensor.note.startswith("the shape"):
            role = ("inout", "zeros") if tensor.role == "output" and more > 0 else (tensor.role, tensor.init)
            tensor = replace(tensor, shape=[whole], role=role[0], init=role[1])
            note += f", the code shows {own[1:-1].replace(') * (', ' x ')}"
        found[names.named(one.name)] = replace(tensor, note=note, gap=True)
    return found


def _divided(text: str, itemsize: int) -> str:
    terms = sum_of(python_text(text))
    if terms is None or any(factor % itemsize for factor in terms.values()):
        return f"({text}) // {itemsize}"
    divided = sum_text({product: factor // itemsize for product, factor in terms.items()})
    return divided[1:-1] if len(terms) == 1 and re.fullmatch(r"\(ceil_div\([^()]*\)\)", divided) else divided


def _more(own: str, allocated: str, names: SourceNames) -> float:
    """Return by how many elements more the source allocates (fewer: below 0), at the first of two sets of sizes.

    0 where that is at most some padding at either, or more at one and less at the other.
    """
    sizes = {name: plain(one) for name, one in names.sizes.items()}
    sizes |= {name: one.value[0] for name, one in names.options.items()}
    drawn = {name: 48 * (2 * number + 1) for number, name in enumerate(sizes)}
    drawn |= dict.fromkeys(names.found, 16) | {"sm_count": 132}
    known = {name: int(one) for name, one in sizes.items() if str(one).isdecimal()}
    try:
        kernel, host = (
            [parse(text).number(of) for of in (drawn, drawn | known)] for text in (own, allocated)
        )
    except TunerError:
        return 0
    more = [one - other for one, other in zip(host, kernel, strict=True)]
    alike = min(more) > PADDING or max(more) < 0
    return more[0] if alike and min(host) >= 1 else 0
