"""Read ``[[ladder]]`` of a kernel's file: its optimisation steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tuner.core.errors import ExpressionError, suggestion
from tuner.core.model import Value
from tuner.expressions.elementwise import ElementExpression
from tuner.kernel.spec import StepSpec
from tuner.kernel.toml.table import Table
from tuner.kernel.toml.values import Names
from tuner.kernel.toml.variants import check_parameter, named_variant
from tuner.kernel.variant_spec import VariantSpec

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
    check_parameter(table, name, variant)
    allowed = {(type(value), value) for value in variant.parameters[name].values}
    values = given if isinstance(given, list) else [given]
    if not values:
        table.fail(f"parameters.{name} is empty", "name a value, or leave it out")
    for value in values:
        if isinstance(value, list | dict) or (type(value), value) not in allowed:
            choices = [str(item) for item in variant.parameters[name].values]
            table.fail(f"parameters.{name} = {value!r}", suggestion(str(value), choices))
    return tuple(values)


def _option(table: Table, name: str, given: Any, names: Names) -> Value:
    table.require(name, names.options, f"options sets {name!r}")
    if name in names.elements:
        try:
            return ElementExpression(str(given), names.elements[name]).text
        except ExpressionError as error:
            table.fail(f"options.{name}: {error.problem}", error.remedy)
    table.require(given, names.options[name], f"options.{name} = {given!r}")
    value: Value = given
    return value
