"""Read the configurations that a search tries first, ``[[initial]]``, and ``[costs]`` and ``[[ladder]]``.

They stand in the kernel's file; all but the ladder may have one of their own, with definitions of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.core.errors import suggestion
from tuner.core.model import Value
from tuner.expressions.arithmetic import Expression
from tuner.kernel.spec import InitialSpec, StepSpec
from tuner.kernel.toml.file import ADDED, KernelFile
from tuner.kernel.toml.problem import element
from tuner.kernel.toml.table import (
    Names,
    Table,
    check_definitions,
    checked,
    optional,
    read_definitions,
    unique,
)
from tuner.kernel.toml.variants import named_variant
from tuner.kernel.variant_spec import VariantSpec, index_of

MAX_CHOICES = 256
"""Combinations among which an initial configuration is chosen: each is evaluated when a run begins."""

FirstTried = tuple[tuple[InitialSpec, ...], Mapping[str, tuple[Expression, ...]]]
"""The initial configurations, and the costs."""


def read_first_tried(
    top: Table, file: KernelFile | None, names: Names, variants: Mapping[str, VariantSpec]
) -> FirstTried:
    """Return what a search tries first.

    Args:
        top: the whole kernel's file.
        file: the one that it names for this; None if it has the tables itself.
        names: those of the problem's tables, with the kernel's definitions.
        variants: of the kernel.
    """
    if file is None:
        return _tables(top, names, variants)
    top.get("initial", str)
    if top.has("costs"):
        top.fail(f"costs is beside initial = {file.path.name!r}", f"put it into {file.path.name}")
    own = Table(file.data, file.path.name)
    own.only("definitions", "initial", "costs")
    parameters = {name for variant in variants.values() for name in variant.parameters}
    definitions = own.table("definitions")
    unique(definitions, definitions.data, parameters)
    names = read_definitions(own, names)
    check_definitions(own, names, parameters)
    return own.done(_tables(own, names, variants))


def _tables(table: Table, names: Names, variants: Mapping[str, VariantSpec]) -> FirstTried:
    initial = tuple(
        _initial(one, given, names, variants)
        for each in table.tables("initial")
        for one, given in _by_variant(each, variants)
    )
    return initial, _read_costs(table, names, variants)


def _read_costs(
    top: Table, names: Names, variants: Mapping[str, VariantSpec]
) -> dict[str, tuple[Expression, ...]]:
    """Return the summands of the times of each variant of ``[costs]``."""
    table = top.table("costs")
    costs = {}
    for name in table.data:
        if name not in variants:
            table.fail(f"there is no variant {name!r}", suggestion(name, variants))
        usable = replace(names, extra=frozenset(variants[name].parameters))
        texts = table.get(name, (str, list))
        summands = texts if isinstance(texts, list) else [texts]
        if not all(isinstance(summand, str) for summand in summands):
            table.fail(f"{name} has a summand that is no text", "write each summand in quotes")
        costs[name] = tuple(checked(table, name, summand, usable) for summand in summands)
    return table.done(costs)


def _by_variant(table: Table, variants: Mapping[str, VariantSpec]) -> list[tuple[Table, dict[str, Any]]]:
    """Return a table with each of the variants that it names, and the parameters of that variant.

    A parameter that only some of them have is set in these.
    """
    named, given = table.get("variant", (str, list)), _given(table)
    if named == []:
        table.fail("variant is empty", suggestion("", variants))
    own = {key: item for key, item in table.data.items() if key != ADDED}
    each = [
        Table({**own, "variant": one}, table.where) for one in (named if isinstance(named, list) else [named])
    ]
    having = [named_variant(one, variants).parameters for one in each]
    elsewhere = {name for name in given if any(name in parameters for parameters in having)}
    return [
        (
            one,
            {name: item for name, item in given.items() if name in parameters or name not in elsewhere}
            | {
                name: item
                for name, item in table.data.get(ADDED, {}).items()
                if name in parameters.keys() - given
            },
        )
        for one, parameters in zip(each, having, strict=True)
    ]


def _initial(
    table: Table, given: Mapping[str, Any], names: Names, variants: Mapping[str, VariantSpec]
) -> InitialSpec:
    table.get("parameters", (dict, list), {})
    variant = named_variant(table, variants)
    parameters: dict[str, Value | Expression | tuple[Value, ...]] = {}
    for name, item in given.items():
        before = replace(names, extra=frozenset(parameters))
        parameters[name] = _setting(table, name, item, variant, before)
    everything = replace(names, extra=frozenset(variant.parameters))
    initial = InitialSpec(
        variant.name,
        parameters,
        optional(table, "when", everything),
        optional(table, "minimize", everything),
        " ".join(table.get("doc", str, "").split()),
        table.where.partition(":")[0],
        optional(table, "default", everything),
    )
    choices = [item for item in parameters.values() if isinstance(item, tuple)]
    if bool(choices) != (initial.minimize is not None):
        table.fail(
            "parameters with several values and 'minimize' belong together",
            'give minimize = "expression": the choice that minimizes it is taken',
        )
    if math.prod(map(len, choices)) > MAX_CHOICES:
        table.fail(f"{math.prod(map(len, choices))} choices", f"give at most {MAX_CHOICES} in all")
    return table.done(initial)


def _given(table: Table) -> dict[str, Any]:
    """Return the values of ``parameters``, which may be one table or a list of them."""
    given = table.get("parameters", (dict, list), {})
    parts = given if isinstance(given, list) else [given]
    merged: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, dict):
            table.fail(f"parameters has {part!r}", "give a table of parameters, or a list of such tables")
        for name in part:
            if name in merged:
                table.fail(f"parameters has {name!r} twice", "leave one of them out")
        merged |= part
    return merged


def _setting(
    table: Table, name: str, given: Any, variant: VariantSpec, names: Names
) -> Value | Expression | tuple[Value, ...]:
    """Return a parameter's value, several to choose from, or an expression that may compute one."""
    if given == []:
        table.fail(f"parameters.{name} is empty", "name values, or leave it out")
    if isinstance(given, list):
        return tuple(_value(table, name, item, variant) for item in given)
    if isinstance(given, str) and index_of(given, _values(table, name, variant)) is None:
        expression = checked(table, f"parameters.{name}", given, replace(names, parameters=frozenset()))
        if expression.names:
            return expression
        return _value(table, name, expression.evaluate({}), variant, text=given)
    return _value(table, name, given, variant)


