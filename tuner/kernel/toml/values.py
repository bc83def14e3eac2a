"""The terms of a kernel's file: names, dtypes, lists of values, expressions; each wrong one is refused in one line."""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.errors import ExpressionError, suggestion
from tuner.expressions.arithmetic import FUNCTION_NAMES, Expression, parse
from tuner.expressions.dtypes import ITEMSIZE
from tuner.kernel.toml.table import Table
from tuner.kernel.variant_spec import DEVICE_LIMITS, RESOURCE_NAMES
from tuner.model import Value

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
RESERVED = (*DEVICE_LIMITS, *RESOURCE_NAMES, "problem")
"""Names that expressions or templates already know; nothing else may have them."""
CPP_KEYWORDS = frozenset(
    (
        "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
        "case", "catch", "char", "char8_t", "char16_t", "char32_t", "class", "compl", "concept",
        "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "contract_assert",
        "co_await", "co_return", "co_yield", "decltype", "default", "delete", "do", "double",
        "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for",
        "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept",
        "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
        "register", "reinterpret_cast", "requires", "restrict", "return", "short", "signed", "sizeof",
        "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
        "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union",
        "unsigned", "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
    )
)  # fmt: skip
INTEGERS = range(-(2**63), 2**63)
"""What a parameter or option may be: NumPy and the database have 64 bits for it."""


@dataclass(frozen=True)
class Names:
    """What a kernel's file has named so far."""

    sizes: Mapping[str, int]
    dtypes: Mapping[str, tuple[str, ...] | str]
    options: Mapping[str, tuple[Value, ...]]
    elements: Mapping[str, tuple[str, ...]]
    """The options that are element expressions, with the names that each may use."""
    arguments: frozenset[str] = frozenset()
    """What a kernel can be given by name: sizes, tensors and scalars; in a variant its scratch and parameters, too."""
    more: frozenset[str] = field(default_factory=frozenset)
    """Further names that expressions may use, such as a variant's parameters."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Names for parts of expressions, and what stands for each: no term in it any more."""

    @property
    def of_problem(self) -> frozenset[str]:
        """What a problem settles by itself, on any GPU."""
        return frozenset({*self.sizes, *self.dtypes, *self.options})

    @property
    def known(self) -> frozenset[str]:
        """What expressions may use."""
        return frozenset({*self.of_problem, *DEVICE_LIMITS, *self.more})


def identifier(table: Table, name: str) -> str:
    """Return a name back if it can be one."""
    if not IDENTIFIER.match(name) or name in FUNCTION_NAMES:
        table.fail(
            f"{name!r} cannot be a name", "use letters, digits and _, at most 64, and no function's name"
        )
    if keyword.iskeyword(name) or name in CPP_KEYWORDS:
        language = "Python" if keyword.iskeyword(name) else "C++"
        table.fail(f"{name!r} cannot be a name", f"it is a keyword of {language}, so rename it")
    return name


def unique(table: Table, *groups: Iterable[str]) -> None:
    """Insist that no name is in two of the groups."""
    seen: set[str] = set()
    for group in groups:
        for name in group:
            if name in seen:
                table.fail(f"{name!r} names two things", "rename one of them")
            seen.add(name)


def value_list(table: Table, key: str) -> tuple[Value, ...]:
    """Read a list of different values of one type."""
    values = table.get(key, list)
    kinds = {type(value) for value in values}
    if not values or len(kinds) != 1 or kinds.pop() not in (int, float, bool, str):
        table.fail(
            f"{key} = {values!r}",
            "give at least one value, all of one type: integers, numbers, booleans or text",
        )
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        table.fail(f"{key} = {values!r}", "give finite numbers")
    if not all(value in INTEGERS for value in values if isinstance(value, int)):
        table.fail(f"{key} = {values!r}", "give integers of at most 64 bits")
    if len(set(values)) != len(values):
        table.fail(f"{key} = {values!r} names a value twice", "leave one of them out")
    return tuple(values)


def dtype(table: Table, dtypes: Mapping[str, Any]) -> str:
    """Read a dtype, or the role that has one."""
    found: str = table.get("dtype", str)
    if found not in dtypes and found not in ITEMSIZE:
        table.fail(f"dtype = {found!r}", suggestion(found, [*dtypes, *ITEMSIZE]))
    return found


