"""A block's threads as the code uses them: its own arrays, steps of loops, warps, and shared memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from tuner.expressions.arithmetic import parse
from tuner.kernel.source.expressions import (
    Sum,
    expression_text,
    number_of,
    numbers_of,
    python_of,
    python_text,
    replaced,
    sum_of,
    sum_text,
)
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.tree import extents_of, head_of, name_node, text_of, walk
from tuner.kernel.source.types import CType, base_of, vector_of
from tuner.kernel.source.use import AXES, CodeUse
from tuner.runtime.dtypes import ITEMSIZE

if TYPE_CHECKING:
    from tree_sitter import Node


def threads_kept(use: CodeUse) -> dict[str, int]:
    """Return the most threads along an axis for which the code's own arrays have room: 256 of ``s[threadIdx.x]``.

    What a comparison with the thread's number leaves out does not count.
    """
    most: dict[str, int] = {}
    for axis, extent, index, threads in _by_threads(use):
        if set(extent) == {()}:
            room = (extent[()] - index.get((), 0)) * threads
            most[axis] = min(room, most.get(axis, room))
    return most


def threads_named(use: CodeUse, axis: str) -> tuple[str, int]:
    """Return the name that says for how many threads along an axis the code's own arrays have room; empty for none.

    And how many threads have an element: 32 of ``s[threadIdx.x / 32]``.
    """
    named = (
        ([part for product in extent for part in product], threads)
        for of, extent, _, threads in _by_threads(use)
        if of == axis
    )
    return next(((" * ".join(names), threads) for names, threads in named if names), ("", 1))


def threads_asserted(use: CodeUse, axis: str) -> list[str]:
    """Return how many threads a block has as the code asserts it: of ``assert(BM * BK == blockDim.x)`` BM * BK."""
    said = rf"\bassert\((?:blockDim\.{axis} == ([^;=]+)|([^;=]+) == blockDim\.{axis})\) ?;"
    trees = [python_of(left or right) for left, right in re.findall(said, use.code)]
    texts = (expression_text(replaced(tree, {}, use.begins)) for tree in trees)
    return [*dict.fromkeys(text for text in texts if text)]


def step_of(use: CodeUse, axis: str) -> str:
    """Return the name by which a loop goes from one element of a thread to its next; empty for none.

    Or the number of threads that follows from it: 32 where ``c = VEC * threadIdx.x`` grows by ``32 * VEC``.
    """
    sums = [sum_of(python_of(one)) or {} for one in walk(use.body, "binary_expression")]
    thread = (f"threadIdx_{axis}",)
    begins = {one: sum_of(tree, use.first) or {} for one, tree in use.begins.items()}
    of_thread = [*thread, *(one for one, terms in begins.items() if terms.get(thread) == 1)]
    indices = [index for of in use.pointers.values() for index in of.indices]
    for one in walk(use.body, "assignment_expression"):
        name, step = text_of(one.children[0]), one.children[-1]
        if text_of(one.children[1]) != "+=":
            continue
        if step.type != "identifier":
            own, by = begins.get(name, {}), use.sum(step) or {}
            own = {part: n for part, n in own.items() if "threadIdx" in str(part)}
            if len(own) == len(by) == 1 and thread[0] in next(iter(own)):
                ((product, n),), ((grown, m),) = own.items(), by.items()
                rest = tuple(part for part in product if part != thread[0])
                if grown == rest and m % n == 0 and m > n:
                    return str(m // n)
            continue
        beside = [{part: 1} for terms in sums if terms.get((name,)) == 1 for part in terms if part != (name,)]
        of = [sum_of(use.begins.get(name)) or {}, *(beside if name not in use.bounds else ())]
        for terms in of:
            full = sum_of(python_text(sum_text(terms)), use.first) or {}
            if [part for part in full if "threadIdx" in str(part)] == [thread]:
                return text_of(step)
        for index in indices:  # as of i * width beside y * width
            for product in (product for product in index if name in product):
                others = [part for part in product if part != name]
                if others and any(
                    index.get(tuple(sorted((*others, one)))) == index[product] for one in of_thread
                ):
                    return text_of(step)
    return ""


def _by_threads(use: CodeUse) -> Iterator[tuple[str, Sum, Sum, int]]:
    """Yield where the code's own arrays have an element for each thread, or for some: axis, extent, index, how many."""
    threads = {name: sum_of(tree, use.first) for name, tree in use.begins.items()}
    for one, extent, index in _own_elements(use):
        terms = _divided(sum_of(python_of(index), use.first) or {})
        products = [product for product in terms if product]
        if len(products) != 1 or terms[products[0]] != 1:
            continue
        (product,) = products
        number = re.fullmatch(r"\(?threadIdx_([xyz])(?: // (\d+)\))?", product[0])
        if number and len(product) == 1:
            own = {f"threadIdx_{number[1]}", *(name for name, of in threads.items() if of == {product: 1})}
            if not own.intersection(_compared_around(one)):
                yield number[1], extent, terms, int(number[2] or 1)


