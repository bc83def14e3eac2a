"""The search space of a variant in the T1 format, its conditions as the plain Python that others evaluate."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuner.errors import DatabaseError, ExpressionError
from tuner.expressions.arithmetic import Expression, parse
from tuner.kernel.plan import make_plan, tensors_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec, VariantSpec
from tuner.model import Configuration, Gpu, Problem, Value

TYPES = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "half"}
"""T1's words; it has none for bfloat16, whose size at least is right then."""
ACCESS = {"input": "ReadOnly", "output": "WriteOnly", "inout": "ReadWrite"}
PYTHON = {
    "ceil_div": "-(-({0}) // ({1}))",
    "round_up": "(-(-({0}) // ({1})) * ({1}))",
    "is_pow2": "(({0}) > 0 and (({0}) & (({0}) - 1)) == 0)",
}
"""Our functions of parameters in the words of any Python; those of constants are settled."""
EVERYWHERE = ("min", "max", "abs")


def t1_of(kernel: KernelSpec, variant: VariantSpec, problem: Problem, gpu: Gpu) -> dict[str, Any]:
    """Return the content of a T1 file, with sizes, options and the GPU's limits settled.

    Conditions on what the compiler reports have no place in the format, and are left out.

    Raises:
        DatabaseError: a condition that Python alone cannot say.
    """
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


def python_of(expression: Expression, constants: Mapping[str, Any]) -> str:
    """Return an expression as plain Python over the parameters alone.

    Raises:
        DatabaseError: it uses a function that Python does not have.
    """
    return ast.unparse(_settled(ast.parse(expression.text, mode="eval").body, constants))


def _settled(node: ast.AST, constants: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
        try:
            found = parse(ast.unparse(node))
            if found.names <= constants.keys():
                value = found.evaluate(constants)
                return ast.parse(repr(value.item() if hasattr(value, "item") else value), mode="eval").body
        except ExpressionError:
            pass  # a list of choices, or a name: a part of an expression, and none by itself
    if isinstance(node, ast.IfExp) and isinstance(test := _settled(node.test, constants), ast.Constant):
        return _settled(node.body if test.value else node.orelse, constants)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [_settled(argument, constants) for argument in node.args]
        if node.func.id in PYTHON:
            text = PYTHON[node.func.id].format(*map(ast.unparse, arguments))
            return ast.parse(text, mode="eval").body
        if node.func.id not in EVERYWHERE:
            raise DatabaseError(
                f"{ast.unparse(node)!r} is beyond the T1 format", "write the constraint without this function"
            )
        return ast.Call(node.func, arguments, [])
    for name, field in ast.iter_fields(node):
        if isinstance(field, list):
            setattr(node, name, [_settled(part, constants) for part in field])
        elif isinstance(field, ast.AST):
            setattr(node, name, _settled(field, constants))
    return node


def _type_of(values: tuple[Value, ...]) -> str:
    for kind, name in ((bool, "bool"), (str, "string"), (float, "float")):
        if any(isinstance(value, kind) for value in values):
            return name
    return "int"


def _shared(size: Expression, constants: Mapping[str, Any]) -> dict[str, int]:
    """Return the shared memory where it is a number, which is all that the format allows."""
    text = python_of(size, constants)
    return {"SharedMemory": int(text)} if text.isdecimal() else {}


def _axes(sizes: tuple[Expression, ...], constants: Mapping[str, Any]) -> dict[str, str]:
    texts = [python_of(size, constants) for size in sizes] + ["1", "1"]
    return dict(zip("XYZ", texts, strict=False))


def _arguments(
    kernel: KernelSpec, variant: VariantSpec, launch: LaunchSpec, problem: Problem, gpu: Gpu
) -> list[dict[str, Any]]:
    """Describe the first launch's arguments, as they are for the default configuration."""
    plan = make_plan(kernel, problem, gpu, Configuration.of(variant.name, variant.defaults))
    buffers = {buffer.name: buffer for buffer in (*tensors_of(kernel, problem, gpu), *plan.scratch)}
    found: list[dict[str, Any]] = []
    passed = [argument for argument in launch.arguments if argument.cluster_order is None]
    for place, (kind, name, value) in enumerate(plan.launches[0].arguments):
        if kind == "scalar":
            described: dict[str, Any] = {
                "Name": passed[place].name or f"argument_{place}",
                "Type": TYPES.get(name, name),
            }
            described |= {"MemoryType": "Scalar", "FillType": "Constant", "FillValue": value}
        elif kind == "places":
            raise DatabaseError(
                "the format has no word for a table of places", "export a variant whose default takes none"
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
        found.append(described)
    return found
