"""The shape of an array, by the indices of its elements that a kernel's code has."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from tuner.kernel.source.expressions import (
    Product,
    Sum,
    largest_of,
    plus,
    python_of,
    python_text,
    quotient,
    sum_of,
    sum_text,
    times,
)
from tuner.kernel.source.use import CodeUse

Stride = tuple[tuple[Product, int], ...]
"""How far elements along a dimension lie from each other: what a sum has."""


def shape_of(use: CodeUse, name: str, indices: Sequence[Sum] | None = None) -> list[str | None]:
    """Return a tensor's extents in memory order; None for one that the code does not show, none of all.

    Args:
        use: what the code does.
        name: the tensor's.
        indices: of its elements; by default all that the code has.
    """
    pointer, known = use.pointers[name], {*use.sizes, "min", "max", "ceil_div"}
    indices = pointer.indices if indices is None else indices
    found = (_shape(use, index, pointer.lanes) for index in indices)
    shapes = [
        [one if one and known.issuperset(re.findall(r"[A-Za-z_]\w*", one)) else None for one in shape]
        for shape in found
        if shape
    ]
    most = max(shapes, key=lambda shape: (None not in shape, len(shape)), default=[])
    if len(most) > 1 and (planes := max(_planes(use, index, most) for index in indices)) > 1:
        return [str(planes), *most]
    others = [shape[0] for shape in shapes if shape[1:] == most[1:] and shape[0] is not None]
    return [largest_of(others), *most[1:]] if others else most


def _planes(use: CodeUse, index: Sum, shape: list[str | None]) -> int:
    """Return how many arrays of a shape lie one behind the other: 3 of ``x[2 * width * height + i]``."""
    before = [(one, n) for one, n in index.items() if one and n > 0 and use.sizes.issuperset(one)]
    whole = len(before) == 1 and sorted(before[0][0]) == sorted(filter(None, shape)) and None not in shape
    return before[0][1] + 1 if whole else 1


def _shape(use: CodeUse, index: Sum, lanes: int) -> list[str | None]:
    parts: dict[Product, Sum] = {}
    bounds = [use.bound(part) or "" for product, n in index.items() if n in (1, lanes) for part in product]
    vectors = dict(re.findall(r"\((\w+) // (\d+)\)", " ".join(bounds)))
    beside = {one for product in index for part in product for one in use.beside.get(part, ())}
    for product, factor in index.items():
        sizes = tuple(name for name in product if use.is_size(name))
        for name in vectors.keys() & sizes:  # rows of C elements beside C / 4 vectors
            factor *= int(vectors[name])
            sizes = tuple(f"({name} // {vectors[name]})" if one == name else one for one in sizes)
        rest = tuple(name for name in product if not use.is_size(name))
        if not rest or rest in beside or not any(_varies(use, name) for name in rest):
            continue
        first = len(rest) > 1 and not any(name in use.bounds for name in rest)  # a block's first element
        parts[rest] = plus([parts.get(rest, {}), {sizes: 1 if first else factor}]) or {}
    names = {name for rest in parts for part in rest for name in re.findall(r"\w+", use.bound(part) or "")}
    # x[y * (w + 2) + x] and x[y * (w + 1)], but not the diagonal x[i * n + i]
    apart = len({*map(str, parts.values())}) > 1 or names.isdisjoint(part for one in index for part in one)
    along: dict[Stride, list[Product]] = {}
    for rest, step in parts.items():
        for stride in [(*step.items(),)] if step and apart else [(one,) for one in step.items()]:
            along.setdefault(stride, []).append(rest)
    if not along:
        return []
    order = sorted({(((), 1),), *along}, key=lambda stride: max((len(one), n) for one, n in stride))
    extents: list[str | None] = []
    for below, stride in pairwise(order):
        if (extent := quotient(dict(stride), dict(below))) is None:
            return []
        extents.append(extent)
    behind = _behind(use, index, order[-1], beside, inner=bool(extents), alone=len(along) == 1)
    rows = along[order[-1]]
    shape = [_outermost(use, rows, {(): behind[()]}), *reversed(extents)]
    planes = len(shape) > 1 and _planes(use, index, shape) > 1  # they become a dimension
    return shape if planes else [_outermost(use, rows, behind), *reversed(extents)]


def _behind(
    use: CodeUse, index: Sum, stride: Stride, beside: Collection[Product], *, inner: bool, alone: bool
) -> Sum:
    """Return by how many rows an index lies behind those of its variables: h of ``x[(h + y) * w + i]``.

    Args:
        use: what the code does.
        index: of elements.
        stride: from row to row.
        beside: what a condition leaves out.
        inner: whether a row has several elements.
        alone: whether variables count rows alone.
    """
    most, n = min(stride, key=lambda one: (-len(one[0]), one[1]))
    sized = {one: m for one, m in index.items() if use.sizes.issuperset(one)}
    behind = {
        tuple(sorted((Counter(one) - Counter(most)).elements())): m // n
        for one, m in sized.items()
        if not Counter(most) - Counter(one)
    }
    behind = {one: m for one, m in behind.items() if one not in beside}
    # Elements of x[y * w + i + w - k] are in row y, as is x[y * w + w - 1], but not x[y * w + i + w - 1].
    remainder = plus([sized, times({one: -m for one, m in behind.items()}, dict(stride)) or {}]) or {}
    less = inner and any(m < 0 for one, m in remainder.items() if one or alone)
    behind[()] = behind.get((), 0) - (less and behind.get((), 0) > 0)
    return behind


def _outermost(use: CodeUse, along: list[Product], behind: Sum) -> str | None:
    """Return how many rows there are: ``n + m - 1`` of ``x[i + k + 1]`` with i below n - 1 and k below m.

    None where blocks begin at some that nothing limits, or where a loop to a number may reach rows of the next thread.

    Args:
        use: what the code does.
        along: what is added up for an index of rows.
        behind: the rows beside it: ``h`` of those of a second array behind the first.
    """
    bounds: list[Sum] = []
    offset = behind.get((), 0)
    for rest in along:
        one = next((name for name in rest if use.bound(name)), "")
        if not one and use.places({rest: 1}, "block"):
            return None
        bounds += [sum_of(python_text(use.bound(one) or "")) or {}] if one else []
        offset += use.short.get(one, 0) if one else use.counts.get(rest[0], 1) - 1
    if not bounds:
        return None
    if any(len(rest) > 1 or _by_several(use, rest[0]) for rest in along):
        to_number = any(use.counts.get(rest[0], 1) > 1 for rest in along if not use.bound(rest[0]))
        if to_number and not any(math.gcd(*_begin(use, rest[0]).values()) > 1 for rest in along):
            return None  # between the multiples of a parameter, or beyond the last
        bounds, offset = bounds[:1], 0
    further = {one: n for one, n in behind.items() if one}
    further = further if any(n > 0 for n in further.values()) else {}
    whole = plus([*bounds, further, {(): 1 - len(bounds)}]) or {}
    return sum_text(plus([whole, {(): max(offset, -max(whole.get((), 0), 0))}]) or {})


def _by_several(use: CodeUse, name: str) -> bool:
    """Return whether a variable leaves out elements, which are reached from those before: by ``x[i + 1]``."""
    begins = _begin(use, name)
    factors = set.intersection(*map(set, begins)) if begins else set()
    steps = re.findall(rf"\b{re.escape(name)} \+= ([^;)]*)", use.code)
    by_threads = ("Dim" in f"{step} {sum_of(python_of(step), use.first)}" for step in steps)
    multiples = math.gcd(*begins.values()) > 1 or any("Idx_" not in one for one in factors)
    return multiples or name.endswith("_tiles") or not all(by_threads)


def _begin(use: CodeUse, name: str) -> Sum:
    return sum_of(use.begins.get(name), use.first) or {}


def _varies(use: CodeUse, name: str) -> bool:
    known = re.search(r"Idx_|\[|%|//", name) is not None
    return known or name in use.bounds or name in use.begins
