"""The T1 format for search spaces: reading those of other tools, and writing a variant's.

Conditions and values are plain Python, which other tools evaluate; those of a file are parsed, and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core.errors import DatabaseError, ExpressionError, RecordingError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.expressions.arithmetic import WIDE, Expression, parse
from tuner.expressions.parsing import parse_tree
from tuner.formats.foreign_json import read_json
from tuner.formats.foreign_recording import MAX_PARAMETERS, MAX_VALUES, damaged, storable_value
from tuner.kernel.plan import make_plan, tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, ParameterSpec, VariantSpec
from tuner.runtime import expressions as trees

MAX_LENGTH = 200_000
"""Characters: more than any list of :data:`MAX_VALUES` numbers needs."""
MOST = {"TuningParameters": MAX_PARAMETERS, "Conditions": 1000}
"""Of a file: each takes up to a millisecond to read."""
MOST_OF_ALL = 100_000
"""Values of all parameters together, each of which may be computed."""
TYPES = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "half"}
"""Types in T1, by dtype; it has none for bfloat16, which gets one of its size."""
ACCESS = {"input": "ReadOnly", "output": "WriteOnly", "inout": "ReadWrite", "destroyed": "ReadWrite"}
PYTHON = {
    "ceil_div": "-(-({0}) // ({1}))",
    "round_up": "(-(-({0}) // ({1})) * ({1}))",
    "is_pow2": "(({0}) > 0 and (({0}) & (({0}) - 1)) == 0)",
    "neg": "(-({0}))",
    "not": "(not ({0}))",
    "if": "(({1}) if ({0}) else ({2}))",
}
"""Operators and functions of expressions as plain Python."""
BUILT_IN = ("min", "max", "abs")
"""Functions of expressions that Python has, too."""


@dataclass(frozen=True)
class T1Space:
    """Parameters and conditions of a T1 file."""

    kernel: str
    parameters: dict[str, ParameterSpec]
    conditions: tuple[tuple[str, Expression], ...]


def is_t1(data: object) -> bool:
    """Return whether this is the content of a T1 file."""
    return isinstance(data, dict) and "ConfigurationSpace" in data


def read_t1(path: Path) -> T1Space:
    """Return the search space of a T1 file.

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
            parameters[str(one["Name"])] = _parameter(path, one)
            if sum(len(spec.values) for spec in parameters.values()) > MOST_OF_ALL:
                raise RecordingError(f"{path}: more than {MOST_OF_ALL} values", "leave some out")
        conditions = tuple(_condition(path, c, parameters) for c in described.get("Conditions") or ())
        general, kernel = data.get("General") or {}, data.get("KernelSpecification") or {}
        name = general.get("BenchmarkName") or kernel.get("KernelName") or path.name.removesuffix(".T1.json")
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error, "compare it with the T1 schema") from None
    if not parameters:
        raise RecordingError(f"{path}: it has no TuningParameters", "add one")
    return T1Space(str(name), parameters, conditions)


