"""What a kernel's indices leave open: those that it compares with nothing, and how far its rows lie from each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tuner.kernel.draft import Given
from tuner.kernel.source.expressions import Product, Sum, names_of, sum_of
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import is_stride
from tuner.kernel.source.threads import kept_numbers
from tuner.kernel.source.tree import text_of, walk
from tuner.kernel.source.use import AXES, LEAST_SIZE, CodeUse

if TYPE_CHECKING:
    from tree_sitter import Node

THREADS = 256
"""The default of a block's, where it is the only one and nothing says how many it has."""
BLOCKS = 1024
"""The default of a number of blocks that a loop over the grid leaves open: some eight for each multiprocessor."""


def unbounded(names: SourceNames, use: CodeUse, called: Mapping[str, str] | None) -> dict[str, str]:
    """Return the size that each index without a bound stays below, by variable, and add to the sizes those it takes.

    ``c[y * width + x]`` bounds x; of ``c[i] = a[i]`` the file gets a size, and of ``sums[blockIdx.x]`` the number of
    blocks, where a loop over the grid makes any number right. Of the others none where the source launches the kernel:
    its grid says how many blocks there are.

    Args:
        names: what the source's names become.
        use: what the code does.
        called: the blocks along each axis, where the source says them.
    """
    found: dict[str, str] = {}
    indices = [index for pointer in use.pointers.values() for index in pointer.indices]
    starts = {axis: [index for index in indices if _of(index, f"blockIdx_{axis}")] for axis in AXES}
    axes = [axis for axis in AXES if starts[axis]]
    bounded = [sum_of(tree, use.first) or {} for name, tree in use.begins.items() if use.bound(name)]
    seen = [axis for axis in AXES if axis in axes or any(_of(one, f"blockIdx_{axis}") for one in bounded)]
    if len(seen) < sum(use.uses(f"blockIdx.{axis}") for axis in AXES):
        return {}  # what bounds one axis may bound the others, in a way that is not seen
    for axis in axes:
        block, any_number = f"blockIdx_{axis}", use.uses(f"gridDim.{axis}")
        values = {name: sum_of(tree, use.first) or {} for name, tree in use.begins.items()}
        others = "|".join(f"blockIdx_{other}" for other in AXES if other != axis)
        of_block = {name: _of(of, block) for name, of in values.items() if name not in use.aliases}
        variables = [name for name, of in of_block.items() if len(of) == 1 and not _of(values[name], others)]
        variables = [one for one in variables if not use.sizes.intersection(*of_block[one])]
        tiled = any(
            values[name][one] != 1 for name, of in of_block.items() for one in of if name not in variables
        )
        if called is None and tiled and not any(_of(values[name], f"threadIdx_{axis}") for name in variables):
            return {}  # an index of several axes, by tiles
        compared = "|".join(variables) or f"index_{axis}"  # as one is called that is written out
        row = any(_sizes(index, block, use) for index in starts[axis])
        passed = [size for size in names.in_order(use.sizes) if not use.depends_on(size)]
        if (
            called is None
            and not variables
            and not any_number
            and all(_counts(index, block, use) for index in starts[axis])
        ):
            free = [size for size in passed if row and size not in found.values()]
            found[block] = free[0] if free else _new(names, "rows", "blocks", f"rows_{axis}")
        elif (
            called is None
            and (tile := _tile(starts[axis], block, use))
            and all(values[name] == {(block,): 1} for name in variables)
            and (size := _along(use, starts[axis], block, passed, found))
        ):
            found[block] = f"ceil_div({size}, {tile})"
        elif any(map(use.bound, variables)):
            said = (called or {}).get(axis, str(BLOCKS))
            fixed = re.fullmatch(r"\d+|(\d+ \* )?sm_count( \* \d+)?", said)
            if (
                any_number
                and fixed
                and any({*one} <= {block, *use.sizes} for index in starts[axis] for one in _of(index, block))
            ):
                given = Given(
                    int(said) if said.isdecimal() else BLOCKS,
                    "blocks: what each computes by itself depends on a block's size",
                    gap=True,
                )
                found[block] = _new(names, "blocks", "grid_blocks", f"blocks_{axis}", value=given)
        elif (
            called is None
            and (
                variables
                or any({block, f"blockDim_{axis}"} <= {*one} for index in starts[axis] for one in index)
            )
            and not re.search(rf"\b({compared})\b ?[<>]|[<>]=? ?({compared})\b(?! ;)", use.code)
        ):
            # Compared with nothing, but in k < i of a loop.
            lengths = [use.ends[name] for name in variables if name in use.ends]
            lengths += [size for index in starts[axis] for size in _length(index, block, use)]
            known = [size for size in (*lengths, *passed) if size not in found.values()]
            if not known and len(axes) > 1 and not row:
                return {}
            row |= any(values[name] == {(block,): 1} for name in variables)
            usual = ("rows", "height", f"rows_{axis}") if row else ("n", "elements")
            size = known[0] if known else _unused(names, use) or _new(names, *usual)
            found |= dict.fromkeys(_first(use, values, variables, axis) or [f"index_{axis}"], size)
    return found


