"""Read ``[reference]``: what the outputs of a kernel must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.core.errors import ExpressionError
from tuner.expressions.array import ArrayExpression
from tuner.kernel.spec import ReferenceSpec
from tuner.kernel.toml.table import (
    Names,
    Table,
    as_table,
    constant,
    dtype,
    exists,
    expression,
    named_function,
    optional,
)
from tuner.kernel.toml.variants import read_launch
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.entries import TensorEntry
from tuner.runtime.launches import OUTPUTS


def read_reference(
    top: Table, names: Names, tensors: Mapping[str, TensorEntry], folder: Path
) -> ReferenceSpec:
    """Return the content of ``[reference]``; ``reference = "default"`` stands for one with ``default = true``.

    Args:
        top: the whole file.
        names: what it may use.
        tensors: of the kernel.
        folder: where relative paths start.
    """
    given = top.get("reference", (dict, str), {})
    if isinstance(given, str):
        top.require(given, ["default"], f"reference = {given!r} is no table")
        given = {"default": True}
    table = Table(given, f"{top.where}: reference")
    outputs = [tensor.name for tensor in tensors.values() if tensor.role in OUTPUTS]
    cuda = None
    if table.has("cuda"):
        launch = table.table("cuda")
        cuda = read_launch(launch, folder, _with_parameters(top, names), allow_magnitude=True)
        given = {leaf.name for argument in cuda.arguments for leaf in argument.leaves}
        magnitudes = [f"{name}_magnitude" for name in outputs]
        for needed in [*outputs, *(magnitudes if given.intersection(magnitudes) else [])]:
            if needed not in given:
                launch.fail(
                    f"argument {needed!r} is missing",
                    "the reference writes every output, and the magnitudes of all or of none",
                )
    golden = {}
    for name, file in table.get("golden", dict, {}).items():
        table.require(name, tensors, f"golden.{name} is not a tensor")
        golden[name] = folder / str(file)
        if exists(golden[name]) and not golden[name].is_file():
            table.fail(f"golden.{name} = {file!r} is no plain file", "save it with numpy.save")
    accumulate = "accumulate" if "accumulate" in names.dtypes else ""
    if table.has("accumulate"):
        accumulate = dtype(table, names.dtypes, "accumulate")
    tolerance = expression(table, "tolerance", names, 1)
    if (factor := constant(tolerance)) is not None and not 0.0 < factor < math.inf:
        table.fail(f"tolerance = {factor}", "it is a factor above 0 on the allowed error")
    rounding = expression(table, "operand_rounding", names, 0)
    if (error := constant(rounding)) is not None and not 0.0 <= error < 1.0:
        table.fail(f"operand_rounding = {error}", "it is a relative error, such as 2**-10")
    arrays, reduction = _numpy(table, outputs, tensors, names), optional(table, "reduction", names)
    text = table.get("python", str, "")
    python = named_function(table, "python", text, folder) if text else None
    if python is not None and arrays.keys() >= set(outputs):
        table.fail("numpy and python say what the same outputs are", "leave one of them out")
    own = table.get("default", bool, False)
    spec = ReferenceSpec(arrays, python, cuda, golden, reduction, accumulate, tolerance, rounding, own)
    if own and (arrays or python is not None or cuda is not None or golden):
        table.fail("default = true stands beside another reference", "leave one of them out")
    if spec.checked_against == "kernel" and (arrays or python is not None or golden):
        table.fail(
            "a CUDA reference without magnitudes stands beside another reference",
            "leave one of them out, or write float64 and <output>_magnitude",
        )
    return table.done(spec)


def reference_terms(top: Table) -> list[str]:
    """Return the names of the reference's terms, as far as they can be told."""
    return list(as_table(as_table(top.data.get("reference")).get("terms")))


def _with_parameters(top: Table, names: Names) -> Names:
    """Return names with the first variant's parameters, which have their defaults in the CUDA reference."""
    first = next(iter(as_table(top.data.get("variants")).values()), None)
    parameters = frozenset(as_table(as_table(first).get("parameters")))
    return replace(names, extra=names.extra | parameters, arguments=names.arguments | parameters)


def _numpy(
    table: Table, outputs: Sequence[str], tensors: Mapping[str, TensorEntry], names: Names
) -> dict[str, ArrayExpression]:
    texts = table.get("numpy", (str, dict), {})
    if isinstance(texts, str):
        if len(outputs) > 1:
            table.fail(
                "numpy is one expression", f"write numpy = {{ {outputs[0]} = ..., {outputs[1]} = ... }}"
            )
        texts = {outputs[0]: texts}
    for output in texts:
        table.require(output, outputs, f"numpy.{output} is not an output")
    terms: dict[str, ArrayExpression] = {}
    for name, text in table.get("terms", dict, {}).items():
        terms[name] = _array(table, f"terms.{name}", text, terms, tensors, names)
    return {output: _array(table, "numpy", text, terms, tensors, names) for output, text in texts.items()}


def _array(
    table: Table,
    key: str,
    text: object,
    terms: Mapping[str, ArrayExpression],
    tensors: Mapping[str, TensorEntry],
    names: Names,
) -> ArrayExpression:
    """Return a NumPy expression that may use some terms."""
    usable = sorted({*names.arguments, *names.elements})
    try:
        array = ArrayExpression(str(text), terms)
    except ExpressionError as error:
        table.fail(f"{key}: {error}")
    for unknown in sorted(array.names - set(usable)):
        table.require(unknown, [*usable, *terms], f"{key} = {text!r} uses unknown name {unknown!r}")
    for name in sorted(array.whole & tensors.keys()):
        table.fail(
            f"{key} = {text!r} uses the tensor {name} as a bound, an axis or a shape",
            "use sizes and whole numbers",
        )
    dimensions = max(len(tensor.shape) for tensor in tensors.values())
    if (axis := array.last_axis) is not None and axis >= dimensions:
        table.fail(f"{key} = {text!r} names axis {axis}", f"no tensor has more than {dimensions} dimensions")
    for name, compared in array.compared.items():
        _check_comparison(table, name, compared, names)
    return array


def _check_comparison(table: Table, name: str, texts: frozenset[str], names: Names) -> None:
    """Raise an error unless an ``if`` of the reference compares an option or dtype role with one of its values."""
    comparable = [*(option for option in names.options if option not in names.elements), *names.dtypes]
    table.require(name, comparable, f"numpy compares {name!r}, which is no option or dtype role")
    values = [str(value) for value in names.options.get(name, ITEMSIZE)]
    for text in sorted(texts):
        table.require(text, values, f"numpy compares {name} with {text!r}")
