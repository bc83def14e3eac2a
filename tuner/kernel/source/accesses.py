"""What a kernel's code does with its pointers: which elements it reads and writes, also by other pointers and casts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.kernel.source.expressions import Product, Sum, plus
from tuner.kernel.source.tree import (
    AROUND,
    address_of,
    cast_of,
    enclosing,
    expression,
    receiver_of,
    text_of,
    walk,
)
from tuner.kernel.source.types import CType, Parameter, base_of, bytes_of, vector_of

if TYPE_CHECKING:
    from tree_sitter import Node

Alias = tuple[str, Sum, int]
"""The pointer that a variable is made of, by how many elements it is moved, and how many it takes at once."""


@dataclass
class Use:
    """What is done with a pointer."""

    read: bool = False
    written: bool = False
    added: bool = False
    """Whether atomic functions or ``+=`` change what is there."""
    whole: bool = False
    """Whether elements are written where no condition leaves out others."""
    passed: bool = False
    """Whether a function gets it: what that does is not looked at."""
    indices: list[Sum] = field(default_factory=list)
    moved: str = ""
    """How the pointer is moved, where its indices do not say how far it goes."""
    lanes: int = 1
    """The most elements that a cast takes at once: 4 of ``float4``."""
    limits: str = ""
    """Of an array of indices: the array that it selects from."""


class Accesses:
    """What is done with each pointer.

    Args:
        body: the code.
        names: the parameters that are pointers.
        values: what variables begin as.
        total: returns an expression as a sum.
        left_out: where elements at an edge, or some by what is in an array, are left out.
        loads: macros that load what they are given a pointer to.
    """

    def __init__(
        self,
        body: Node | None,
        names: Mapping[str, Parameter],
        values: Mapping[str, Node],
        total: Callable[[Node], Sum | None],
        left_out: Collection[range],
        loads: Collection[str],
    ) -> None:
        self._sum, self._left_out, self._loads, self._names = total, left_out, loads, names
        self.pointers = {name: Use() for name in names}
        self.aliases: dict[str, Alias] = {name: (name, {}, 1) for name in self.pointers}
        """Variables that are pointers, with what each is made of."""
        self.steps: dict[str, str] = {}
        """What moves pointers in loops, with the name that it grows by; empty for none."""
        for name, value in values.items():
            if (alias := self._alias(value)) is not None:
                self.aliases[name] = alias
        for one in walk(body, "assignment_expression"):
            left, right = one.children[0], one.children[-1]
            if text_of(left) in self.pointers and text_of(one.children[1]) == "+=":
                by = self._in_all_steps(one, right) if _in_loop(one) else self._sum(right) or {}
                if by is None:
                    self.pointers[text_of(left)].moved = "a loop moves its pointer"
                else:
                    name, before, lanes = self.aliases[text_of(left)]
                    self.aliases[text_of(left)] = name, plus([before, by]) or {}, lanes
            elif text_of(left) in self.pointers and text_of(one.children[1]) == "=":
                alias = self._alias(right)
                if alias is not None and alias[0] == text_of(left) and not _in_loop(one):
                    self.aliases[text_of(left)] = alias
                else:
                    self.pointers[text_of(left)].moved = "its pointer is set again"
        for one in walk(body, "identifier"):
            declared = one.parent is not None and one.parent.child_by_field_name("declarator") == one
            if text_of(one) in self.aliases and not declared:
                self._occurrence(one, self.aliases[text_of(one)])
        for name, use in self.pointers.items():
            parts = {part for index in use.indices for product in index for part in product}
            for inner in re.findall(r"(\w+)\[", " ".join(parts)):
                if inner in self.aliases:
                    self.pointers[self.aliases[inner][0]].limits = name

    def _in_all_steps(self, node: Node, by: Node) -> Sum | None:
        """Return how far a loop has moved a pointer by its variable: N * k where each step of ``k += TILE`` moves it by
        ``TILE * N``; None where it does not follow from that.
        """
        loop = _loop_around(node)
        update = (
            loop.child_by_field_name("update") if loop is not None and not _in_loop(loop.parent) else None
        )
        if loop is None or update is None or loop.type != "for_statement":
            return None
        counter, grown = update.named_children[0], update.named_children[-1]
        by_one = update.type == "update_expression" and "++" in text_of(update)
        step = {(): 1} if by_one else self._sum(grown)
        if step is None or len(step) != 1 or not (by_one or text_of(update.children[1]) == "+="):
            return None
        ((own, each),) = step.items()
        self.steps[text_of(counter)] = own[0] if len(own) == 1 else ""
        found: dict[Product, int] = {}
        for product, n in (self._sum(by) or {}).items():
            rest = list(product)
            if n % each or any(part not in rest for part in own):
                return None
            for part in own:
                rest.remove(part)
            found[tuple(sorted((*rest, text_of(counter))))] = n // each
        return found or None

    def _alias(self, node: Node | None) -> Alias | None:
        """Return what a pointer is made of."""
        if node is None or (not node.named_children and node.type != "identifier"):
            return None
        last = node.named_children[-1] if node.named_children else node
        match node.type:
            case "parenthesized_expression" | "argument_list":
                return self._alias(last)
            case "identifier":
                return self.aliases.get(text_of(node))
            case "cast_expression" | "call_expression":
                kind, inner = cast_of(node)
                of = self._alias(inner)
                return of and (of[0], of[1], self._lanes(of, kind))
            case "pointer_expression" if text_of(node.children[0]) == "&":
                while last.type == "parenthesized_expression":
                    last = last.named_children[0]
                if last.type != "subscript_expression":
                    return None
                return self._moved(self._alias(last.named_children[0]), last.named_children[-1])
            case "binary_expression" if (mark := text_of(node.children[1])) in ("+", "-"):
                first = self._moved(self._alias(node.children[0]), last, -1 if mark == "-" else 1)
                return first or self._moved(self._alias(last), node.children[0])
        return None

    def _lanes(self, of: Alias, kind: str) -> int:
        """Return how many elements a pointer that is cast takes at once: 8 halves of ``uint4``."""
        own, whole = bytes_of(self._names[of[0]].type), bytes_of(CType("", base_of(kind.split())))
        return whole // own if whole >= own > 0 else of[2] * vector_of(kind)[1]

    def _moved(self, alias: Alias | None, by: Node, sign: int = 1) -> Alias | None:
        """Return an alias moved by what an expression is, in its elements."""
        terms = self._sum(by) if alias is not None else None
        if alias is None or terms is None:
            return None
        name, offset, lanes = alias
        return name, plus([offset, {one: sign * lanes * n for one, n in terms.items()}]) or {}, lanes

    def _occurrence(self, node: Node, alias: Alias) -> None:
        use, around = self.pointers[alias[0]], enclosing(node)
        while around is not None and (around.type in AROUND or cast_of(around)[0]):
            node, around = around, enclosing(around)
        if around is None:
            return
        alias = self._alias(node) or alias
        if around.type == "subscript_expression" and around.named_children[0] == node:
            index, text = around.named_children[-1], text_of(around.named_children[-1])[1:-1]
            for extent in self._names[alias[0]].rows:
                if (inner := around.parent) is not None and inner.type == around.type:
                    around = inner
                    text = f"({text}) * ({extent}) + ({text_of(inner.named_children[-1])[1:-1]})"
                    index = expression(text) or index
            moved = self._moved(alias, index)
            if (address := address_of(around)) is not None:
                self._occurrence(address, moved or alias)
                return
            use.indices += [moved[1]] if moved is not None else []
            use.lanes = max(use.lanes, alias[2])
            self._access(around, use)
            return
        if around.type == "field_expression":  # p->x is of p[0]
            use.indices.append(alias[1])
            self._access(around, use)
            return
        called = receiver_of(node)
        loads = called.startswith("__ld") or called in self._loads or called.endswith("load_matrix_sync")
        stores = called.startswith("__st") or called.endswith("store_matrix_sync")
        stored = around.type == "pointer_expression" and text_of(around)[0] == "*"
        if loads or stores or stored or (called and alias[1]):
            use.indices.append(alias[1])
        if loads:
            use.read = True
        elif stores:
            self._written(node, use)
        elif stored:
            use.lanes = max(use.lanes, alias[2])
            self._access(around, use)
        elif called:
            if called.startswith("atomic"):
                use.added = use.written = use.read = True
            else:
                use.passed = True

    def _access(self, node: Node, use: Use) -> None:
        around = node.parent
        parts = ("field_expression", "parenthesized_expression", "subscript_expression")
        while around is not None and around.type in parts and around.named_children[0] == node:
            node, around = around, around.parent
        call = around.parent if around is not None and around.type == "argument_list" else None
        if call is not None and call.parent is not None and call.parent.type == "assignment_expression":
            node, around = call, call.parent  # STORE(x[i]) = y
        operator = around.child_by_field_name("operator") if around is not None else None
        mark = text_of(operator) if operator is not None else ""
        called = receiver_of(node) if mark == "&" else ""
        assigned = (
            around is not None and around.type == "assignment_expression" and around.children[0] == node
        )
        if assigned and mark == "=":
            self._written(node, use)
        elif assigned or called.startswith("atomic") or mark in ("++", "--"):
            use.added = use.written = use.read = True
        elif called and not called.startswith("__ld"):
            use.passed = True
        else:
            use.read = True

    def _written(self, node: Node, use: Use) -> None:
        use.written = True
        use.whole |= not any(node.start_byte in one for one in self._left_out)


def _loop_around(node: Node | None) -> Node | None:
    while node is not None and node.type not in ("for_statement", "while_statement", "do_statement"):
        node = node.parent
    return node


def _in_loop(node: Node | None) -> bool:
    return _loop_around(node) is not None
