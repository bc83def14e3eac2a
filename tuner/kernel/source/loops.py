"""Loops of the host around a launch as ``repeat`` has them: passes counted from 0, and buffers that take turns."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.kernel.source.expressions import python_of, python_text, sum_of, sum_text
from tuner.kernel.source.launches import WrittenLaunch
from tuner.kernel.source.tree import names_in, text_of, variables_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}


@dataclass(frozen=True)
class HostLoop:
    """A ``for`` of the host."""

    name: str
    """Counts the passes from 0: its variable, where that does so, else one with ``_pass`` behind it."""
    variable: str
    value: ast.expr
    """Of the variable in each pass."""
    count: ast.expr
    """The passes; names are the host's."""


@dataclass(frozen=True)
class HostLoops:
    """What a launch repeats in."""

    loops: tuple[HostLoop, ...]
    """The outermost first."""
    swapped: tuple[tuple[str, str], ...]
    """Pairs of the host's pointers that the innermost loop exchanges."""


def loops_around(launch: WrittenLaunch) -> HostLoops | None:
    """Return the loops that change what a launch passes; None where there are none, or one does not count.

    Loops that change nothing, as those of benchmarks, are left out.
    """
    needed = {name for one in launch.arguments for name in names_in(one)}
    loops: list[HostLoop] = []
    swapped: tuple[tuple[str, str], ...] = ()
    for number, node in enumerate(launch.loops):
        body = list(_statements(node, launch.loops[number - 1] if number else None))
        pairs = tuple(pair for pair in _swaps(body) if needed.issuperset(pair))
        changed = set(_assigned(body)) & needed
        loop = _counted(node) if node.type == "for_statement" else None
        own = {loop.variable} if loop is not None else set()
        if not (changed or own & needed or (pairs and not number)):
            continue
        if loop is None or changed - own - {name for pair in pairs for name in pair} or (pairs and number):
            return None
        swapped = swapped or pairs
        loops.insert(0, loop)
        needed |= {
            one.id for tree in (loop.value, loop.count) for one in ast.walk(tree) if isinstance(one, ast.Name)
        }
    return HostLoops(tuple(loops), swapped) if loops else None


def _counted(loop: Node) -> HostLoop | None:
    """Return a loop from a number to a number by steps, or by doubling or halving; None for another."""
    first, test, update = (loop.child_by_field_name(part) for part in ("initializer", "condition", "update"))
    begins = list(variables_of(first))
    if first is not None and first.type == "assignment_expression":
        begins = [(text_of(first.children[0]), first.children[-1])]
    if len(begins) != 1 or test is None or test.type != "binary_expression" or update is None:
        return None
    variable, begin = begins[0][0], python_of(begins[0][1])
    sides, sign = (test.children[0], test.children[-1]), text_of(test.children[1])
    if text_of(sides[1]) == variable:
        sides, sign = sides[::-1], _TURNED.get(sign, "")
    end, by = python_of(sides[1]), _step(update, variable)
    if text_of(sides[0]) != variable or begin is None or end is None or by is None:
        return None
    name = variable if by == ("+", 1) and sum_of(begin) == {} else f"{variable}_pass"
    texts = _passes(ast.unparse(begin), sign, ast.unparse(end), *by, name)
    return HostLoop(name, variable, *map(_short, texts)) if texts is not None else None


def _passes(begin: str, sign: str, end: str, kind: str, step: int, name: str) -> tuple[str, str] | None:
    """Return what the variable is in each pass, and how many there are."""
    up = sign in ("<", "<=", "!=")
    one_more = " + 1" if sign in ("<=", ">=") else ""
    match kind:
        case "+" | "-" if up == (kind == "+"):
            span = f"({end}) - ({begin})" if up else f"({begin}) - ({end})"
            count = f"{span}{one_more}" if step == 1 else f"ceil_div({span}{one_more}, {step})"
            return f"({begin}) {kind} {step} * {name}", count
        case "*" if up and step == 2:
            ratio = end if begin == "1" else f"({end}) / ({begin})"
            return (
                f"({begin}) << {name}",
                f"log2({ratio}) // 1 + 1" if one_more else f"ceil_div(log2({ratio}), 1)",
            )
        case "/" if (
            not up and step == 2 and (last := int(end) + (sign == ">") if end.isdecimal() else 0) in (1, 2)
        ):
            return f"({begin}) >> {name}", f"log2({begin}) // 1" + (" + 1" if last == 1 else "")
    return None


def _short(text: str) -> ast.expr:
    tree = python_text(text)
    terms = sum_of(tree)
    return python_text(sum_text(terms)) if terms is not None else tree


def _step(update: Node, variable: str) -> tuple[str, int] | None:
    """Return how a variable goes on: ``("+", 1)`` for ``++i``."""
    if update.type == "update_expression":
        return (
            (text_of(update).replace(variable, "").strip()[:1], 1) if variable in names_in(update) else None
        )
    if update.type != "assignment_expression" or text_of(update.children[0]) != variable:
        return None
    mark, by = text_of(update.children[1]), python_of(update.children[-1])
    if mark == "=" and by is not None:
        match by:
            case ast.BinOp(
                left=ast.Name(id=name),
                op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as of,
                right=right,
            ):
                signs = {ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*=", ast.FloorDiv: "/="}
                mark, by = (signs[type(of)], right) if name == variable else ("", right)
    if not isinstance(by, ast.Constant) or not isinstance(by.value, int):
        return None
    return (
        {"<<=": ("*", 1 << by.value), ">>=": ("/", 1 << by.value)}.get(mark, (mark[0], by.value))
        if mark
        else None
    )


def _statements(loop: Node, inner: Node | None) -> Iterator[Node]:
    """Yield what a loop's body has, but for what an inner loop has."""
    body = loop.child_by_field_name("body")
    whole = body is not None and body.type == "compound_statement"
    for one in body.named_children if body is not None and whole else filter(None, [body]):
        if inner is None or not one.start_byte <= inner.start_byte < one.end_byte:
            yield one


def _assigned(body: Sequence[Node]) -> Iterator[str]:
    """Yield what statements set again, but for what they declare."""
    declared = {name for one in body for name, _ in variables_of(one)}
    for one in (
        one for statement in body for one in walk(statement, "assignment_expression", "update_expression")
    ):
        yield from set(names_in(one.child_by_field_name("left") or one)[:1]) - declared


def _swaps(body: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Yield pairs that statements exchange, by a function or by a third variable."""
    for call in (one for statement in body for one in walk(statement, "call_expression")):
        function, given = (call.child_by_field_name(one) for one in ("function", "arguments"))
        if function is not None and given is not None and text_of(function) in ("swap", "std::swap"):
            one, other = map(text_of, given.named_children[:2])
            yield one, other
    kept = {name: text_of(value) for statement in body for name, value in variables_of(statement)}
    assigned = (one for statement in body for one in walk(statement, "assignment_expression"))
    pairs = [(text_of(one.children[0]), text_of(one.children[-1])) for one in assigned]
    kept |= {left: right for left, right in pairs if left not in kept}
    for left, right in pairs:
        if any(other == right and kept.get(of) == left for other, of in pairs):
            yield left, right