def _value(table: Table, name: str, given: Any, variant: VariantSpec, *, text: str | None = None) -> Value:
    """Return a parameter's value as its list has it."""
    values = _values(table, name, variant)
    index = index_of(given, values)
    if index is None:
        shown = given if text is None else text
        table.fail(f"parameters.{name} = {shown!r} is never among its values", f"choose from {list(values)}")
    return values[index]


def _values(table: Table, name: str, variant: VariantSpec) -> tuple[Value, ...]:
    """Return the values of a variant's parameter."""
    table.require(name, variant.parameters, f"parameters sets {name!r}")
    return variant.parameters[name].values


MAX_STEP_NAME = 64
"""Characters of a step's name, which is a column's head in tables and figures."""


def read_ladder(top: Table, names: Names, variants: Mapping[str, VariantSpec]) -> tuple[StepSpec, ...]:
    """Return the optimisation steps in order.

    Args:
        top: the whole file.
        names: those of the problem's tables.
        variants: of the same file.
    """
    steps = tuple(_step(table, names, variants) for table in top.tables("ladder"))
    for name, count in Counter(step.name for step in steps).items():
        if count > 1:
            top.fail(f"ladder has {count} steps {name!r}", "give each its own name")
    return steps


def _step(table: Table, names: Names, variants: Mapping[str, VariantSpec]) -> StepSpec:
    name = table.get("name", str)
    if not name.strip() or not name.isprintable() or len(name) > MAX_STEP_NAME:
        table.fail(f"name = {name[:80]!r}", f"give one line of at most {MAX_STEP_NAME} characters")
    variant = named_variant(table, variants)
    parameters = {
        parameter: _narrowed(table, parameter, given, variant)
        for parameter, given in table.get("parameters", dict, {}).items()
    }
    dtypes = table.get("dtypes", dict, {})
    for role, given in dtypes.items():
        table.require(role, names.dtypes, f"dtypes sets {role!r}")
        choices = names.dtypes[role]
        choices = (choices,) if isinstance(choices, str) else choices
        table.require(given, choices, f"dtypes.{role} = {given!r}")
    options = {
        option: _option(table, option, given, names)
        for option, given in table.get("options", dict, {}).items()
    }
    doc = " ".join(table.get("doc", str, "").split())
    return table.done(StepSpec(name.strip(), variant.name, parameters, dict(dtypes), options, doc))


def _narrowed(table: Table, name: str, given: Any, variant: VariantSpec) -> tuple[Value, ...]:
    choices = _values(table, name, variant)
    allowed = {(type(value), value) for value in choices}
    values = given if isinstance(given, list) else [given]
    if not values:
        table.fail(f"parameters.{name} is empty", "name a value, or leave it out")
    for value in values:
        if isinstance(value, list | dict) or (type(value), value) not in allowed:
            table.fail(f"parameters.{name} = {value!r}", suggestion(str(value), map(str, choices)))
    return tuple(values)


def _option(table: Table, name: str, given: Any, names: Names) -> Value:
    table.require(name, names.options, f"options sets {name!r}")
    if name in names.elements:
        return element(table, f"options.{name}", given, names.elements[name])
    table.require(given, names.options[name], f"options.{name} = {given!r}")
    value: Value = given
    return value