def row_lengths(names: SourceNames, use: CodeUse) -> dict[str, str]:
    """Return what strides that the kernel is passed are for rows one behind the other, and set their values to that.

    In ``A[y * lda + k]`` that is the size that ``k`` stays below.
    """
    strides = {
        one.name
        for one in names.numbers
        if isinstance(names.scalars.get(names.named(one.name)), Given) and is_stride(one.name)
    }
    found: dict[str, str] = {}
    if re.search(r"\bchar ?\*", use.code):
        return {}  # they may be bytes
    for index in (index for pointer in use.pointers.values() for index in pointer.indices):
        beside = [part for product in index if strides.isdisjoint(product) for part in product]
        lengths = [bound for part in beside if (bound := use.bound(part)) is not None]
        for name in strides.intersection(part for product in index for part in product) if lengths else ():
            found.setdefault(name, lengths[0])
    for name, length in found.items():
        of = names.named(name)
        names.scalars[of] = (names.scalars[of].value[0], names.text(length))
    return found


def _first(use: CodeUse, values: Mapping[str, Sum], of_block: list[str], axis: str) -> list[str]:
    """Return the variables that are an element of a thread, else of a block, not what is computed of another such."""
    chosen = [name for name in of_block if _of(values[name], f"threadIdx_{axis}")] or of_block
    trees = {name: use.begins[name] for name in chosen}
    return [name for name, tree in trees.items() if tree is None or not names_of(tree) & {*chosen}]


def _unused(names: SourceNames, use: CodeUse) -> str:
    """Return the only integer that the kernel is passed and does not use, which is then a size; empty for none."""
    of = [one.name for one in names.numbers if isinstance(names.scalars.get(names.named(one.name)), Given)]
    left = [
        name
        for name in of
        if not (is_stride(name) or name in names.looped or re.search(rf"\b{name}\b", use.code))
    ]
    if len(left) != 1 or names.named(left[0]) != left[0]:
        return ""
    del names.scalars[names.named(left[0])]
    names.sizes[names.named(left[0])] = None
    return left[0]


def _new(names: SourceNames, *usual: str, value: Given | None = None) -> str:
    name = names.free(*usual)
    names.sizes[name] = value
    return name


def _of(terms: Sum, name: str) -> list[Product]:
    """Return the products of a sum that have a name, also inside of a part, but for indices of elements."""
    return [one for one in terms if re.search(rf"\b({name})\b", re.sub(r"\[.*\]", "", " ".join(one)))]


def _sizes(index: Sum, block: str, use: CodeUse) -> list[str]:
    """Return the sizes that a block's number is multiplied by in an index: more than one element apart."""
    of_block = _of(index, block)
    fixed = [str(index[product]) for product in of_block if len(product) > 1 and index[product] >= LEAST_SIZE]
    return fixed + [part for product in of_block for part in product if use.is_size(part)]


def _tile(indices: list[Sum], block: str, use: CodeUse) -> str:
    """Return what a block's number is multiplied by in all indices, beside sizes: a name or a number; else empty."""
    tiles = set()
    for index in indices:
        for product in _of(index, block):
            parts = [part for part in product if part != block and not use.is_size(part)]
            tiles.add(" * ".join([*([str(index[product])] if index[product] != 1 else []), *parts]))
    tile = tiles.pop() if len(tiles) == 1 else ""
    return tile if tile.isdecimal() or (tile.isidentifier() and "Dim_" not in tile) else ""


def _along(use: CodeUse, indices: list[Sum], block: str, passed: list[str], found: Mapping[str, str]) -> str:
    """Return the size that blocks of tiles divide, which no other axis has; empty if that is not clear."""
    lengths = [size for index in indices for size in _length(index, block, use)]
    taken = re.findall(r"\w+", " ".join(found.values()))
    return next((size for size in (*lengths, *passed) if size in use.sizes and size not in taken), "")


def _counts(index: Sum, block: str, use: CodeUse) -> bool:
    """Return whether an index has a block's number by itself, or times sizes: a row, or an element, for each block."""
    own = _of(index, block)
    return all(index[one] == 1 and all(part == block or use.is_size(part) for part in one) for one in own)


def _length(index: Sum, block: str, use: CodeUse) -> list[str]:
    """Return the size by which another axis has more than this one in an index: a row's length, ``w`` of y * w + x."""
    sizes = [[part for part in product if part in use.sizes] for product in index]
    own = next((of for product, of in zip(index, sizes, strict=True) if block in product), None)
    if own is None:
        return []
    more = [(Counter(of) - Counter(own)).elements() for of in sizes if not Counter(own) - Counter(of)]
    others = (n for one, n in index.items() if block not in one and any("blockIdx" in part for part in one))
    fixed = [str(n) for n in others if n >= LEAST_SIZE and not own]
    return [*(names[0] for names in map(list, more) if len(names) == 1), *fixed]


