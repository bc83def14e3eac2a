"""CUDA source text as syntax trees, by tree-sitter; a text with mistakes has a tree, too."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node

NAMES = ("identifier", "type_identifier", "namespace_identifier", "field_identifier")
AROUND = tuple(f"{kind}_expression" for kind in ("parenthesized", "cast", "binary", "update", "conditional"))
"""What may stand between a pointer and the call, or the ``*``, that uses it."""
_CASTS = ("reinterpret_cast", "const_cast", "static_cast")
_LITERALS = ("string_literal", "raw_string_literal", "char_literal")


@functools.cache
def _language() -> Language:
    import tree_sitter_cuda  # here, not above: a launch needs no source's tree
    from tree_sitter import Language

    return Language(tree_sitter_cuda.language())


def tree_of(text: str) -> Node:
    """Return the tree of a source that the preprocessor is done with."""
    from tree_sitter import Parser

    return Parser(_language()).parse(text.encode()).root_node


@functools.lru_cache(maxsize=4096)
def expression(text: str) -> Node | None:
    """Return the tree of an expression; None for what is none."""
    for node in walk(tree_of(f"int _ = ({text});"), "parenthesized_expression"):
        return None if node.has_error or node.named_child_count != 1 else node.named_children[0]
    return None


def walk(node: Node | None, *kinds: str) -> Iterator[Node]:
    """Yield a node and all in it of some kinds, in the order of the text; of all kinds without any."""
    pending = [node] if node is not None else []
    while pending:
        one = pending.pop()
        if not kinds or one.type in kinds:
            yield one
        pending += reversed(one.children)


def text_of(node: Node) -> str:
    """Return a node's text as it stands."""
    return (node.text or b"").decode()


def names_in(node: Node | None) -> list[str]:
    """Return the names that a node has, in order."""
    return [text_of(one) for one in walk(node, *NAMES)]


def entry_name(entry: str) -> str:
    """Return the function that an entry names, with its namespaces: ``a::f`` of ``a::f<{{ rows }}>``."""
    return re.split(r"[<({]", entry)[0].strip()


def words(node: Node) -> list[str]:
    """Return a node's words, marks and literals."""
    found, pending = [], [node]
    while pending:
        one = pending.pop()
        if one.type in _LITERALS or not one.child_count:
            found += [text] if (text := text_of(one)) else []
        else:
            pending += reversed(one.children)
    return found


def code(node: Node | Iterable[str] | None) -> str:
    """Return a node, or words, as text with the same spaces wherever they stand."""
    parts = () if node is None else node if isinstance(node, Iterable) else words(node)
    text = " ".join(parts)
    return re.sub(r"\s*(::|\.|->)\s*|\s+([,)\]])|([(\[])\s+", r"\1\2\3", text).replace(" (", "(").strip()


def name_node(declarator: Node | None) -> Node | None:
    """Return what names a declarator, within its pointers, arrays and parameters; None where nothing does."""
    while declarator is not None and declarator.type not in (*NAMES, "qualified_identifier", "operator_name"):
        inner = declarator.child_by_field_name("declarator") or declarator.child_by_field_name("name")
        children = declarator.named_children
        plain = declarator.type in (
            "reference_declarator",
            "parenthesized_declarator",
            "parenthesized_expression",
        )
        declarator = inner if inner is not None else children[-1] if plain and children else None
    return declarator


def function_of(declaration: Node) -> Node | None:
    """Return the declarator with the parameters, of a function or its declaration; None for something else."""
    declarator = declaration.child_by_field_name("declarator")
    while declarator is not None and declarator.type in ("pointer_declarator", "reference_declarator"):
        children = declarator.named_children
        declarator = declarator.child_by_field_name("declarator") or (children[-1] if children else None)
    return declarator if declarator is not None and declarator.type == "function_declarator" else None


def head_of(node: Node) -> list[str]:
    """Return the words of a declaration before what it declares: its type, and marks such as ``__device__``."""
    head: list[str] = []
    for number, one in enumerate(node.children):
        if node.field_name_for_child(number) in ("declarator", "body", "default_value") or one.type == "=":
            break
        if one.type != "attribute_declaration":
            head += head_of(one) if one.child_by_field_name("body") is not None else words(one)
    return head


def stars(declarator: Node | None) -> int:
    """Return how many pointers a declarator makes."""
    kinds = ("pointer_declarator", "abstract_pointer_declarator", "pointer_type_declarator")
    return sum(1 for _ in walk(declarator, *kinds))


def extents_of(declarator: Node) -> list[Node]:
    """Return the extents of an array, the first dimension first."""
    sizes = [one.child_by_field_name("size") for one in walk(declarator, "array_declarator")]
    return [size for size in reversed(sizes) if size is not None]


def pointers_of(declarator: Node | None) -> tuple[int, tuple[str, ...]]:
    """Return how many pointers a parameter is, and the extents of rows that it points to."""
    arrays = sum(1 for _ in walk(declarator, "array_declarator", "abstract_array_declarator"))
    if declarator is None or not arrays:
        return stars(declarator), ()
    to_rows = any(walk(declarator, "parenthesized_declarator"))
    rows = list(map(code, extents_of(declarator)))[1 - arrays - to_rows :] if arrays + to_rows > 1 else []
    return 1 if to_rows else stars(declarator) + 1, tuple(rows)