def choice(table: Table, key: str, choices: tuple[str, ...], default: str) -> str:
    """Read one of a few words."""
    value: str = table.get(key, str, default)
    if value not in choices:
        table.fail(f"{key} = {value!r}", suggestion(value, choices))
    return value


def expressions(table: Table, key: str, names: Names) -> tuple[Expression, ...]:
    """Read an expression, or a list of them."""
    items = table.get(key, (list, str, int))
    items = items if isinstance(items, list) else [items]
    if not items:
        table.fail(f"{key} is empty", "give at least one expression")
    return tuple(checked(table, key, str(item), names) for item in items)


def expression(table: Table, key: str, names: Names, default: Any = ...) -> Expression:
    """Read an expression; a number is one, too."""
    return checked(table, key, str(table.get(key, (str, int, float), default)), names)


def optional(table: Table, key: str, names: Names) -> Expression | None:
    """Read an expression that may be absent."""
    return expression(table, key, names) if table.has(key) else None


def checked(
    table: Table, key: str, text: str, names: Names, known: frozenset[str] | None = None
) -> Expression:
    """Parse an expression that uses nothing but what is known here: all of the names, unless fewer are given."""
    known = names.known if known is None else known
    found = _parsed(table, key, text, names.terms)
    unknown = found.names - known
    if unknown:
        name = min(unknown)
        said = parse(text).names
        using = [term for term in sorted(said & names.terms.keys()) if name in parse(names.terms[term]).names]
        by = f", by the term {using[0]!r}" if name not in said else ""
        choices = sorted(known | (set() if by else names.terms.keys()))
        table.fail(f"{key} = {text!r} uses unknown name {name!r}{by}", suggestion(name, choices))
    for option, wanted in found.element_queries:
        if option not in names.elements:
            table.fail(
                f"{key} = {text!r}: {option!r} is no element expression", suggestion(option, names.elements)
            )
        if wanted is not None and wanted not in names.elements[option]:
            table.fail(
                f"{key} = {text!r}: {option} has no name {wanted!r}",
                suggestion(wanted, names.elements[option]),
            )
    return found


def read_definitions(top: Table, names: Names) -> Names:
    """Read ``[terms]``, names for parts of expressions, of which each may use those before it.

    What else a term uses is known where it is used: the same term may be of several variants' parameters.

    Args:
        top: the whole file.
        names: what the problem's tables have named.

    Returns:
        The same, and the terms.
    """
    table = top.table("terms")
    unique(table, table.data, names.known | names.arguments | set(RESERVED))
    terms: dict[str, str] = {}
    for name in table.data:
        text = str(table.get(identifier(table, name), (str, int, float)))
        found = _parsed(table, name, text, terms)
        if later := found.names & (table.data.keys() - terms.keys()):
            table.fail(
                f"{name} = {text!r} uses {min(later)!r}", "a term uses those before it; change their order"
            )
        terms[name] = found.text
    return replace(names, terms=terms)


def check_definitions(top: Table, names: Names, parameters: Iterable[str]) -> None:
    """Insist that each term may be used somewhere: it uses nothing that no variant knows.

    Args:
        top: the whole file.
        names: with the terms.
        parameters: of all variants.
    """
    everywhere = {*names.known, *parameters, *RESOURCE_NAMES}
    for name, text in names.terms.items():
        if unknown := parse(text).names - everywhere:
            missing = min(unknown)
            top.table("terms").fail(
                f"{name} uses unknown name {missing!r}", suggestion(missing, sorted(everywhere))
            )


def _parsed(table: Table, key: str, text: str, terms: Mapping[str, str]) -> Expression:
    """Parse an expression, with what a term stands for in the place of each."""
    where = f"{table.where}: {key}"
    try:
        found = parse(text, where)
        if found.names & terms.keys():  # put in as trees, so that they need no parentheses
            tree = _WritingOut(terms).visit(ast.parse(found.text, mode="eval"))
            found = parse(ast.unparse(tree), where)
    except ExpressionError as error:
        table.fail(f"{key}: {error}")
    return found


class _WritingOut(ast.NodeTransformer):
    def __init__(self, terms: Mapping[str, str]) -> None:
        self.terms = terms

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.terms[node.id], mode="eval").body if node.id in self.terms else node


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that cannot be one is none."""
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a zero in it
        return False
