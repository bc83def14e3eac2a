"""The members of classes that a launch can pass by value: numbers that lie where C has them, one behind the other.

And what a ``void*`` points to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.kernel.source.tree import code, extents_of, function_of, head_of, name_node, text_of, walk
from tuner.kernel.source.types import PASSED_AS, CType, Parameter, base_of, vector_of
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.expressions import round_up

if TYPE_CHECKING:
    from tree_sitter import Node

_LAID_OUT_OTHERWISE = ("base_class_clause", "bitfield_clause", "virtual", "alignas_qualifier")


@dataclass(frozen=True)
class Enumeration:
    """An enumeration with its names."""

    name: str
    """With its namespaces; empty for a type of C's."""
    values: Mapping[str, str]
    """The number of each name, as text."""

    @property
    def cast(self) -> str:
        """What a number needs before it."""
        return f"({self.name})" if self.name else ""

    def value(self, written: str) -> str:
        """Return the number that one of the names stands for; other text as it is."""
        return self.values.get(written.rpartition("::")[2], written)


def enumerated(node: Node) -> dict[str, str]:
    """Return the names of an enumeration with their numbers: each is one more than that before where none is given."""
    values, before = dict[str, str](), ""
    for one in walk(node, "enumerator"):
        given = one.child_by_field_name("value")
        after = str(int(before) + 1) if before.isdecimal() else f"{before} + 1" if before else "0"
        before = code(given) if given is not None else after
        values[text_of(one.named_children[0])] = before
    return values


def enumeration_of(kind: str, known: Mapping[str, Enumeration]) -> Enumeration:
    """Return the enumeration that a template's number is of, of those that a source has: without names for others."""
    base = base_of(kind.split())
    found = known.get(base.rpartition("::")[2], Enumeration("", {}))
    name = found.name if found.name and "::" not in base else base
    return replace(found, name="" if base in (*PASSED_AS, "auto") else name)


def is_number(kind: str, text: str) -> bool:
    """Return whether a template's parameter is one number: no type, no pack, and no function by the source's text."""
    name = re.escape(kind.split()[-1])
    function = rf"\(\s*\*\s*{name}\s*\)\s*\(|\busing\s+{name}\s*=[^;]*\(\s*\*"
    return re.search(r"\.|typename|class|template", kind) is None and re.search(function, text) is None


def words_of(members: Sequence[Parameter]) -> tuple[str, int]:
    """Return type and number of the words that members of several types lie in, as C has them."""
    items = [ITEMSIZE[PASSED_AS[one.type.base]] for one in members]
    end = 0
    for item in items:
        end = round_up(end, item) + item
    end = round_up(end, max(items))
    return ("unsigned int", end // 4) if end % 4 == 0 else ("unsigned char", end)


def members_of(
    node: Node, type_of: Callable[[Sequence[str]], CType], numbers: Mapping[str, str]
) -> tuple[Parameter, ...] | None:
    """Return a class's numbers, those of an array or a vector one by one, if they lie as C has them without it.

    None of a class without data, as functors are. Not known where a class has something else, or a vector with a gap
    before it.

    Args:
        node: declares the class.
        type_of: tells what the words of a type stand for.
        numbers: texts of those that have names, which extents may be.
    """
    body = node.child_by_field_name("body")
    if body is None or any(walk(node, *_LAID_OUT_OTHERWISE)):
        return None
    members, at, least, most = list[Parameter](), 0, 1, 1
    for member in body.named_children:
        head, declarators = head_of(member), member.children_by_field_name("declarator")
        if member.type != "field_declaration" or function_of(member) is not None or "static" in head:
            continue
        kind = type_of(head)
        item = ITEMSIZE.get(PASSED_AS.get(kind.base, ""), 0)
        aligned = item * (1 if kind.lanes == 3 else kind.lanes)
        if not item or kind.pointers or not declarators:
            return None
        at, least, most = round_up(at, item), max(least, item), max(most, aligned)
        for one in declarators:
            name, extents = name_node(one), [numbers.get(of := text_of(size), of) for size in extents_of(one)]
            plain = one.type in ("field_identifier", "array_declarator") and all(map(str.isdecimal, extents))
            if name is None or not plain or at % aligned:
                return None
            count = math.prod(map(int, extents)) * kind.lanes
            names = [f"{text_of(name)}_{number}" for number in range(count)] if count > 1 else [text_of(name)]
            members += [Parameter(one, replace(kind, text=kind.base, lanes=1)) for one in names]
            at += count * item
    return tuple(members) if round_up(at, least) % most == 0 else None


def passed_type(one: Parameter, body: Node | None) -> CType:
    """Return a parameter's type: of ``void*`` what the code casts it to first."""
    if (one.type.base, one.type.pointers) != ("void", 1):
        return one.type
    kind = r"(?:const )?(\w[\w ]*?)(?: const)? ?\* ?"
    found = re.search(rf"(?:\({kind}\) ?|<{kind}> ?\( ?){one.name}\b", code(body).replace("< ", "<"))
    return replace(one.type, base=vector_of(base_of((found[1] or found[2]).split()))[0] if found else "void")
