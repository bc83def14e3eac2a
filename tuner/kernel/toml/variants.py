"""Read ``[variants]`` of a kernel's file, with their launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.errors import suggestion
from tuner.expressions.arithmetic import Expression
from tuner.kernel.headers import first_file
from tuner.kernel.options import check_names, check_template, read_options
from tuner.kernel.toml.table import (
    RESERVED,
    Names,
    Table,
    checked,
    choice,
    condition,
    dtype,
    expression,
    expressions,
    identifier,
    named_function,
    optional,
    unique,
    value_list,
)
from tuner.kernel.variant_spec import (
    RESOURCE_NAMES,
    Constraints,
    LaunchSpec,
    ParameterSpec,
    VariantSpec,
)
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.entries import ArgumentEntry, MapEntry, RepeatEntry, ScratchEntry
from tuner.runtime.manifest import MAX_STRUCTS
from tuner.runtime.repeats import MAX_LOOPS

MAX_PARAMETERS = 64
"""Of a variant: a sample of so many takes seconds to draw, of 300 minutes. Those of gemm have 20."""
_ALIGNMENTS = tuple(2**power for power in range(9))
_SYMBOL = re.compile(r"(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*\Z")
"""A variable of C++, perhaps in a namespace, or mangled."""


def read_variants(top: Table, folder: Path, names: Names) -> dict[str, VariantSpec]:
    """Return the variants by name.

    Args:
        top: the whole file.
        folder: where relative paths start.
        names: those of the problem's tables.
    """
    variants = {
        identifier(top, name): _variant(name, table, folder, names)
        for name, table in top.table("variants").children().items()
    }
    if not variants:
        top.fail("there are no variants", "add a [variants.NAME] with parameters and launches")
    return variants


def _variant(name: str, table: Table, folder: Path, names: Names) -> VariantSpec:
    table.only(
        "like",
        "summary",
        "requires",
        "parameters",
        "scratch",
        "state",
        "constraints",
        "pruning",
        "compile",
        "launches",
        "call",
        "build",
    )
    summary = table.get("summary", str, "")
    reasoned = isinstance(table.get("requires", (str, dict), ""), dict)
    requirements = _conditions(table, "requires", names) if reasoned else ()
    requires = (
        _all_of([condition for _, condition in requirements])
        if requirements
        else optional(table, "requires", names)
    )
    specs = table.table("parameters").children()
    if len(specs) > MAX_PARAMETERS:
        table.fail(f"{len(specs)} parameters", f"have at most {MAX_PARAMETERS}")
    parameters = {
        identifier(table, parameter, names.macros): _parameter(parameter, spec)
        for parameter, spec in specs.items()
    }
    taken = names.usable | names.arguments | names.definitions.keys() | set(RESERVED)
    unique(table, parameters, taken)
    inner = replace(names, extra=frozenset(parameters))
    scratch = {n: _scratch(n, t, inner) for n, t in table.table("scratch").children().items()}
    unique(table, parameters, scratch, taken)
    compiled = replace(inner, extra=inner.extra | set(RESOURCE_NAMES))
    constraints = _conditions(table, "constraints", compiled)
    pruning_rules = _conditions(table, "pruning", inner)
    inner = replace(inner, arguments=names.arguments | set(scratch) | set(parameters))
    launches = tuple(read_launch(launch, folder, inner) for launch in table.tables("launches"))
    call = None
    if keys := [key for key in ("call", "build") if table.has(key)]:
        call = named_function(table, keys[0], table.get(keys[0], str), folder)
        call = replace(call, builds=keys[0] == "build")
    if len(keys) + bool(launches) != 1:
        several = " and ".join([*(["launches"] if launches else []), *(f"a {key}" for key in keys)])
        what = f"both {several}" if several else "no launches"
        table.fail(f"there are {what}", f"add [[variants.{name}.launches]], or call = 'FILE.py:FUNCTION'")
    last: dict[str, tuple[int, tuple[RepeatEntry, ...]]] = {}
    for number, launch in enumerate(launches):
        for depth, loop in enumerate(launch.repeat, 1):
            before, last[loop.name] = last.get(loop.name), (number, launch.repeat[:depth])
            if before not in (None, last[loop.name], (number - 1, launch.repeat[:depth])):
                remedy = "launches in one loop are neighbours and say the same of it; give another loop another name"
                table.fail(f"repeat {loop.name} is two loops", remedy)
    compiling = table.table("compile")
    options = read_options(compiling)
    check_names(compiling, options, folder, inner)
    return table.done(
        VariantSpec(
            name,
            summary,
            requires,
            parameters,
            constraints,
            scratch=tuple(scratch.values()),
            launches=launches,
            pruning_rules=pruning_rules,
            requirements=requirements,
            state=_state(table),
            compile_options=compiling.done(options),
            call=call,
        )
    )


def _conditions(table: Table, key: str, names: Names) -> Constraints:
    """Return the conditions of a table with their reasons."""
    reasons = table.table(key)
    return tuple((reason, condition(reasons, reason, names)) for reason in reasons.data)


def _all_of(conditions: Sequence[Expression]) -> Expression:
    """Return what holds where all of some conditions hold."""
    text, written = (conjunction(getattr(one, name) for one in conditions) for name in ("text", "written"))
    return Expression(text, conditions[0].where, written)


def conjunction(texts: Iterable[str]) -> str:
    """Return the text of what holds where all of some conditions hold."""
    texts = list(texts)
    if len(texts) == 1:
        return texts[0]
    return " and ".join(f"({text})" if " or " in text or " if " in text else text for text in texts)


def _state(table: Table) -> tuple[str, ...]:
    names = table.get("state", list, [])
    if not all(isinstance(name, str) and name for name in names):
        table.fail(f"state = {names!r}", "list the names of variables in the code")
    return tuple(names)


def _parameter(name: str, table: Table) -> ParameterSpec:
    values = value_list(table, "values")
    default = table.get("default", (int, float, str, bool), values[0])
    if default not in values or type(default) is not type(values[values.index(default)]):
        table.fail(f"default = {default!r} is not among its values", f"choose from {list(values)}")
    return table.done(ParameterSpec(name, values, default, table.get("doc", str, "")))


def _scratch(name: str, table: Table, names: Names) -> ScratchEntry:
    zeroed = table.get("zeroed", (bool, str), False)
    if isinstance(zeroed, str) and zeroed != "once":
        table.fail(f"zeroed = {zeroed!r}", 'write true, false, or "once"')
    scratch = ScratchEntry(
        identifier(table, name),
        expressions(table, "shape", names),
        dtype(table, names.dtypes),
        zeroed is True,
        zeroed == "once",
        optional(table, "when", names),
    )
    return table.done(scratch)


def read_launch(table: Table, folder: Path, names: Names, *, allow_magnitude: bool = False) -> LaunchSpec:
    """Return a launch.

    Args:
        table: the launch.
        folder: where relative paths start.
        names: those that it may use in expressions and as arguments.
        allow_magnitude: whether it is the reference's, whose arguments may be magnitudes and initial values, too.
    """
    arguments = names.arguments
    if allow_magnitude:
        arguments |= {f"{name}{suffix}" for name in arguments for suffix in ("_magnitude", "_initial")}
    template = _template(table, folder)
    loops = () if allow_magnitude else _loops(table, names)
    within = _within(names, loops)
    arguments |= within.extra - names.extra
    launch = LaunchSpec(
        _entry(table, folder, names),
        tuple(_argument(table, item, within, arguments) for item in table.get("arguments", list)),
        _dimensions(table, "grid", within),
        _dimensions(table, "block", within),
        expression(table, "shared_bytes", within, "0"),
        _dimensions(table, "cluster", within) if table.has("cluster") else (),
        table.get("cooperative", bool, False),
        optional(table, "carveout", names),  # of the function, whatever pass it is
        optional(table, "alignment", names),
        None if allow_magnitude else optional(table, "when", within),
        optional(table, "resident", within),
        table.get("programmatic", bool, False),
        constants=_constants(table.table("constants"), names),
        repeat=loops,
        template=template,
    )
    return table.done(launch)


def _loops(table: Table, names: Names) -> tuple[RepeatEntry, ...]:
    """Return the loops around a launch, of which each may use the names of those outside of it."""
    one = isinstance(table.get("repeat", (dict, list), []), dict)
    loops: list[RepeatEntry] = []
    for inner in [table.table("repeat")] if one else table.tables("repeat"):
        name = identifier(inner, inner.get("name", str))
        within = _within(names, loops)
        unique(inner, [name], within.usable | names.arguments | names.definitions.keys() | set(RESERVED))
        loops.append(inner.done(RepeatEntry(name, expression(inner, "count", within))))
    if len(loops) > MAX_LOOPS:
        table.fail(f"repeat has {len(loops)} loops", f"nest at most {MAX_LOOPS}")
    return tuple(loops)


def _within(names: Names, loops: Iterable[RepeatEntry]) -> Names:
    return replace(names, extra=names.extra | {loop.name for loop in loops})


def _constants(table: Table, names: Names) -> tuple[tuple[str, str], ...]:
    """Return variables of the code, each with the input that it is filled from."""
    pairs = []
    for symbol in table.data:
        if not _SYMBOL.match(symbol):
            table.fail(f"{symbol!r} is no variable", 'write it as C++ does: weights, or "filters::weights"')
        tensor = table.get(symbol, str)
        if tensor not in names.inputs:
            one = '{ shape = [1], dtype = "int32", init = { range = ["VALUE", 1] } }'
            remedy = f"{suggestion(tensor, sorted(names.inputs))}; of a number make an input: {one}"
            table.fail(f"{symbol} = {tensor!r} is no input", remedy)
        pairs.append((symbol, tensor))
    return tuple(pairs)


def _dimensions(table: Table, key: str, names: Names) -> tuple[Expression, ...]:
    dimensions = expressions(table, key, names)
    if len(dimensions) > 3:
        table.fail(f"{key} has {len(dimensions)} dimensions", "give one to three expressions")
    return dimensions


def _entry(table: Table, folder: Path, names: Names) -> str:
    """Return an entry's name, which may be a Jinja template with the names of the source's template."""
    entry: str = table.get("entry", str)
    check_template(table, f"entry = {entry!r}", entry, "NAME, or NAME_{{ parameter }}", folder, names)
    return entry


def _argument(table: Table, item: Any, names: Names, arguments: frozenset[str]) -> ArgumentEntry:
    if isinstance(item, str) and not item.isidentifier():
        item = {"value": item}
    if isinstance(item, str):
        problem = f"argument {item!r} is not a tensor, scratch, scalar, size, parameter or loop"
        table.require(item, sorted(arguments), problem)
        return ArgumentEntry(name=item)
    if not isinstance(item, dict):
        value, dtype = (int(item), "bool") if isinstance(item, bool) else (item, "float32")
        dtype = "int32" if type(item) is int else dtype
        table.fail(f"argument {item!r}", f'give a name, or {{ value = "{value}", dtype = "{dtype}" }}')
    inner = Table(item, f"{table.where}: arguments")
    if "when" in item:
        decisive = frozenset({*names.dtypes, *names.options})
        when = checked(inner, "when", inner.get("when", str), names, decisive)
        named = _argument(table, inner.get("name", str), names, arguments)
        return inner.done(replace(named, when=when))
    if "tensor_map" in item:
        return _map(inner, names, arguments)
    if "one_of" in item:
        several = _buffers(inner, "one_of", names, arguments)
        return inner.done(ArgumentEntry(one_of=several, index=expression(inner, "index", names)))
    if "cluster_order" in item:
        return inner.done(ArgumentEntry(cluster_order=expression(inner, "cluster_order", names)))
    if "fields" in item:
        return _struct(inner, names, arguments)
    value = expression(inner, "value", names)
    return inner.done(ArgumentEntry(value=value, dtype=choice(inner, "dtype", tuple(ITEMSIZE), "int32")))


def _struct(table: Table, names: Names, arguments: frozenset[str]) -> ArgumentEntry:
    if table.where.count(": arguments") > MAX_STRUCTS:
        table.fail("structs are nested too deeply", f"{MAX_STRUCTS} in one another are the most")
    fields = tuple(_argument(table, item, names, arguments) for item in table.get("fields", list))
    if not fields:
        table.fail("fields is empty", 'pass a struct without members as { value = "0", dtype = "uint8" }')
    if any(field.map or field.cluster_order or field.one_of or field.when for field in fields):
        table.fail("fields are the members of a struct", "give names, values or structs, in their order")
    alignment = table.get("alignment", int, 1)
    if alignment not in _ALIGNMENTS:
        table.fail(f"alignment = {alignment}", "it is a power of two up to 256, as in alignas")
    return table.done(ArgumentEntry(fields=fields, alignment=alignment))


def _buffers(table: Table, key: str, names: Names, arguments: frozenset[str]) -> tuple[str, ...]:
    """Return the tensor or scratch memory that a key names, or several."""
    given = table.get(key, (str, list))
    wanted = (given,) if isinstance(given, str) else tuple(given)
    for name in wanted:
        table.require(name, sorted(arguments - names.usable), f"{key} {name!r} is not a tensor or scratch")
    if not wanted:
        table.fail(f"{key} is empty", "name a tensor or scratch, or several")
    return wanted


def _map(table: Table, names: Names, arguments: frozenset[str]) -> ArgumentEntry:
    wanted = _buffers(table, "tensor_map", names, arguments)
    spec = MapEntry(
        expressions(table, "box", names),
        expression(table, "swizzle", names, "0"),
        expression(table, "l2_promotion", names, "0"),
        wanted[1:],
    )
    if len(spec.box) != 2:
        table.fail(f"box has {len(spec.box)} sides", "give rows and columns, in memory order")
    return table.done(ArgumentEntry(name=wanted[0], map=spec))


def _template(table: Table, folder: Path) -> Path:
    name = table.get("template", str)
    if (template := first_file(start / name for start in (folder, paths.templates()))) is None:
        file = table.where.partition(":")[0]
        table.fail(f"template {name!r} does not exist", f"put it beside {file}, or correct the name")
    return template


def named_variant(table: Table, variants: Mapping[str, VariantSpec]) -> VariantSpec:
    """Return the variant that a table's ``variant`` names."""
    name: str = table.get("variant", str)
    table.require(name, variants, f"variant = {name!r}")
    return variants[name]
