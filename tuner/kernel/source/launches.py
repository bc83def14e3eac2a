"""Launches as sources write them, ``kernel<<<grid, block>>>(arguments)``."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.core.errors import TunerError
from tuner.expressions.arithmetic import parse
from tuner.expressions.parsing import copied
from tuner.kernel.source.expressions import expression_text
from tuner.kernel.source.tree import cast_of, code, name_node, names_in, text_of, variables_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node


_AROUND_NAMES = ("parenthesized_expression", "pointer_expression")


@dataclass(frozen=True)
class WrittenLaunch:
    """A ``kernel<<<grid, block, shared, stream>>>(arguments)`` of the source, or a ``cudaLaunchKernel``."""

    kernel: str
    template: tuple[str, ...]
    shape: tuple[Node, ...]
    """Grid, block, and perhaps shared memory and stream."""
    arguments: tuple[Node, ...]
    variables: Mapping[str, Node]
    """What variables of the calling function begin as, by name; of ``dim3 grid(n / 2, 1)`` the two numbers."""
    allocated: Mapping[str, Node]
    """The bytes that the calling function allocates on the GPU, by the pointer to them."""
    multiprocessors: frozenset[str]
    """Variables and members of the calling function that hold how many multiprocessors the GPU has."""
    looped: tuple[bool, ...]
    """Whether an argument has a variable that is set in a loop around the launch."""


def launches_in(function: Node) -> Iterator[WrittenLaunch]:
    """Yield the launches that a function has."""
    variables, allocated = list(variables_of(function)), list(_allocated(function))
    multiprocessors = frozenset(_multiprocessors(function))
    for call, called, shape, given in _calls(function):
        template: Sequence[Node] = ()
        while called.type in ("qualified_identifier", "template_function"):
            if (found := called.child_by_field_name("arguments")) is not None:
                template = found.named_children
            called = called.child_by_field_name("name") or called.named_children[-1]
        looped = {name for loop in _loops_around(call) for name in _set_in(loop)}
        yield WrittenLaunch(
            text_of(called),
            tuple(map(code, template)),
            tuple(shape),
            tuple(given),
            {name: value for name, value in variables if value.end_byte <= shape[0].start_byte},
            {name: size for name, size in allocated if size.end_byte <= shape[0].start_byte},
            multiprocessors,
            tuple(not looped.isdisjoint(names_in(one)) for one in given),
        )


def _calls(function: Node) -> Iterator[tuple[Node, Node, Sequence[Node], Sequence[Node]]]:
    """Yield launches: the call, the kernel, its grid, block and shared memory, and its arguments."""
    for one in walk(function, "call_expression"):
        called, given = one.children[0], one.children[-1].named_children
        if (shape := next((of for of in one.children if of.type == "kernel_call_syntax"), None)) is not None:
            yield one, called, shape.named_children, given
        elif re.fullmatch(r"cudaLaunch(Cooperative)?Kernel", text_of(called)) and len(given) > 3:
            passed = next((of for of in _arrays(function) if text_of(of[0]) == text_of(given[3])), None)
            if passed is not None:  # void* arguments[] = {&x, &n}
                addresses = [*map(_pointed, passed[1].named_children)]
                yield one, _pointed(given[0]), [*given[1:3], *given[4:]], addresses


def _arrays(function: Node) -> Iterator[tuple[Node, Node]]:
    for one in walk(function, "init_declarator"):
        name, value = name_node(one), one.child_by_field_name("value")
        if name is not None and value is not None and value.type == "initializer_list":
            yield name, value


def _pointed(node: Node) -> Node:
    """Return what an address is of, without casts: ``k`` of ``(void*)&k``."""
    while (inner := cast_of(node)[1]) is not None or node.type in _AROUND_NAMES:
        node = inner if inner is not None else node.named_children[-1]
    return node


def template_of(
    kernel: str, launch: WrittenLaunch | None, declarations: Iterable[Node]
) -> tuple[Sequence[str], Mapping[str, Node]]:
    """Return what a kernel's template gets, and the variables of which that may be made.

    Args:
        kernel: its name, without namespaces.
        launch: its launch; where it has none, an explicit instantiation counts.
        declarations: of the source.
    """
    if launch is not None and launch.template:
        return launch.template, launch.variables
    for one in declarations:
        for given in walk(one if one.type == "template_instantiation" else None, "template_function"):
            if text_of(given.named_children[0]) == kernel:
                return [*map(code, given.named_children[-1].named_children)], {}
    return (), launch.variables if launch is not None else {}


def _allocated(function: Node) -> Iterator[tuple[str, Node]]:
    for one in walk(function, "call_expression"):
        called, given = one.children[0], one.children[-1].named_children
        allocates = re.fullmatch(r"(cuda|hip)Malloc(Managed|Async)?", text_of(called)) and len(given) > 1
        pointer = re.search(r"&\s*(\w+)\)?\Z", text_of(given[0])) if allocates else None
        if pointer:
            yield pointer[1], given[1]


def _multiprocessors(function: Node) -> Iterator[str]:
    for one in walk(function, "field_expression"):
        if text_of(one.named_children[-1]) == "multiProcessorCount":
            yield text_of(one).replace(".", "_")
    for one in walk(function, "argument_list"):
        if re.search(r"multi_?processor_?count", text_of(one), re.IGNORECASE):
            yield text_of(one.named_children[0]).lstrip("&")


def _loops_around(node: Node) -> Iterator[Node]:
    while (parent := node.parent) is not None:
        node = parent
        if node.type in ("for_statement", "while_statement", "do_statement"):
            yield node


def _set_in(loop: Node) -> Iterator[str]:
    yield from (name for name, _ in variables_of(loop))
    for one in walk(loop, "assignment_expression", "update_expression"):
        yield from names_in(one.child_by_field_name("left") or one)


def real_of(tree: ast.expr | None) -> float | None:
    """Return the number that an expression without names is, as C computes it; None for another one.

    So it is where whole numbers are divided: a cast, which the tree has no more, may have made them real.
    """
    tree = copied(tree) if tree is not None else None
    for one in ast.walk(tree) if tree is not None else ():
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.FloorDiv):
            if not any(
                isinstance(part, ast.Constant) and type(part.value) is float for part in ast.walk(one)
            ):
                return None
            one.op = ast.Div()
    with contextlib.suppress(TunerError, ArithmeticError):
        return parse(text).number({}) if (text := expression_text(tree)) else None
    return None