def of_one_block(names: SourceNames, use: CodeUse) -> dict[str, str]:
    """Return how many threads a kernel of one block has, by ``threadIdx``, where an index has that and no bound.

    That is what its launch says, or a static array of one number for each thread; else the file gets a size.
    """
    indices = [index for pointer in use.pointers.values() for index in pointer.indices]
    alone = any(index == {("threadIdx_x",): 1} for index in indices)
    if not alone or any(use.uses(f"{name}.{axis}") for name in ("blockIdx", "gridDim") for axis in AXES):
        return {}
    called = names.called
    threads = names.number(called.shape[1], called.variables) if called and len(called.shape) > 1 else None
    threads = threads or next((most for name, most in kept_numbers(use) if name == "threadIdx_x"), None)
    return {"threadIdx_x": str(threads or _new(names, "threads", "elements", value=Given(THREADS)))}


def limits(names: SourceNames, use: CodeUse) -> dict[str, str]:
    """Return the conditions, with reasons, that the code puts on sizes, and set their defaults to fit.

    It may keep that many numbers: ``w[k]`` of ``float w[21]``, k below K.
    """
    found = dict[str, str]()
    most: dict[str, int] = {}
    for name, kept in kept_numbers(use):
        if not use.beside.get(name) and (bound := use.bound(name)) in use.sizes and bound is not None:
            most[bound] = min(kept, most.get(bound, kept))
    for size, kept in most.items():
        found[f"the code keeps {size} numbers in an array"] = f"{names.named(size)} <= {kept}"
        value = names.sizes.get(names.named(size))
        names.sizes[names.named(size)] = min(value, kept) if isinstance(value, int) else kept
    stepped = {(use.bound(name) or "", step) for name, step in use.steps.items()}
    stepped = {
        (size, step) for size, step in stepped if size in use.sizes and names.named(step) in names.found
    }
    for size, tile in sorted(use.tiles.whole | stepped):
        found[f"{size} is a whole number of {tile}"] = f"{names.named(size)} % {names.text(tile)} == 0"
    compared = set(re.findall(r"\b(\w+) < (\w+)\b", use.code))
    for index in (index for of in use.pointers.values() for index in of.indices):
        alone = [one[0] for one in index if len(one) == 1]
        for name, size in ((one, use.bound(one) or "") for one in alone):
            steps = {part for one in sum_of(use.begins.get(name), use.first) or () for part in one}
            for by in {by for one, by in compared if one in alone} & steps:
                if size in use.sizes and names.named(by) in names.found and not use.beside.get(name):
                    found[f"{size} is a whole number of {by}"] = (
                        f"{names.named(size)} % {names.named(by)} == 0"
                    )
    return found


def values_kept(use: CodeUse, name: str) -> int | None:
    """Return for how many values of an array the code's own arrays have room: 256 of ``counts[x[i]]``; None for any."""
    return min(
        (most for index, most in kept_numbers(use) if re.fullmatch(rf"\({name}\[[^]]*\]\)", index)),
        default=None,
    )


def values_asked(use: CodeUse, name: str, *, whole: bool) -> str:
    """Return what the code does with an array's elements that allows only some values; empty for nothing.

    Args:
        use: what the code does.
        name: the array's.
        whole: whether its elements are whole numbers: a random one of these may well be 0.
    """
    held = {name}
    for one in walk(use.body, "init_declarator", "assignment_expression"):
        if one.children[0].type == "identifier" and held.intersection(_values_in(one.children[-1])):
            held.add(text_of(one.children[0]))
    for one in walk(use.body, "subscript_expression") if whole else ():
        if held.intersection(_values_in(one.children[-1])):
            return "its elements are indices: is its init right?"
    for one in walk(use.body, "binary_expression", "assignment_expression") if whole else ():
        if text_of(one.children[1]).rstrip("=") in ("/", "%") and held.intersection(
            _values_in(one.children[-1])
        ):
            return "the code divides by its elements: is its init right?"
    for one in walk(use.body, "call_expression"):
        if re.fullmatch(r"(std::)?(__)?(r?sqrt|log|log2|log10|acos|asin|pow)f?", text_of(one.children[0])):
            given = one.children[-1].named_children
            of = [*_values_in(given[0])] if given else []
            square = len(given) > 1 and re.fullmatch(r"-?\d+(\.0*)?[fF]?", text_of(given[1]))
            if len(of) == 1 and of[0] in held and not square:
                return "the code takes a root or logarithm of its elements: is its init right?"
    return ""


def _values_in(node: Node) -> Iterator[str]:
    """Yield the names of which an expression has values, not those that only say where these are."""
    if node.type == "identifier":
        yield text_of(node)
    inner = node.named_children[:1] if node.type == "subscript_expression" else node.named_children
    for one in inner:
        yield from _values_in(one)