def _divided(terms: Sum) -> Sum:
    """Return a sum with ``x`` for ``x // n * n + x % n``."""
    for rest in terms:
        if found := re.fullmatch(r"\((\w+) % ([A-Za-z_]\w*)\)", rest[0] if len(rest) == 1 else ""):
            whole = tuple(sorted((f"({found[1]} // {found[2]})", found[2])))
            if terms.get(whole) == terms[rest] and (found[1],) not in terms:
                return {one: n for one, n in terms.items() if one not in (rest, whole)} | {
                    (found[1],): terms[rest]
                }
    return terms


def _compared_around(node: Node) -> Iterator[str]:
    """Yield the names in comparisons that decide whether code is run, with ``_`` for the point."""
    while (around := node.parent) is not None:
        before = around.type == "binary_expression" and text_of(around.children[1]) == "&&"
        test = around.children[0] if before else around.child_by_field_name("condition")
        if test is not None and test != node and re.search("[<>]", text_of(test)):
            yield from re.findall(r"\w+", text_of(test).replace("threadIdx.", "threadIdx_"))
        node = around


def kept_numbers(use: CodeUse) -> Iterator[tuple[str, int]]:
    """Yield variables by themselves that are indices of the code's own arrays, with the arrays' extents."""
    for _, extent, written in _own_elements(use):
        index = use.sum(written)
        if set(extent) == {()} and index is not None and list(index.values()) == [1]:
            yield from ((name, extent[()]) for (name, *others) in filter(None, index) if not others)


def _own_elements(use: CodeUse) -> Iterator[tuple[Node, Sum, Node]]:
    """Yield where the code has an element of one of its own arrays, with each dimension's extent and index."""
    extents = {
        text_of(name): [use.sum(extent) for extent in extents_of(declarator)]
        for one in walk(use.body, "declaration")
        for declarator in one.children_by_field_name("declarator")
        if (name := name_node(declarator)) is not None
    }
    for one in walk(use.body, "subscript_expression"):
        array: Node = one
        indices: list[Node] = []
        while array.type == "subscript_expression":
            array, indices = array.named_children[0], [array.named_children[-1], *indices]
        for extent, index in zip(extents.get(text_of(array), ()), indices, strict=False):
            if extent is not None:
                yield one, extent, index


def shared_arrays(use: CodeUse) -> Iterator[tuple[list[str], list[Node]]]:
    """Yield the static arrays in shared memory: words of the type, and extents."""
    for one in walk(use.body, "declaration"):
        head = head_of(one)
        if "__shared__" in head and "extern" not in head:
            for declarator in one.children_by_field_name("declarator"):
                yield [word for word in head if word != "__shared__"], extents_of(declarator)


