"""Read ``[baselines]`` of a kernel's file: library calls that compute the same."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.core.errors import ExpressionError
from tuner.expressions.library_call import LibraryCall
from tuner.kernel.spec import CallSpec
from tuner.kernel.toml.table import Table
from tuner.kernel.toml.values import Names, identifier, problem_condition
from tuner.runtime.entries import TensorEntry

OTHER_CONTESTANTS = ("best", "default", "none", "numpy")
"""Names that have another meaning for ``tune bench``."""


def read_baselines(
    table: Table, tensors: Mapping[str, TensorEntry], names: Names
) -> dict[str, tuple[CallSpec, ...]]:
    """Return the calls by baseline.

    The syntax is ``NAME = "call"``, ``NAME = { call = "...", when = "condition" }``, or a list of such tables: the
    first whose condition is true for a problem is used.
    """
    baselines: dict[str, tuple[CallSpec, ...]] = {}
    for name in list(table.data):
        if identifier(table, name) in OTHER_CONTESTANTS:
            table.fail(f"{name!r} cannot name a baseline", "name it after its library, such as torch")
        given = table.get(name, (str, dict, list))
        if isinstance(given, str):
            baselines[name] = (CallSpec(_call(table, name, given, tensors, names)),)
            continue
        alternatives = table.tables(name) if isinstance(given, list) else [table.table(name)]
        if not alternatives:
            table.fail(f"{name} is empty", 'for example torch = "torch.add(a, b, out=c)"')
        baselines[name] = tuple(_alternative(item, tensors, names) for item in alternatives)
        libraries = sorted({LibraryCall(call.text).library for call in baselines[name]})
        if len(libraries) > 1:
            table.fail(f"{name} mixes {' and '.join(libraries)}", "give each library a name of its own")
    return table.done(baselines)


def _alternative(table: Table, tensors: Mapping[str, TensorEntry], names: Names) -> CallSpec:
    text = _call(table, "call", table.get("call", str), tensors, names)
    return table.done(CallSpec(text, problem_condition(table, names)))


def _call(table: Table, key: str, text: str, tensors: Mapping[str, TensorEntry], names: Names) -> str:
    outputs = [tensor.name for tensor in tensors.values() if tensor.role != "input"]
    try:
        call = LibraryCall(text)
    except ExpressionError as error:
        table.fail(f"{key}: {error.problem}", error.remedy)
    for unknown in sorted(call.names - names.arguments):
        table.require(
            unknown, sorted(names.arguments), f"{key} = {call.text!r} uses unknown name {unknown!r}"
        )
    for target in call.outputs:
        table.require(target, outputs, f"{key}: out={target} is not an output")
    return call.text
