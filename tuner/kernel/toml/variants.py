"""How a kernel's file says it is computed: variants, their launches, and the ladder that tells their story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner import paths
from tuner.errors import ExpressionError, KernelError, suggestion
from tuner.expressions.arithmetic import Expression
from tuner.expressions.dtypes import ITEMSIZE
from tuner.expressions.elementwise import ElementExpression
from tuner.kernel.spec import StepSpec
from tuner.kernel.toml.table import Table
from tuner.kernel.toml.values import (
    RESERVED,
    Names,
    choice,
    dtype,
    exists,
    expression,
    expressions,
    identifier,
    optional,
    unique,
    value_list,
)
from tuner.kernel.variant_spec import (
    DEVICE_LIMITS,
    RESOURCE_NAMES,
    ArgumentSpec,
    LaunchSpec,
    MapSpec,
    ParameterSpec,
    ScratchSpec,
    VariantSpec,
)
from tuner.model import Value

MAX_RUNG_NAME = 64


def read_variants(top: Table, folder: Path, names: Names) -> dict[str, VariantSpec]:
    """Read ``[variants]``.

    Args:
        top: the whole file.
        folder: where relative paths start.
        names: what the problem's tables have named.
    """
    variants = {
        identifier(top, name): _variant(name, table, folder, names)
        for name, table in top.table("variants").children().items()
    }
    if not variants:
        top.fail("there are no variants", "add a [variants.NAME] with parameters and launches")
    return variants


def _variant(name: str, table: Table, folder: Path, names: Names) -> VariantSpec:
    summary = table.get("summary", str, "")
    requires = optional(table, "requires", names)
    parameters = {
        identifier(table, parameter): _parameter(parameter, spec)
        for parameter, spec in table.table("parameters").children().items()
    }
    taken = names.known | names.arguments | names.terms.keys() | set(RESERVED)
    unique(table, parameters, taken)
    inner = replace(names, more=frozenset(parameters))
    scratch = {n: _scratch(n, t, inner) for n, t in table.table("scratch").children().items()}
    unique(table, parameters, scratch, taken)
    reasons = table.table("constraints")
    compiled = replace(inner, more=inner.more | set(RESOURCE_NAMES))
    constraints = tuple((reason, expression(reasons, reason, compiled)) for reason in list(reasons.data))
    reasons = table.table("worthwhile")
    pruning_rules = tuple((reason, expression(reasons, reason, inner)) for reason in list(reasons.data))
    inner = replace(inner, arguments=names.arguments | set(scratch) | set(parameters))
    launches = tuple(read_launch(launch, folder, inner) for launch in table.tables("launches"))
    if not launches:
        table.fail("there are no launches", f"add [[variants.{name}.launches]]")
    table.done()
    memory = tuple(scratch.values())
    return VariantSpec(
        name, summary, requires, parameters, constraints, memory, launches, pruning_rules=pruning_rules
    )


def _parameter(name: str, table: Table) -> ParameterSpec:
    values = value_list(table, "values")
    default = table.get("default", (int, float, str, bool), values[0])
    if default not in values or type(default) is not type(values[values.index(default)]):
        table.fail(f"default = {default!r} is not among its values", f"choose from {list(values)}")
    doc = table.get("doc", str, "")
    table.done()
    return ParameterSpec(name, values, default, doc)


def _scratch(name: str, table: Table, names: Names) -> ScratchSpec:
    zeroed = table.get("zeroed", (bool, str), False)
    if isinstance(zeroed, str) and zeroed != "once":
        table.fail(f"zeroed = {zeroed!r}", 'write true, false, or "once"')
    scratch = ScratchSpec(
        identifier(table, name),
        expressions(table, "shape", names),
        dtype(table, names.dtypes),
        zeroed is True,
        zeroed == "once",
        optional(table, "when", names),
    )
    table.done()
    return scratch


def read_launch(table: Table, folder: Path, names: Names, *, allow_magnitude: bool = False) -> LaunchSpec:
    """Read a launch.

    Args:
        table: the launch.
        folder: where relative paths start.
        names: what it may use, and give as arguments.
        allow_magnitude: whether it is the reference's, which also gets magnitudes and first values.
    """
    arguments = names.arguments
    if allow_magnitude:
        arguments |= {f"{name}{suffix}" for name in arguments for suffix in ("_magnitude", "_initial")}
    launch = LaunchSpec(
        _template(table, folder),
        _entry(table, folder, names),
        tuple(_argument(table, item, names, arguments) for item in table.get("arguments", list)),
        _dimensions(table, "grid", names),
        _dimensions(table, "block", names),
        expression(table, "shared_bytes", names, "0"),
        _dimensions(table, "cluster", names) if table.has("cluster") else (),
        table.get("cooperative", bool, False),
        optional(table, "carveout", names),
        optional(table, "alignment", names),
        None if allow_magnitude else optional(table, "when", names),
        optional(table, "resident", names),
    )
    table.done()
    return launch


def _dimensions(table: Table, key: str, names: Names) -> tuple[Expression, ...]:
    found = expressions(table, key, names)
    if len(found) > 3:
        table.fail(f"{key} has {len(found)} dimensions", "give one to three expressions")
    return found


def _entry(table: Table, folder: Path, names: Names) -> str:
    """Read an entry's name, which may be a Jinja template of what the source's template sees."""
    entry: str = table.get("entry", str)
    if "{" not in entry:
        return entry
    from tuner.kernel.render import undeclared_names  # Jinja is only loaded where it is used

    known = (names.known - set(DEVICE_LIMITS) - set(names.sizes)) | {"cc", "problem"}
    try:
        unknown = undeclared_names(entry, folder)
    except KernelError as error:
        table.fail(f"entry = {entry!r}: {error}", "write NAME, or NAME_{{ parameter }}")
    for name in sorted(unknown - known):
        table.fail(f"entry = {entry!r} uses unknown name {name!r}", suggestion(name, sorted(known)))
    return entry


def _argument(table: Table, item: Any, names: Names, arguments: frozenset[str]) -> ArgumentSpec:
    if isinstance(item, str):
        if item not in arguments:
            table.fail(
                f"argument {item!r} is not a tensor, scratch, scalar, size or parameter",
                suggestion(item, sorted(arguments)),
            )
        return ArgumentSpec(name=item)
    if not isinstance(item, dict):
        table.fail(f"argument {item!r}", 'give a name, or { value = "expression", dtype = "int64" }')
    inner = Table(item, f"{table.where}: arguments")
    if "tensor_map" in item:
        return _map(inner, names, arguments)
    if "places" in item:
        argument = ArgumentSpec(cluster_order=expression(inner, "places", names))
        inner.done()
        return argument
    argument = ArgumentSpec(
        value=expression(inner, "value", names), dtype=choice(inner, "dtype", tuple(ITEMSIZE), "int32")
    )
    inner.done()
    return argument


def _map(table: Table, names: Names, arguments: frozenset[str]) -> ArgumentSpec:
    given = table.get("tensor_map", (str, list))
    of = [given] if isinstance(given, str) else given
    matrices = sorted(arguments - names.known)
    for name in of:
        if not isinstance(name, str) or name not in matrices:
            table.fail(f"tensor_map {name!r} is not a tensor or scratch", suggestion(str(name), matrices))
    if not of:
        table.fail("tensor_map is empty", "name a tensor or scratch, or several in the order of preference")
    found = MapSpec(
        expressions(table, "box", names),
        expression(table, "swizzle", names, "0"),
        expression(table, "promotion", names, "0"),
        tuple(of[1:]),
    )
    if len(found.box) != 2:
        table.fail(f"box has {len(found.box)} sides", "give rows and columns, as the matrix lies in memory")
    table.done()
    return ArgumentSpec(name=of[0], map=found)


def _template(table: Table, folder: Path) -> Path:
    name = table.get("template", str)
    candidates: list[Path] = [start / name for start in (folder, paths.templates())]
    found = next((path for path in candidates if exists(path) and path.is_file()), None)
    if found is None:
        file = table.where.partition(":")[0]
        table.fail(f"template {name!r} does not exist", f"put it beside {file}, or correct the name")
    return found.resolve()


def read_ladder(top: Table, names: Names, variants: Mapping[str, VariantSpec]) -> tuple[StepSpec, ...]:
    """Read ``[[ladder]]``, and hold each rung against the variants and the problem."""
    rungs = tuple(_rung(table, names, variants) for table in top.tables("ladder"))
    found = [rung.name for rung in rungs]
    for name in found:
        if found.count(name) > 1:
            top.fail(f"ladder has two rungs {name!r}", "rename one of them")
    return rungs


def _rung(table: Table, names: Names, variants: Mapping[str, VariantSpec]) -> StepSpec:
    name = table.get("name", str)
    if not name.strip() or not name.isprintable() or len(name) > MAX_RUNG_NAME:
        table.fail(f"name = {name[:80]!r}", f"give one line of at most {MAX_RUNG_NAME} characters")
    variant = table.get("variant", str)
    if variant not in variants:
        table.fail(f"variant = {variant!r}", suggestion(variant, variants))
    parameters = {
        parameter: _narrowed(table, parameter, given, variants[variant])
        for parameter, given in table.get("parameters", dict, {}).items()
    }
    dtypes = table.get("dtypes", dict, {})
    for role, given in dtypes.items():
        if role not in names.dtypes:
            table.fail(f"dtypes sets {role!r}", suggestion(role, names.dtypes))
        choices = names.dtypes[role]
        if given not in ([choices] if isinstance(choices, str) else choices):
            table.fail(f"dtypes.{role} = {given!r}", suggestion(str(given), choices))
    options = {
        option: _option(table, option, given, names)
        for option, given in table.get("options", dict, {}).items()
    }
    doc = " ".join(table.get("doc", str, "").split())
    table.done()
    return StepSpec(name.strip(), variant, parameters, dict(dtypes), options, doc)


def _narrowed(table: Table, name: str, given: Any, variant: VariantSpec) -> tuple[Value, ...]:
    if name not in variant.parameters:
        table.fail(f"parameters sets {name!r}", suggestion(name, variant.parameters))
    known = {(type(value), value) for value in variant.parameters[name].values}
    values = given if isinstance(given, list) else [given]
    if not values:
        table.fail(f"parameters.{name} is empty", "name a value, or leave it out")
    for value in values:
        if isinstance(value, list | dict) or (type(value), value) not in known:
            choices = [str(item) for item in variant.parameters[name].values]
            table.fail(f"parameters.{name} = {value!r}", suggestion(str(value), choices))
    return tuple(values)


def _option(table: Table, name: str, given: Any, names: Names) -> Value:
    if name not in names.options:
        table.fail(f"options sets {name!r}", suggestion(name, names.options))
    if name in names.elements:
        try:
            return ElementExpression(str(given), names.elements[name]).text
        except ExpressionError as error:
            table.fail(f"options.{name}: {error.problem}", error.remedy)
    if given not in names.options[name]:
        table.fail(f"options.{name} = {given!r}", suggestion(str(given), map(str, names.options[name])))
    found: Value = given
    return found