def variables_of(body: Node | None) -> Iterator[tuple[str, Node]]:
    """Yield the variables of some code with what they begin as, also ``(8, 8)`` of ``dim3 grid(8, 8)``.

    ``grid = dim3(8, 8)`` counts, too.
    """
    for one in walk(body, "init_declarator", "function_declarator", "assignment_expression"):
        if one.type == "assignment_expression":
            if text_of(one.children[-1]).startswith("dim3"):
                yield text_of(one.children[0]), one.children[-1]
            continue
        value = one.child_by_field_name("value" if one.type == "init_declarator" else "parameters")
        name = name_node(one)
        if value is not None and name is not None and not extents_of(one):
            yield text_of(name), value


def with_own_names(body: Node | None) -> Node | None:
    """Return code in which a name has one meaning: the ``i`` of a second loop is ``i_2``, as is one set again."""
    found: dict[str, list[tuple[int, int, Node | None]]] = {}
    for one in walk(body, "declaration"):
        scope = one.parent
        while scope is not None and scope.type not in ("compound_statement", "for_statement"):
            scope = scope.parent
        for declared in filter(None, map(name_node, one.children_by_field_name("declarator"))):
            lives = (scope.start_byte, scope.end_byte, None) if scope is not None else (0, 0, None)
            found[text_of(declared)] = [*dict.fromkeys((*found.get(text_of(declared), ()), lives))]
    for one in body.named_children if body is not None else ():
        again = re.match(r"(\w+)\s*=[^=]", text_of(one)) if one.type == "expression_statement" else None
        if body is not None and again and (body.start_byte, body.end_byte, None) in found.get(again[1], ()):
            found[again[1]].append((one.end_byte, body.end_byte, next(walk(one, "identifier"), None)))
    used: dict[str, list[Node]] = {}
    for one in walk(body, "identifier"):
        used.setdefault(text_of(one), []).append(one)
    edits: dict[int, tuple[int, str]] = {}
    for name, places in found.items():
        longest = sorted(places, key=lambda place: place[0] - place[1])
        for number, (start, end, target) in enumerate(longest[1:], 2):
            for one in used.get(name, ()):
                if start <= one.start_byte < end:
                    edits[one.start_byte] = one.end_byte, f"{name}_{number}"
            if target is not None:
                edits[target.start_byte] = target.end_byte, f"auto {name}_{number}"
    if body is None or not edits:
        return body
    text, start = body.text or b"", body.start_byte
    for at, (end, new) in sorted(edits.items(), reverse=True):
        text = text[: at - start] + new.encode() + text[end - start :]
    return next(walk(tree_of(f"void kernel() {text.decode()}"), "compound_statement"), body)


def cast_of(node: Node) -> tuple[str, Node | None]:
    """Return the type that a cast makes pointers to, and what it casts; no type and None for what is no cast."""
    function = node.child_by_field_name("function")
    called = text_of(function).partition("<")[0].strip() if function is not None else ""
    if called not in _CASTS and node.type != "cast_expression":
        return "", None
    kind = next(walk(node, "type_descriptor"), None)
    last = node.named_children[-1]
    base = [word for word in head_of(kind) if word != "const"] if kind is not None else ()
    return code(base), next(iter(last.named_children), None) if function is not None else last


def enclosing(node: Node) -> Node | None:
    """Return what has a node in it: of what ``reinterpret_cast`` gets, the cast."""
    parent = node.parent
    call = parent.parent if parent is not None and parent.type == "argument_list" else None
    return call if call is not None and cast_of(call)[0] else parent


def address_of(node: Node) -> Node | None:
    """Return ``&`` before a node, also before its parentheses; None for none."""
    parent = node.parent
    while parent is not None and parent.type == "parenthesized_expression":
        parent = parent.parent
    is_address = parent is not None and parent.type == "pointer_expression" and text_of(parent)[0] == "&"
    return parent if is_address else None


def receiver_of(node: Node) -> str:
    """Return the function that gets an expression as an argument; empty for none."""
    while node.parent is not None and node.parent.type in (*AROUND, "pointer_expression"):
        node = node.parent
    call = node.parent.parent if node.parent is not None and node.parent.type == "argument_list" else None
    function = call.child_by_field_name("function") if call is not None else None
    name = text_of(function) if function is not None else ""
    return "" if name.partition("<")[0].strip() in _CASTS else name


def template_parameter(node: Node) -> tuple[str, str, str]:
    """Return kind, name and default of a template's parameter; empty texts for what it lacks."""
    name = name_node(node.child_by_field_name("declarator"))
    written = words(node)
    end = written.index("=") if "=" in written else len(written)
    if name is None:
        name = next((one for one in node.named_children if one.type == "type_identifier"), None)
    kind = " ".join(written[: end - (name is not None)])
    return kind, text_of(name) if name is not None else "", code(written[end + 1 :])