def _parameter(path: Path, described: dict[str, Any]) -> ParameterSpec:
    name = str(described["Name"])
    try:
        values = parse_values(described["Values"])
    except ExpressionError as error:
        raise ExpressionError(f"{path}: Values of {name}: {error.problem}", error.remedy) from None
    if "Default" not in described or described["Default"] not in values:
        return ParameterSpec(name, values, values[len(values) // 2])
    return ParameterSpec(name, values, values[values.index(described["Default"])])


def _condition(
    path: Path, described: dict[str, Any], parameters: dict[str, ParameterSpec]
) -> tuple[str, Expression]:
    text = str(described["Expression"])
    try:
        condition = parse(text)
    except ExpressionError as error:
        raise ExpressionError(f"{path}: {error.problem}", error.remedy) from None
    if unknown := sorted(condition.names - parameters.keys()):
        raise RecordingError(
            f"{path}: the condition {text!r} names {', '.join(unknown)}", "make it a parameter, or a number"
        )
    return text, condition


def t1_of(kernel: KernelSpec, variant: VariantSpec, problem: Problem, gpu: Gpu) -> dict[str, Any]:
    """Return the content of a T1 file; sizes, options and the GPU's limits are written as values.

    The format has no conditions on what the compiler reports; they are left out.

    Raises:
        DatabaseError: a condition that plain Python cannot express, or an argument that the format does not have.
    """
    if any(launch.repeat for launch in variant.launches):
        raise DatabaseError("the format has no word for launches that repeat", "export another variant")
    constants = {n: v for n, v in kernel.environment(problem, gpu).items() if n not in variant.parameters}
    launch = kernel.launches(problem, gpu, Configuration.of(variant.name, variant.defaults))[0]
    return {
        "General": {"FormatVersion": 1, "TimeUnit": "Milliseconds", "OutputFormat": "JSON"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {
                    "Name": parameter.name,
                    "Type": _type_of(parameter.values),
                    "Values": str(list(parameter.values)),
                    "Default": parameter.default,
                }
                for parameter in variant.parameters.values()
            ],
            "Conditions": [
                {"Expression": text, "Parameters": sorted(condition.names & variant.parameters.keys())}
                for _, condition in variant.search_conditions
                if (text := python_of(condition, constants)) != "True"
            ],
        },
        "KernelSpecification": {
            "Language": "CUDA",
            "BenchmarkName": kernel.name,
            "KernelName": launch.entry,
            "KernelFile": launch.template.name,
            "CompilerOptions": list(kernel.compile_options),
            "Device": {"Name": gpu.name},
            "ProblemSize": list(problem.sizes.values()),
            "GlobalSizeType": "CUDA",
            "GlobalSize": _axes(launch.grid, constants),
            "LocalSize": _axes(launch.block, constants),
            **_shared(launch.shared_bytes, constants),
            "Arguments": _arguments(kernel, variant, launch, problem, gpu),
        },
    }


def python_of(expression: trees.Expression, constants: Mapping[str, Any]) -> str:
    """Return an expression as plain Python over the parameters alone.

    Raises:
        DatabaseError: it uses a function that Python does not have.
    """
    return ast.unparse(ast.parse(_python(expression.tree, constants), mode="eval"))


def _python(tree: trees.Tree, constants: Mapping[str, Any]) -> str:
    """Return a tree as Python; what needs no parameter as its value, if it has one."""
    if trees.Expression(tree).names <= constants.keys():
        with suppress(ArithmeticError):
            return repr(WIDE.evaluator(tree)(constants))
    if not isinstance(tree, tuple):
        return str(tree)
    name, operands = str(tree[0]), [_python(operand, constants) for operand in tree[1:]]
    if name == "if" and operands[0] in ("True", "False"):
        return operands[1] if operands[0] == "True" else operands[2]
    if name in PYTHON:
        return PYTHON[name].format(*operands)
    if name in BUILT_IN:
        return f"{name}({', '.join(operands)})"
    if name not in (*trees.ARITHMETIC, *trees.COMPARISONS, "and", "or"):
        raise DatabaseError(
            f"{name}({', '.join(operands)}) is beyond the T1 format",
            "write the constraint without this function",
        )
    return f"({f' {name} '.join(operands)})"


def _type_of(values: tuple[Value, ...]) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), (float, "float")):
        if any(isinstance(value, kind) for value in values):
            return name
    return "int"


def _shared(size: trees.Expression, constants: Mapping[str, Any]) -> dict[str, int]:
    """Return the shared memory if it is a constant, which is all that the format allows."""
    text = python_of(size, constants)
    return {"SharedMemory": int(text)} if text.isdecimal() else {}


def _axes(sizes: tuple[trees.Expression, ...], constants: Mapping[str, Any]) -> dict[str, str]:
    texts = [python_of(size, constants) for size in sizes] + ["1", "1"]
    return dict(zip("XYZ", texts, strict=False))


def _arguments(
    kernel: KernelSpec, variant: VariantSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu
) -> list[dict[str, Any]]:
    """Describe the first launch's arguments, as they are for the default configuration."""
    plan = make_plan(kernel, problem, gpu, Configuration.of(variant.name, variant.defaults))
    buffers = {buffer.name: buffer for buffer in (*tensors_of(kernel, problem, gpu), *plan.scratch)}
    arguments: list[dict[str, Any]] = []
    if launch.constants or any(argument.fields for argument in launch.arguments):
        raise DatabaseError(
            "the format has no word for structs, and for __constant__ variables that a launch fills",
            "export another variant",
        )
    decided = {**problem.dtypes, **problem.options}
    passed = [
        argument
        for argument in launch.arguments
        if argument.cluster_order is None and (argument.when is None or argument.when.evaluate(decided))
    ]
    for index, (kind, name, value) in enumerate(plan.launches[0].arguments):
        if kind == "scalar":
            described: dict[str, Any] = {
                "Name": passed[index].name or f"argument_{index}",
                "Type": TYPES.get(name, name),
            }
            described |= {"MemoryType": "Scalar", "FillType": "Constant", "FillValue": value}
        elif kind == "cluster_order":
            raise DatabaseError(
                "the format has no word for a table of cluster numbers",
                "export a variant whose default takes none",
            )
        else:
            buffer = buffers[name]
            described = {
                "Name": name,
                "Type": TYPES.get(buffer.dtype, buffer.dtype),
                "MemoryType": "Vector",
                "Size": buffer.count,
                "AccessType": ACCESS.get(buffer.role, "ReadWrite"),
                "FillType": "Random",
                "FillValue": 1.0,
            }
        arguments.append(described)
    return arguments


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
