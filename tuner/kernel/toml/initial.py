"""``[[seeds]]`` and ``[heuristics]`` of a kernel's file: what a search tries first, and where more of it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.errors import suggestion
from tuner.expressions.arithmetic import Expression
from tuner.expressions.dtypes import ITEMSIZE
from tuner.kernel.initial_spec import InitialSpec, MatmulSpec, ProposalSpec
from tuner.kernel.toml.table import Table
from tuner.kernel.toml.values import Names, checked, optional
from tuner.kernel.values import index_of
from tuner.kernel.variant_spec import VariantSpec
from tuner.model import Value

MAX_CHOICES = 256
"""Among which a seed chooses: each is evaluated when a run begins."""
PROPOSAL_NAMES = (
    "cta_m",
    "cta_n",
    "cta_k",
    "warp_m",
    "warp_n",
    "warp_k",
    "load_stages",
    "cluster_size_m",
    "cluster_size_n",
    "parts_of_k",
    "grid_swizzle",
    "column_order",
)
"""What a proposal for a product says, as expressions in ``[heuristics.matmul]`` may use it."""


def read_initial(top: Table, names: Names, variants: Mapping[str, VariantSpec]) -> tuple[InitialSpec, ...]:
    """Read ``[[seeds]]``, and hold each against the variants: a constant that is never right is refused here.

    Args:
        top: the whole file.
        names: what the problem's tables have named.
        variants: of the same file.
    """
    return tuple(seed for table in top.tables("seeds") for seed in _seeds_of(table, names, variants))


def _seeds_of(table: Table, names: Names, variants: Mapping[str, VariantSpec]) -> list[InitialSpec]:
    """Read one seed for each variant that it is said for."""
    given = table.get("variant", (str, list))
    if not isinstance(given, list):
        return [_seed(table, names, variants)]
    if not given:
        table.fail("variant is empty", suggestion("", variants))
    return [_seed(Table({**table.data, "variant": one}, table.where), names, variants) for one in given]


def _seed(table: Table, names: Names, variants: Mapping[str, VariantSpec]) -> InitialSpec:
    variant = _variant(table, variants)
    parameters: dict[str, Value | Expression | tuple[Value, ...]] = {}
    for name, given in table.get("parameters", dict, {}).items():
        known = replace(names, more=frozenset(parameters))
        parameters[name] = (
            _choices(table, name, given, variant)
            if isinstance(given, list)
            else _setting(table, name, given, variant, known)
        )
    everything = replace(names, more=frozenset(variant.parameters))
    seed = InitialSpec(
        variant.name,
        parameters,
        optional(table, "when", everything),
        optional(table, "least", everything),
        " ".join(table.get("doc", str, "").split()),
    )
    choices = [given for given in parameters.values() if isinstance(given, tuple)]
    if bool(choices) != (seed.minimize is not None):
        table.fail(
            "parameters with several values and 'least' belong together",
            'say with least = "expression" which of the choices is taken',
        )
    if math.prod(map(len, choices)) > MAX_CHOICES:
        table.fail(f"{math.prod(map(len, choices))} choices", f"a seed chooses among at most {MAX_CHOICES}")
    table.done()
    return seed


def _choices(table: Table, name: str, given: list[Any], variant: VariantSpec) -> tuple[Value, ...]:
    if not given:
        table.fail(f"parameters.{name} is empty", "name values, or leave it out")
    found = [_setting(table, name, item, variant, None) for item in given]
    return tuple(item for item in found if not isinstance(item, Expression))


def read_matmul(top: Table, names: Names, variants: Mapping[str, VariantSpec]) -> MatmulSpec | None:
    """Read ``[heuristics.matmul]``; None where there is none."""
    outer = top.table("heuristics")
    table = outer.table("matmul")
    outer.done()
    if "matmul" not in outer.data:
        return None
    for name in PROPOSAL_NAMES:
        if name in names.known | names.terms.keys():
            table.fail(f"{name!r} is what a proposal calls something", "rename what this kernel calls so")
    sizes, transposed, dtypes = table.table("sizes"), table.table("transposed"), table.table("dtypes")
    found = MatmulSpec(
        {name: checked(sizes, name, str(sizes.get(name, (str, int))), names) for name in ("m", "n", "k")},
        {name: checked(transposed, name, str(transposed.get(name, str, "0")), names) for name in ("a", "b")},
        {name: _dtype(dtypes, name, names) for name in ("input", "accumulate", "output")},
        tuple(_proposal(into, names, variants) for into in table.tables("into")),
        optional(table, "when", names),
    )
    for part in (sizes, transposed, dtypes, table):
        part.done()
    if not found.into:
        table.fail("there is no way into a variant", "add [[heuristics.matmul.into]]")
    return found


def _proposal(table: Table, names: Names, variants: Mapping[str, VariantSpec]) -> ProposalSpec:
    variant = _variant(table, variants)
    known = replace(names, more=frozenset(PROPOSAL_NAMES))
    found = ProposalSpec(
        variant.name,
        {
            name: _setting(table, name, given, variant, known)
            for name, given in table.get("parameters", dict).items()
        },
        optional(table, "when", known),
    )
    table.done()
    return found


def _variant(table: Table, variants: Mapping[str, VariantSpec]) -> VariantSpec:
    name = table.get("variant", str)
    if name not in variants:
        table.fail(f"variant = {name!r}", suggestion(name, variants))
    return variants[name]


def _setting(
    table: Table, name: str, given: Any, variant: VariantSpec, names: Names | None
) -> Value | Expression:
    """Read what a parameter is set to: one of its values, or, with names for it, an expression that may give one."""
    if name not in variant.parameters:
        table.fail(f"parameters sets {name!r}", suggestion(name, variant.parameters))
    values = variant.parameters[name].values
    place = index_of(given, values)
    if place is None and names is not None and isinstance(given, str):
        found = checked(table, f"parameters.{name}", given, names)
        if found.names:
            return found
        place = index_of(found.evaluate({}), values)
    if place is None:
        table.fail(f"parameters.{name} = {given!r} is never among its values", f"choose from {list(values)}")
    return values[place]


def _dtype(table: Table, name: str, names: Names) -> str:
    found: str = table.get(name, str)
    if found not in names.dtypes and found not in ITEMSIZE:
        table.fail(f"{name} = {found!r}", suggestion(found, [*names.dtypes, *ITEMSIZE]))
    return found
