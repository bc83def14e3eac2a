"""The values of a parameter in a T1 file: Python source for a list, which is read and never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuner.core.errors import ExpressionError
from tuner.core.model import Value
from tuner.expressions.arithmetic import parse
from tuner.expressions.parsing import parse_tree
from tuner.formats.foreign_recording import MAX_VALUES, storable_value

MAX_LENGTH = 200_000
"""Characters: more than any list of :data:`MAX_VALUES` numbers needs."""


def parse_values(text: object) -> tuple[Value, ...]:
    """Return the values that a list, a range, a comprehension over one, or a sum of those has.

    Raises:
        ExpressionError: it is something else, or has nothing or too much in it.
    """
    if isinstance(text, list):  # some writers use a list of JSON
        listed = list(text)
    else:
        if len(str(text)) > MAX_LENGTH:
            raise ExpressionError(f"values of {len(str(text))} characters", f"keep them under {MAX_LENGTH}")
        listed = _values(parse_tree(str(text)), {})
    values: dict[tuple[type, Any], Value] = {}
    for value in listed:
        if not storable_value(value):
            raise ExpressionError(
                f"{str(value)[:40]!r} cannot be a value", "use numbers, text, True or False"
            )
        values.setdefault((bool if isinstance(value, bool) else float, value), value)
    if not values:
        raise ExpressionError(f"{str(text)[:60]!r} has no values", "give at least one")
    return tuple(values.values())


def _values(node: ast.expr, names: Mapping[str, Any]) -> list[Any]:
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            values = [_one(part, names) for part in parts]
        case ast.BinOp(op=ast.Add()):
            values = _values(node.left, names) + _values(node.right, names)
        case ast.Call(func=ast.Name(id="range"), keywords=[], args=ends) if 1 <= len(ends) <= 3:
            values = _range([_one(end, names) for end in ends])
        case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted"), keywords=[], args=[inner]):
            values = _values(inner, names)
            if node.func.id == "sorted":  # type: ignore[attr-defined]
                values = _sorted(values)
        case ast.ListComp(
            generators=[ast.comprehension(target=ast.Name(id=name), ifs=tests, is_async=0) as of]
        ):
            values = []
            for value in _values(of.iter, names):
                inside = {**names, name: value}
                if all(_one(test, inside) for test in tests):
                    values.append(_one(node.elt, inside))
        case _:
            raise ExpressionError(
                f"{ast.unparse(node)[:60]!r} is not allowed as a list of values",
                "write a list, range(...), or [... for i in range(...)]",
            )
    if len(values) > MAX_VALUES:
        raise ExpressionError(f"{len(values)} values", f"at most {MAX_VALUES} are allowed")
    return values


def _one(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    return parse(ast.unparse(node)).evaluate(names)


def _range(ends: list[Any]) -> list[Any]:
    if not all(isinstance(end, int) for end in ends) or (len(ends) == 3 and not ends[2]):
        raise ExpressionError(f"range{tuple(ends)} is not a range", "give it whole numbers")
    values = range(*ends)
    if len(values) > MAX_VALUES:
        raise ExpressionError(f"a range of {len(values)} values", f"at most {MAX_VALUES} are allowed")
    return list(values)


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError as error:
        raise ExpressionError(f"values that have no order: {error}") from None