def beside_block(use: CodeUse, axis: str) -> set[str]:
    """Return the axes whose threads are beside a block's number: y of ``blockIdx.x * N + threadIdx.y``."""
    indices = [index for of in use.pointers.values() for index in of.indices]
    sums = (*(sum_of(tree, use.first) or {} for tree in use.begins.values()), *indices)
    of_block = [str([*one]) for one in sums if f"blockIdx_{axis}" in str([*one])]
    return {of for of in AXES if any(f"threadIdx_{of}" in one for one in of_block)}


def divided(use: CodeUse, axis: str, number: int = 1) -> Fraction:
    """Return how many threads have an element beside ``blockIdx``, as 32 of a warp, or 1/4 of ``4 * threadIdx.x``.

    Args:
        use: what the code does.
        axis: of the threads.
        number: what ``blockIdx`` is multiplied by.
    """
    block, thread = f"blockIdx_{axis}", f"threadIdx_{axis}"
    indices = [index for of in use.pointers.values() for index in of.indices]
    for terms in (*(sum_of(tree, use.first) or {} for tree in use.begins.values()), *indices):
        parts = {part for product in terms for part in product}
        beside = number in (n for product, n in terms.items() if block in product)
        for part in parts if block in parts else ():
            found = re.fullmatch(r"\((\w+) // (\w+)\)", part)
            if found and sum_of(ast.Name(found[1]), use.first) == {(thread,): 1}:
                return Fraction(number_of(found[2], use.numbers) or 1)
            if part == thread and beside and terms.get((thread,), 0) > 1:
                return Fraction(1, terms[thread,])
    return Fraction(1)


def threads_of(choice: str, elements: int, each: Fraction) -> str:
    """Return how many threads a block of ``elements * choice`` elements has, ``each`` of them an element.

    Unless an element has several threads, at most ``choice``: each may have others as far away as that.
    """
    if each > 1:
        return f"{each} * {choice}"
    share = min(abs(elements) * each, Fraction(1))
    some = choice if share.numerator == 1 else f"{share.numerator} * {choice}"
    return some if share.denominator == 1 else f"{some} // {share.denominator}"


def folded(use: CodeUse) -> bool:
    """Return whether an index has a warp's place among some in a row: ``warp % WARPS_N``."""
    for tree in use.begins.values():
        parts = [part for product in sum_of(tree, use.first) or {} for part in product]
        found = re.findall(r"\((\w+) % [A-Za-z_]\w*\)", " ".join(parts))
        of_warps = (" // " in str(sum_of(ast.Name(one), use.first)) for one in found)
        if "blockIdx_" in str(parts) and any(of_warps):
            return True
    return False


def static_shared(names: SourceNames, use: CodeUse, most: Mapping[str, int]) -> str:
    """Return the bytes of static shared memory by the parameters; empty if no values ask for more than there is.

    Args:
        names: what the source's names become.
        use: what the code does.
        most: the largest value of each parameter.
    """
    total = "0"
    for kind, extents in shared_arrays(use):
        base, lanes = vector_of(base_of(kind))
        dtype = names.dtype(CType("", base, 1)) or "float32"
        dtype = names.dtypes[dtype][0] if dtype in names.dtypes else dtype
        sums = [use.sum(one) for one in extents]
        factors = ["unknown" if one is None else sum_text(one) for one in sums]
        total += "".join([f" + {lanes * ITEMSIZE[dtype]}", *(f" * ({one})" for one in factors)])
    values = numbers_of(names.source, names.found)

    def known(word: re.Match[str]) -> str:
        number = None if word[0] in most else number_of(word[0], values)
        return word[0] if number is None else str(number)

    text = re.sub(r"[A-Za-z_]\w*", known, names.text(total))
    if not {*re.findall(r"[A-Za-z_]\w*", text)} <= set(most):
        return ""
    terms = sum_of(python_text(text))
    text = text if terms is None else sum_text(terms)
    return text if parse(text).number(most) > 48 * 1024 else ""
