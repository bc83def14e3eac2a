"""Read what a kernel computes: ``[problem]``, ``[tensors]``, ``[scalars]``, ``[reference]`` and ``[baselines]``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.core.errors import ExpressionError, suggestion
from tuner.core.model import Value
from tuner.expressions import elementwise
from tuner.expressions.arithmetic import Expression, whole_number
from tuner.expressions.library_call import LibraryCall
from tuner.kernel.contents import INITS
from tuner.kernel.spec import CallSpec, ReferenceSpec, element_text
from tuner.kernel.toml.reference import read_reference, reference_terms
from tuner.kernel.toml.table import (
    RESERVED,
    Names,
    Table,
    as_table,
    checked,
    choice,
    constant,
    dtype,
    expression,
    expressions,
    identifier,
    named_function,
    optional,
    plain_file,
    problem_condition,
    unique,
    value_list,
)
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.entries import ScalarEntry, TensorEntry
from tuner.runtime.launch_limits import MAX_SIZE
from tuner.runtime.launches import OUTPUTS

ROLES = ("input", "output", "inout", "destroyed")


@dataclass(frozen=True)
class ProblemTables:
    """The content of these tables."""

    names: Names
    presets: Mapping[str, Mapping[str, Value]]
    tensors: Mapping[str, TensorEntry]
    scalars: Mapping[str, ScalarEntry]
    reference: ReferenceSpec


def read_problem(top: Table, folder: Path) -> ProblemTables:
    """Return the content of ``[problem]``, ``[tensors]``, ``[scalars]`` and ``[reference]``.

    Args:
        top: the whole file.
        folder: where relative paths start.
    """
    problem = top.table("problem")
    sizes = {
        identifier(problem, name): _size(problem, f"sizes.{name}", value)
        for name, value in problem.get("sizes", dict).items()
    }
    dtypes = _dtypes(problem)
    options, elements = _options(problem)
    given = problem.get("presets", dict, {})
    variants = as_table(top.data.get("variants")).values()
    parameters = {name for one in variants for name in as_table(as_table(one).get("parameters"))}
    macros = {f"{role}_type": f"the type of the dtype role {role!r}" for role in dtypes} | {
        f"{name}_uses_{item}": f"a macro of the option {name!r}"
        for name, of in elements.items()
        for item in of
    }
    for name in (*sizes, *options):
        identifier(problem, name, macros)
    own = frozenset(parameters)
    names = problem.done(Names(sizes, dtypes, options, elements, parameters=own, macros=macros))
    unique(problem, sizes, dtypes, options, RESERVED)
    presets = {preset: _preset(problem, preset, values, names) for preset, values in given.items()}

    tensors = {
        name: _tensor(name, table, names, folder) for name, table in top.table("tensors").children().items()
    }
    if not any(tensor.role in OUTPUTS for tensor in tensors.values()):
        top.fail("no tensor has role output or inout", 'give one role = "output"')
    scalars = {name: _scalar(name, table, names) for name, table in top.table("scalars").children().items()}
    terms = reference_terms(top)
    unique(top, sizes, dtypes, options, tensors, scalars, terms, RESERVED)
    _check_elements(problem, elements, tensors, [*scalars, *terms])
    inputs = frozenset(name for name, tensor in tensors.items() if tensor.role == "input")
    names = replace(names, arguments=frozenset({*sizes, *tensors, *scalars}), inputs=inputs)
    reference = read_reference(top, names, tensors, folder)
    return ProblemTables(names, presets, tensors, scalars, reference)


def _size(problem: Table, what: str, value: object) -> int:
    """Return a size that is given in digits, or as text: TOML has no ``2**24``."""
    size = whole_number(value) if isinstance(value, str) else value
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_SIZE:
        problem.fail(
            f"{what} = {value!r}", 'a size is a whole number from 1 up to 2**62, such as 4096 or "2**24"'
        )
    return size


def _dtypes(problem: Table) -> dict[str, tuple[str, ...] | str]:
    roles: dict[str, tuple[str, ...] | str] = {}
    for role, choices in problem.get("dtypes", dict, {}).items():
        identifier(problem, role)
        if isinstance(choices, str):
            problem.require(choices, [*ITEMSIZE, *roles], f"dtypes.{role} = {choices!r}")
            roles[role] = choices
        else:
            if not isinstance(choices, list) or not choices:
                problem.fail(f"dtypes.{role} = {choices!r}", "give a dtype or a list of them, default first")
            for item in choices:
                if not isinstance(item, str) or item not in (*ITEMSIZE, *roles):
                    problem.fail(f"dtypes.{role} has {item!r}", suggestion(str(item), (*ITEMSIZE, *roles)))
            roles[role] = tuple(choices)
    if not roles:
        problem.fail("it has no dtypes", 'for example dtypes = { input = ["float32"] }')
    return roles


def _options(problem: Table) -> tuple[dict[str, tuple[Value, ...]], dict[str, tuple[str, ...]]]:
    """Return the options with their values, and of element expressions the names that they may use."""
    options: dict[str, tuple[Value, ...]] = {}
    elements: dict[str, tuple[str, ...]] = {}
    table = problem.table("options")
    for name, given in table.data.items():
        identifier(problem, name)
        if not isinstance(given, dict):
            options[name] = value_list(table, name)
            continue
        inner = table.table(name)
        text = inner.get("expression", str)
        of = inner.get("of", list)
        if not of or not all(isinstance(item, str) for item in of) or len(set(of)) != len(of):
            inner.fail(f"of = {of!r}", 'name the tensors that it may use, such as of = ["x", "y"]')
        for item in of:
            if identifier(inner, item) in elementwise.FUNCTIONS:
                inner.fail(f"of names the function {item!r}", "rename the tensor")
        elements[name] = inner.done(tuple(of))
        options[name] = (element(inner, "expression", text, elements[name]),)
    return options, elements


def element(table: Table, key: str, text: object, of: tuple[str, ...]) -> str:
    """Return the canonical text of an element expression that uses at least one of some names."""
    if not isinstance(text, str):
        table.fail(f"{key} = {text!r} is not text", "write an element expression in quotes")
    try:
        return element_text(text, of)
    except ExpressionError as error:
        table.fail(f"{key}: {error.problem}", error.remedy)


def _preset(problem: Table, preset: str, given: object, names: Names) -> dict[str, Value]:
    """Return the sizes, options and dtypes that a preset sets."""
    if not isinstance(given, dict):
        problem.fail(f"presets.{preset} is not a table", "for example presets.small = { n = 1024 }")
    values: dict[str, Value] = {}
    for name, value in given.items():
        what = f"presets.{preset}.{name}"
        if name in names.sizes:
            values[name] = _size(problem, what, value)
            continue
        if name in names.elements:
            element(problem, what, value, names.elements[name])
        elif name in names.options or name in names.dtypes:
            choices = names.options[name] if name in names.options else names.dtypes[name]
            problem.require(
                value, [choices] if isinstance(choices, str) else list(choices), f"{what} = {value!r}"
            )
        else:
            problem.require(
                name, [*names.sizes, *names.options, *names.dtypes], f"presets.{preset} sets {name!r}"
            )
        values[name] = value
    return values


def _tensor(name: str, table: Table, names: Names, folder: Path) -> TensorEntry:
    when = problem_condition(table, names)
    init, between, given = _init(table, names, folder)
    tensor = TensorEntry(
        identifier(table, name),
        expressions(table, "shape", names),
        dtype(table, names.dtypes),
        choice(table, "role", ROLES, "input"),
        init,
        optional(table, "transposed", names),
        when,
        between,
        *given,
    )
    if tensor.role == "output" and "init" in table.data:
        table.fail("init says what an output holds", 'an output begins as NaN: give it role = "inout"')
    return table.done(tensor)


Given = tuple[()] | tuple[Path, str]
"""The file that says what a tensor holds, and its function."""


def _init(table: Table, names: Names, folder: Path) -> tuple[str, tuple[Expression, ...], Given]:
    """Return what a tensor holds: one of :data:`INITS`, ``range`` or ``file``, with the two numbers or the file.

    A number is a range of one.
    """
    init = table.get("init", (str, dict, int, float, bool), "normal")
    if isinstance(init, int | float):
        if math.isnan(init):
            table.fail("init is not a number", _ways(""))
        if math.isinf(init):
            return str(init), (), ()
        number = str(int(init) if isinstance(init, bool) else init)
        return "uniform", (Expression(number, f"{table.where}: init"),) * 2, ()
    if isinstance(init, dict):
        inner = table.table("init")
        inner.only("uniform", "range")
        kind, form = ("range", "[first, step]") if "range" in init else ("uniform", "[least, largest]")
        between = tuple(checked(inner, kind, str(item), names) for item in inner.get(kind, list))
        if len(between) != 2:
            inner.fail(f"{kind} has {len(between)} numbers", f"write init = {{ {kind} = {form} }}")
        return inner.done((kind, between, ()))
    if init.endswith(".npy"):
        return "file", (), (plain_file(table, f"init = {init!r}", init, folder), "")
    if ":" in init:
        function = named_function(table, "init", init, folder)
        return "file", (), (function.file, function.name)
    if init not in (*INITS, "whole"):
        table.fail(f"init = {init!r}", _ways(init))
    return init, (), ()


def _ways(wrong: str) -> str:
    """Return what an ``init`` may be."""
    return (
        f"{suggestion(wrong, (*INITS, 'whole'))}, a number, {{ uniform = [least, largest] }}, "
        '{ range = [first, step] }, or a file of all values: "x.npy", "inputs.py:FUNCTION"'
    )


def _scalar(name: str, table: Table, names: Names) -> ScalarEntry:
    kind = dtype(table, names.dtypes)
    value = expression(table, "value", names)
    constant(value)
    return table.done(ScalarEntry(identifier(table, name), kind, value))


def _check_elements(
    problem: Table,
    elements: Mapping[str, tuple[str, ...]],
    tensors: Mapping[str, TensorEntry],
    others: Sequence[str],
) -> None:
    """Raise an error if an element expression may use anything but inputs, scalars and terms of the reference."""
    usable = [*(name for name, tensor in tensors.items() if tensor.role != "output"), *others]
    for option, of in elements.items():
        for name in of:
            problem.require(name, usable, f"options.{option}: of names {name!r}, which is no input")


OTHER_CONTESTANTS = ("best", "default", "none")
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
    outputs = [tensor.name for tensor in tensors.values() if tensor.role in OUTPUTS]
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
