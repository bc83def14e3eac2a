"""Search spaces of other tools, in the T1 format. Conditions and values are Python, which is parsed and never run."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.core.errors import ExpressionError, RecordingError
from tuner.core.model import Value
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.parsing import parse_tree
from tuner.formats.foreign_json import read_json
from tuner.formats.foreign_recording import MAX_PARAMETERS, MAX_VALUES, VARIANT, damaged, storable_value
from tuner.kernel.variant_spec import ParameterSpec, Typed, VariantSpec, typed

MAX_LENGTH = 200_000
"""Characters: more than any list of :data:`MAX_VALUES` numbers needs."""
MOST = {"TuningParameters": MAX_PARAMETERS, "Conditions": 1000}
"""Of a file: each takes up to a millisecond to read."""
MOST_OF_ALL = 100_000
"""Values of all parameters together, each of which may be computed."""


def is_t1(data: object) -> bool:
    """Return whether this is the content of a T1 file."""
    return isinstance(data, dict) and "ConfigurationSpace" in data


def read_t1(path: Path) -> VariantSpec:
    """Return the search space of a T1 file, as a variant without launches.

    Raises:
        RecordingError: it is not a T1 file.
        ExpressionError: a condition or a list of values is beyond what expressions may contain.
    """
    data = read_json(path)
    if not is_t1(data):
        raise RecordingError(f"{path}: not a T1 file", "name a file with a ConfigurationSpace")
    try:
        described = data["ConfigurationSpace"]
        for name, most in MOST.items():
            if len(described.get(name) or ()) > most:
                raise RecordingError(f"{path}: {len(described[name])} {name}", f"at most {most} are allowed")
        parameters: dict[str, ParameterSpec] = {}
        for one in described["TuningParameters"]:
            if (name := str(one["Name"])) in parameters:
                raise RecordingError(f"{path}: two parameters are named {name!r}", "leave one out")
            parameters[name] = _parameter(path, one)
            if sum(len(spec.values) for spec in parameters.values()) > MOST_OF_ALL:
                raise RecordingError(f"{path}: more than {MOST_OF_ALL} values", "leave some out")
        conditions = tuple(_condition(path, c, parameters) for c in described.get("Conditions") or ())
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error, "compare it with the T1 schema") from None
    if not parameters:
        raise RecordingError(f"{path}: it has no TuningParameters", "add one")
    return VariantSpec(VARIANT, "", None, parameters, conditions, (), ())


def _parameter(path: Path, described: dict[str, Any]) -> ParameterSpec:
    name = str(described["Name"])
    try:
        values = parse_values(described["Values"])
    except ExpressionError as error:
        raise ExpressionError(f"{path}: Values of {name}: {error.problem}", error.remedy) from None
    given = described.get("Default")
    index = values.index(given) if given in values else len(values) // 2
    return ParameterSpec(name, values, values[index])


def _condition(
    path: Path, described: dict[str, Any], parameters: dict[str, ParameterSpec]
) -> tuple[str, Expression]:
    text = str(described["Expression"])
    try:
        condition = parse(text, str(path))
    except ExpressionError as error:
        raise ExpressionError(f"{path}: {error.problem}", error.remedy) from None
    if unknown := sorted(condition.names - parameters.keys()):
        raise RecordingError(
            f"{path}: the condition {text!r} names {', '.join(unknown)}", "make it a parameter, or a number"
        )
    return text, condition


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
    values: dict[Typed, Value] = {}
    for value in listed:
        if not storable_value(value):
            raise ExpressionError(
                f"{str(value)[:40]!r} cannot be a value", "use numbers, text, True or False"
            )
        values.setdefault(typed(value), value)
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
