"""Python's text as a syntax tree, from any thread."""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

_TURN = threading.RLock()
"""Whose turn it is. Up to 3.11.7, Python counts the depth of all trees under way in one number and raises a SystemError
where two threads build trees at once (CPython's issue 106905); a collection of garbage may parse text in the middle."""


@overload
def parsed(text: str | bytes, mode: Literal["exec"] = "exec") -> ast.Module: ...


@overload
def parsed(text: str | bytes, mode: Literal["eval"]) -> ast.Expression: ...


def parsed(text: str | bytes, mode: str = "exec") -> ast.Module | ast.Expression:
    """Return the tree of a program, or of one expression.

    Args:
        text: the source; bytes may say their encoding.
        mode: ``"exec"`` for a program, ``"eval"`` for an expression.

    Raises:
        SyntaxError: it is none.
        ValueError: it has a character NUL.
        RecursionError, MemoryError: it is nested too deeply for Python's parser.
    """
    with _TURN:
        tree = ast.parse(text, mode=mode)
    assert isinstance(tree, ast.Module | ast.Expression)
    return tree
