"""Text as a syntax tree of bounded depth: the one door for every expression, whatever its grammar.

Checking, evaluating and writing a tree take a few Python calls for each level, and Python allows a thousand in all.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeVar

from tuner.core.errors import ExpressionError
from tuner.core.trees import parsed
from tuner.runtime.expressions import MAX_DEPTH

Node = TypeVar("Node", bound=ast.AST)
_NO_LEVEL = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Nodes that are only part of the one above them."""
COMPARE_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
"""Comparisons as they are written in Python, in C++ and in trees."""
BINARY_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
"""Operators of two numbers as they are written in Python and in trees."""


def parse_tree(text: str, what: str = "", remedy: str = "") -> ast.expr:
    """Return the syntax tree of a text, at most :data:`MAX_DEPTH` levels deep; nothing of it is checked otherwise.

    Args:
        text: a Python expression, of one line or several.
        what: the kind of expression, for the error.
        remedy: what to do about a text that is none.

    Raises:
        ExpressionError: it is no expression, or nested too deeply.
    """
    try:
        whole = text.strip()
        body = parsed(f"({whole}\n)" if "\n" in whole else whole, "eval").body
    except (RecursionError, MemoryError):  # of Python's own parser, which stops later than MAX_DEPTH
        raise _too_deep(text) from None
    except (SyntaxError, ValueError) as error:
        kind = f"{what} " if what else ""
        raise ExpressionError(
            f"cannot parse {kind}{shown(text)}: {getattr(error, 'msg', error)}", remedy
        ) from None
    if len(text) <= MAX_DEPTH:  # a level takes a character at least
        return body
    level: list[ast.AST] = [body]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, _NO_LEVEL)
        ]
        if not level:
            return body
    raise _too_deep(text)


def copied(tree: Node) -> Node:
    """Return a tree that can be changed without the first one, in a tenth of the time of :func:`copy.deepcopy`.

    It has no places in a text.
    """
    return type(tree)(*(_copied(getattr(tree, name, None)) for name in tree._fields))


def _copied(part: Any) -> Any:
    if isinstance(part, list):
        return [_copied(one) for one in part]
    return copied(part) if isinstance(part, ast.AST) else part


class _Names(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)


def with_names(tree: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression, which is changed, with others instead of names."""
    return _Names(values).visit(tree)  # type: ignore[no-any-return]


def unparse(tree: ast.AST) -> str:
    """Return a tree as text.

    Raises:
        ExpressionError: it was put together from parts, and is nested too deeply.
    """
    try:
        return ast.unparse(tree)
    except RecursionError:
        raise _too_deep("the expression with its parts") from None


def shown(text: str) -> str:
    """Return a text for a message: quoted, on one line, and cut to 80 characters."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:77]}...")


def _too_deep(text: str) -> ExpressionError:
    return ExpressionError(
        f"{shown(text)} is nested too deeply", f"split or simplify it: at most {MAX_DEPTH} levels"
    )
