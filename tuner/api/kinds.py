"""What kinds of values arguments are: a table, a list, text, a path."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from tuner.core.errors import UsageError, shown
from tuner.core.reading import may_be_path

EXAMPLES = {
    "params": "{'BLOCK': [64, 128]}", "shapes": "{'x': ('n', 'm')}", "default": "{'BLOCK': 128}",
    "constants": "{'weights': w}", "dtypes": "{'input': 'float16'}", "options": "{'layout': 'nt'}",
    "args": "[x, y, n]", "sizes": "{'n': 4096}", "repeat": "{'step': 'log2(n)'}",
    "entry": "'stencil<BLOCK>'", "name": "'stencil'", "compile_options": "['--use_fast_math']",
    "status": "'ok'", "sort": "'time'", "sql": "'SELECT ...'", "gpu": "'h100'", "dtype": "'float16'",
    "variant": "'tiled'", "mode": "'cold'", "regime": "'rested'", "run": "'3f2a'", "since": "'2d'",
}  # fmt: skip
"""Arguments that are tables by name, or text, and how they look."""
TEXTS = (
    *("entry", "name", "compile_options", "status", "sort", "sql"),
    *("gpu", "dtype", "variant", "mode", "regime", "run", "since"),
)
"""Those of them that are text."""
LISTS = ("args", "sizes", "compile_options")
"""Those of them that may be lists instead."""


def require_kinds(given: Mapping[str, Any], lists: Collection[str] = LISTS) -> None:
    """Refuse arguments that are tables, lists or text, and are given as something else.

    Args:
        given: arguments by name.
        lists: those that may be lists.

    Raises:
        UsageError: it shows what one looks like.
    """
    for name, example in EXAMPLES.items():
        value, text = given.get(name), name in TEXTS
        fits = isinstance(value, str if text else Mapping) and all(isinstance(key, str) for key in value)
        if name in lists and isinstance(value, Sequence) and not isinstance(value, str):
            fits = name == "args" or all(isinstance(one, str) for one in value)
        if value is not None and not fits:
            raise UsageError(f"{name} is {shown(value)}", f"for example {name}={example}")
    for name, size in sizes.items() if isinstance(sizes := given.get("sizes"), Mapping) else ():
        if not isinstance(size, Integral) or size < 1:
            raise UsageError(f"sizes has {name}={size!r}", "give a whole number above 0")


def path_of(what: str, given: object, example: str) -> Path:
    """Return a path that was passed.

    Raises:
        UsageError: it is none; the text has the example.
    """
    if not may_be_path(given):
        raise UsageError(f"{what} is {shown(given)}", f"for example {example}")
    return Path(given)
