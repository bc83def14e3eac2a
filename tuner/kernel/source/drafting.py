"""A draft of a kernel's file from its CUDA source: what the text does not show is guessed, and marked."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tuner.kernel.draft import GAP, Draft, Given, TensorDraft
from tuner.kernel.source.accesses import Use
from tuner.kernel.source.declarations import KernelSignature, Source, Symbol
from tuner.kernel.source.expressions import Sum, expression_text, plus, python_text, sum_of, sum_text
from tuner.kernel.source.extents import most_of, of_one_block, row_lengths, unbounded, values_asked
from tuner.kernel.source.launch_guess import LaunchGuess
from tuner.kernel.source.launches import WrittenLaunch
from tuner.kernel.source.names import SMALL, SourceNames
from tuner.kernel.source.parameters import is_block, is_choice, is_size, parameter_draft, reduce_defaults
from tuner.kernel.source.tree import names_in, text_of, walk
from tuner.kernel.source.types import Parameter
from tuner.kernel.source.undefined import undefined_names
from tuner.kernel.source.use import AXES, CodeUse
from tuner.kernel.toml.table import is_name
from tuner.runtime.dtypes import DTYPES

DEFAULT_SIZES = {1: "2**24", 2: 4096, 3: 256}
"""The default of sizes, by how many of them the largest tensor has; of more, 64."""
MOST_BLOCKS = 2**15
"""The default of a size of which each is a block along y or z: a grid has 65535."""
PAIRS_SIZE = 2**14
"""The default where each thread goes through all elements."""
PER_ROW, SPARSE_ROWS = 16, "2**20"
"""The entries of each row, and the rows, of a sparse matrix."""
_ENTRIES = re.compile(r"(?i)n_?nz|\w*(nnz|non_?zeros?|entries)\w*")
WORDS = 'its values? Give yours by init = "inputs.py:FUNCTION", as words of struct'
PRODUCT_SIZE = 1024
"""The same for tensors of two sizes where there are others or loops, as in a matrix product."""


def draft_of(
    source: Source,
    kernel: KernelSignature,
    file: str,
    called: WrittenLaunch | None = None,
    renamed: Mapping[str, str] = MappingProxyType({}),
    taken: Collection[str] = (),
) -> Draft:
    """Return the draft of a kernel's file.

    Args:
        source: what the kernel's source declares, with its own headers.
        kernel: one of its kernels.
        file: the source's name, in the folder of the file to be written.
        called, renamed, taken: see :class:`tuner.kernel.source.names.SourceNames`.

    Raises:
        KernelError: a parameter has a type that no launch can pass.
    """
    undefined = undefined_names(source.text, kernel.name)
    names = SourceNames(source, kernel, file, undefined, called, renamed, taken)
    use = CodeUse(source, kernel, names.of_problem)
    for one in names.numbers:
        is_step = one.name in names.looped and not use.is_extent(one.name)
        says_size = is_size(names.short.get(one.name, one.name))
        if names.named(one.name) in names.sizes and (is_step or not (says_size or use.depends_on(one.name))):
            names.make_scalar(names.named(one.name))
            use.sizes -= {one.name}
    for name in list(names.options):
        if (choice := _chosen(use, name)) is not False and is_name(name):
            names.make_parameter(name, certain=choice is True)
    found = set(names.found) - set(names.renamed.values())
    names.doubtful |= {name for name in found if not is_choice(name) and _chosen(use, name) is False}
    use = CodeUse(source, kernel, names.of_problem)
    if lengths := row_lengths(names, use):
        use = CodeUse(source, kernel, names.of_problem, {}, lengths)
    if extents := of_one_block(names, use) or unbounded(names, use):
        use = CodeUse(source, kernel, names.of_problem, extents, lengths)
    read = _Tensors(names, use)
    tensors = read.all()
    _settle_sizes(names, tensors, use)
    guess = LaunchGuess(names, use, tensors)
    filled = {one.name: tensor for one in _empty(names) if (tensor := _constant(names, one)) is not None}
    constants = {name: names.named(name.rpartition("::")[2]) for name in filled}
    launch = replace(guess.draft(), constants=constants)
    grid = launch.grid.value if isinstance(launch.grid, Given) else launch.grid
    for axis, text in enumerate(grid):
        large = {name for name in re.findall(r"\w+", text) if isinstance(names.sizes.get(name), str)}
        if axis or len(large) > 1:
            names.sizes |= dict.fromkeys(
                large, DEFAULT_SIZES.get(len(large), 64) if len(large) > 1 else MOST_BLOCKS
            )
    for name, kept in most_of(use).items():
        read.constraints[f"the code keeps {name} numbers in an array"] = f"{names.named(name)} <= {kept}"
        value = names.sizes.get(names.named(name))
        names.sizes[names.named(name)] = min(value, kept) if isinstance(value, int) else kept
    for name in guess.turns:
        tensors[name] = replace(tensors[name], role="inout")
    block = launch.block.value if isinstance(launch.block, Given) else launch.block
    several = sum(one != "1" for one in block) > 1
    axes = guess.blocks if several else dict.fromkeys(guess.blocks, "")
    axes = {name: "xy" if list(block).count(name) > 1 else axis for name, axis in axes.items()}
    tiles = re.findall(r"\btiled_partition ?< ?(\w+)", use.code)  # of cooperative groups: lanes
    parameters = {
        name: parameter_draft("lanes_per_tile" if name in tiles else name, value, axes.get(name))
        for name, value in names.found.items()
    }
    for name in names.doubtful - set(axes):
        note = "a choice of the kernel, or a number of the problem?"
        parameters[name] = replace(parameters[name], note=note, gap=True)
    threads = " * ".join(f"({one})" if re.search(r"\W", one) else one for one in block if one != "1")
    most = names.number(kernel.launch_bounds[0]) if kernel.launch_bounds else None
    constraints = read.constraints | guess.constraints
    if most is not None and re.search(r"[A-Za-z]", threads):
        constraints["__launch_bounds__ of the kernel"] = f"{threads} <= {most}"
    elif len(re.findall(r"[A-Za-z_]\w*", threads)) > 1:
        constraints["a block has at most 1024 threads"] = f"{threads} <= 1024"
    if shared := guess.static_shared({name: max(map(int, one.values)) for name, one in parameters.items()}):
        constraints["static shared memory has at most 48 KiB"] = f"{shared} <= {48 * 1024}"
    reduce_defaults(parameters, [name for name in block if name in parameters], most or 1024, shared)
    written = [one for one in tensors.values() if one.role != "input"] or [*tensors.values()]
    of_macros = {name: one for name, one in names.options.items() if isinstance(one.value[0], int)}
    return Draft(
        name=names.named(kernel.short_name),
        sizes=names.sizes | {name: replace(one, value=one.value[0]) for name, one in of_macros.items()},
        tensors=tensors | {constants[name]: tensor for name, tensor in filled.items()},
        launches=[launch],
        parameters=parameters,
        constraints=constraints,
        dtypes=names.dtypes or {names.role(*tensors): [written[0].dtype]},
        options={name: one for name, one in names.options.items() if name not in of_macros},
        scalars=names.scalars,
        head=_notes(names, filled),
        reference=Given(
            "default", 'outputs are compared with those of the default; better: { numpy = "..." }'
        ),
    )


def _empty(names: SourceNames) -> list[Symbol]:
    """Return the constant memory that the code uses and does not fill."""
    _, reached = names.source.reached(names.kernel.name)
    symbols = (one for one in names.source.symbols if one.constant and not one.initialised)
    return [one for one in symbols if one.name.rpartition("::")[2] in reached]


def _constant(names: SourceNames, symbol: Symbol) -> TensorDraft | None:
    """Return the tensor that fills constant memory; None where its size is not known, or nothing can be that."""
    extents = [names.number(extent) for extent in symbol.extents]
    kind = replace(symbol.type, pointers=1)
    words, passed = names.of_words(kind), names.as_passed(kind)
    if (
        (dtype := names.dtype(passed)) is None
        or None in extents
        or not is_name(symbol.name.rpartition("::")[2])
    ):
        return None
    shape = [*map(str, extents), *([str(passed.lanes)] if passed.lanes > 1 else [])]
    note = f"fills the __constant__ memory{f': {WORDS} {kind.base}' if words else ''}"
    return TensorDraft(shape or ["1"], dtype, note=note, gap=words)


def _notes(names: SourceNames, filled: Collection[str]) -> list[str]:
    """Return what a person may want to change in the source."""
    source, used = names.source, names_in(names.kernel.body)
    values = {
        name: one.value for name, one in source.macros.items() if not one.guarded and one.parameters is None
    }
    fixed = {
        name: value
        for name, value in sorted({**values, **source.constants}.items())
        if re.fullmatch(r"0*[2-9]|0*[1-9]\d+", value)
        and name in used
        and (is_block(name) or "tile" in name.lower())
    }
    lines = []
    if fixed:
        name, value = next(iter(fixed.items()))
        lines.append(
            f"Fixed in the source, and so not tuned: {', '.join(fixed)}. To tune {name}: #ifndef {name}, "
            f"#define {name} {value}, #endif on three lines, and tune init --force."
        )
    if empty := [one.name for one in _empty(names) if one.name not in filled]:
        lines.append(f"{GAP}: nothing fills the __constant__ memory {', '.join(empty)}: it holds zeros.")
    return lines


def _settle_sizes(names: SourceNames, tensors: Mapping[str, TensorDraft], use: CodeUse) -> None:
    """Set the sizes that the source leaves open, so that the largest tensor has about 64 MiB."""
    large = [name for name in names.sizes if not SMALL.fullmatch(name)]
    words = [
        [word for extent in one.shape for word in re.findall(r"\w+", max(extent.split("+"), key=len))]
        for one in tensors.values()
    ]
    counted = {*large, *names.options}
    most = max((sum(name in counted for name in of) for of in words), default=1)
    product = most == 2 and (len(large) > 2 or (use.quadratic and len(large) == 1))
    usual = PRODUCT_SIZE if product else DEFAULT_SIZES.get(max(most, 1), 64)
    if most == 1 and any(isinstance(one.init, Mapping) and "range" in one.init for one in tensors.values()):
        usual = SPARSE_ROWS
    if most == 1 and use.quadratic:
        usual = PAIRS_SIZE
    for name, value in names.sizes.items():
        names.sizes[name] = value or (usual if name in large else 2)


def _chosen(use: CodeUse, name: str) -> bool | None:
    """Return whether a macro is a choice of the code, as what unrolls or steps a loop is.

    None if that is likely: it bounds a loop, or is an extent of an array of the code.
    """
    bounds = " ".join(part for one in use.bounds.values() for product in one for part in product)
    if re.search(rf"\+= {name}\b", use.code) or re.search(rf"// \(?{name}\b", bounds):
        return True
    begins = (sum_of(use.begins[one], use.first) or {} for one in use.bounds if one in use.begins)
    if any({name, f"blockIdx_{axis}"} == {*of} for terms in begins for of in terms for axis in AXES):
        return True
    shapes = " ".join(one for pointer in use.pointers for one in use.shape(pointer) if one)
    if re.search(rf"\b{name}\b", shapes):
        return False
    if name in use.asked:
        return True
    in_array = any(name in names_in(one) for one in walk(use.body, "array_declarator"))
    return None if in_array or _bounds_loops(use, name) else False


def _bounds_loops(use: CodeUse, name: str) -> bool:
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


class _Tensors:
    def __init__(self, names: SourceNames, use: CodeUse) -> None:
        self._names, self._use = names, use
        self._tensors: dict[str, TensorDraft] = {}
        self._types = {one.name: one.type for one in names.kernel.parameters}
        self._offsets: dict[str, str] = {}
        """Arrays that say where rows begin, with the size that says how long each is."""
        self.constraints: dict[str, str] = {}

    def all(self) -> dict[str, TensorDraft]:
        """Return the tensors by name, in the order of the kernel's parameters."""
        shapes = {name: self._use.shape(name) for name in self._use.pointers}
        self._take_rows(shapes)
        used = {name for shape in shapes.values() for one in shape if one for name in re.findall(r"\w+", one)}
        sizes = [name for name in self._use.sizes if name not in used and not SMALL.fullmatch(name)]
        left = [name for name in (*self._names.in_order(sizes),) if not self._use.is_extent(name)]
        for one in self._names.kernel.parameters:
            if one.type.pointers:
                self._tensors[self._names.named(one.name)] = self._tensor(one, shapes[one.name], left)
        for name, use in self._use.pointers.items():
            if use.limits:
                of = [*self._use.pointers[use.limits].indices]
                inner = any("[" in part for index in of for one in index if len(one) == 1 for part in one)
                shape = self._tensors[self._names.named(use.limits)].shape
                most = f"{shape[-1 if inner else 0]} - 1"
                selects = self._names.named(name)
                if self._tensors[selects].dtype in ("uint8", "uint16"):  # a table of all that it may hold
                    entries = 1 + DTYPES[self._tensors[selects].dtype].limits[1]
                    table = self._names.named(use.limits)
                    self._tensors[table] = replace(self._tensors[table], shape=[str(entries), *shape[1:]])
                    continue
                self._tensors[selects] = replace(self._tensors[selects], init={"uniform": [0, most]})
        if all(tensor.role == "input" for tensor in self._tensors.values()) and self._tensors:
            last = list(self._tensors)[-1]
            self._tensors[last] = replace(
                self._tensors[last], role="inout", note="which array does the kernel write?", gap=True
            )
        return self._tensors

    def _take_rows(self, shapes: dict[str, list[str | None]]) -> None:
        """Set the shapes of rows that lie one behind the other, as those of a sparse matrix, and of their offsets."""
        for name, inside in _rows_of(self._use).items():
            rows = next(iter(shapes[name]), None)
            if rows is None or not DTYPES[self._names.dtype(self._types[name]) or "float32"].whole:
                continue
            each = self._names.free("per_row", "entries_per_row")
            self._names.sizes[each] = PER_ROW
            self._offsets[name] = each
            shapes[name] = [f"{rows} + 1"]
            shapes |= {other: [f"{rows} * {each}"] for other in inside}
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
            note = "" if len(sizes) == 1 and not parts else "the shape"
            return (sizes if 0 < len(sizes) <= 3 else sizes[:1] or ["1"]), note
        if left:
            a_block = any(index == {("blockIdx_x",): 1} for index in use.indices)
            return [left[0] if one is None else one for one in shape], "the shape" if a_block else ""
        if len(shape) > 1:
            if len(others := [size for size in sizes if size not in shape]) == 1:
                return [others[0] if one is None else one for one in shape], "the shape"
            known = (name for name in ("rows", "blocks") if name in self._names.sizes)
            rows = next(known, None) or self._names.free("rows", "blocks")
            self._names.sizes.setdefault(rows, None)
            return [rows if one is None else one for one in shape], ""
        far = any("[" in part for index in use.indices for one in index for part in one)
        return (sizes[:1] or ["1"], "" if len(sizes) == 1 and far else "the shape")

    def _role_of(self, one: Parameter, use: Use) -> tuple[str, Any, str]:
        """Return role, init and a note of an array."""
        init: Any = None
        dtype = DTYPES.get(str(self._names.dtype(one.type)))
        whole = dtype is not None and dtype.whole
        asked = "" if use.limits else values_asked(self._use, one.name, whole=whole)
        if one.type.const or not (use.written or use.added or use.passed):
            ranges = whole and _bounds_loops(self._use, one.name)
            return "input", init, "its elements bound a loop: is its init right?" if ranges else asked
        if use.passed:
            return "inout", init, "a function gets it: is it input, output or inout?"
        atomic = re.search(rf"\batomic\w+\(\W*{one.name}\b", self._use.code)
        if use.added and (atomic or not use.indices):
            return "inout", "zeros", "added to"
        if use.read or one.name in self._names.structs:
            return "inout", init, asked
        if not use.whole:
            return "inout", "zeros", "not every element is written: the others stay zero"
        return "output", None, ""
