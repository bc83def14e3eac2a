"""Read the manifest of a bundle: what is damaged, newer or refers to nothing is refused in one line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from ..core.errors import BundleError
from . import entries
from .dispatch import MAX_RESIDUAL, UNIT
from .dtypes import ITEMSIZE
from .expressions import Expression, check
from .launch_limits import DEVICE_LIMITS, MAX_SIZE
from .repeats import MAX_LOOPS
from .strict_json import (
    FILE,
    MAX_KEYS,
    JsonObject,
    Read,
    check_different,
    flag,
    list_of,
    mapping_of,
    matching,
    optional,
    parsed,
    plain,
    positive,
    record_of,
    refuse,
    text,
    whole,
)

FORMAT = "kernel-tune bundle"
VERSION = 2
"""With structs by value, variables that launches fill, and the dtypes from int16 on; others are of format 1."""
MAX_DIMENSIONS = 32
MAX_MEMBERS, MAX_POINTS = 64, 4096
"""Of a portfolio."""
MAX_STRUCTS = 16
"""One in another."""
ROLES = ("input", "output", "inout")

_name = matching(r"[A-Za-z_][A-Za-z0-9_]{0,199}", "a name of letters, digits and _")
_entry = matching(r"[A-Za-z_][A-Za-z0-9_$]{0,9999}", "a name of letters, digits, _ and $")
"""That of a template's instance is long."""
_sha = matching(r"[0-9a-f]{32}", "32 hexadecimal digits")
_cc_key = matching(r"[1-9][0-9]{1,3}", "a compute capability times ten")
_cc = whole(10, 9999)
_index = whole(0, 2**31)
_dtype = matching("|".join(ITEMSIZE), f"one of {', '.join(ITEMSIZE)}")
_role = matching("|".join(ROLES), f"one of {', '.join(ROLES)}")
_probe = record_of(entries.ProbeEntry, cubin=_sha, entry=_entry)
_default = record_of(entries.DefaultEntry, computation=_index, cc=_cc, configuration=_index)


def _condition(reason: str, holds: Expression) -> tuple[str, Expression]:
    return reason, holds


def _pair(value: Any, where: str) -> tuple[str, str]:
    pair = list_of(text, 2, 2)(value, where)
    return _entry(pair[0], where), _name(pair[1], where)


def _transposed(value: Any, where: str) -> Expression | None:
    return Expression(True) if flag(value, where) else None


def _by_name(kind: str) -> Read[entries.ArgumentEntry]:
    return record_of(lambda **given: entries.ArgumentEntry(given[kind], kind=kind), {}, **{kind: _name})


def _mapped(
    map: Sequence[str], box: tuple[Expression, ...], swizzle: Expression, l2_promotion: Expression
) -> entries.ArgumentEntry:
    cut = entries.MapEntry(box, swizzle, l2_promotion, tuple(map[1:]))
    return entries.ArgumentEntry(map[0], map=cut)


def file_digest(data: bytes) -> str:
    """Return the name, without its ending, that a file of a bundle has: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def read_manifest(data: bytes) -> entries.Manifest:
    """Return what the bytes of ``manifest.json`` say.

    Raises:
        BundleError: they are damaged, or in a newer version of the format.
    """
    top = JsonObject(parsed(data), "")
    if (form := top.take("format", text)) != FORMAT:
        refuse("", f"its format is {form[:80]!r}, not {FORMAT!r}")
    if (version := top.take("version", whole(1, 2**31))) > VERSION:
        raise BundleError(
            f"{FILE} has version {version} of the format, and this kernel-tune reads up to {VERSION}",
            "update kernel-tune, or write the bundle with an older one",
        )
    sizes = top.take("sizes", list_of(_name, 0, MAX_KEYS))  # each is a key of every winner's
    check_different(sizes, "sizes")
    for name in set(sizes) & set(DEVICE_LIMITS):
        refuse("sizes", f"{name} is a limit of the GPU")
    reader = _Reader(sizes)
    manifest = entries.Manifest(
        tool=top.take("tool", text),
        kernel=top.take("kernel", text),
        summary=top.take("summary", text),
        license=top.take("license", text),
        minimum_driver=top.take("minimum_driver", whole(0, 10**6)),
        sizes=sizes,
        probe={int(cc): probe for cc, probe in top.take("probe", mapping_of(_cc_key, _probe), {}).items()},
        computations=top.take("computations", list_of(reader.computation)),
        configurations=top.take("configurations", list_of(reader.configuration)),
        winners=top.take("winners", list_of(reader.winner), ()),
        defaults=top.take("defaults", list_of(_default), ()),
        portfolios=top.take("portfolios", list_of(reader.portfolio), ()),
    )
    top.done(manifest)
    _check_configurations(manifest)
    _check_winners(manifest)
    _check_portfolios(manifest)
    return manifest


class _Reader:
    """Reads what has expressions, or sizes.

    Args:
        sizes: names of the sizes.
    """

    def __init__(self, sizes: tuple[str, ...]) -> None:
        self._sizes = sizes
        self._names = frozenset((*sizes, *DEVICE_LIMITS))
        self._read_launch = self._launch_reader()
        expression, shape = self._expression, list_of(self._expression, 0, MAX_DIMENSIONS)
        plain_map = {"swizzle": Expression(0), "l2_promotion": Expression(0)}
        self._arguments: dict[str, Read[entries.ArgumentEntry]] = {
            **{kind: _by_name(kind) for kind in ("tensor", "scratch", "scalar", "stride")},
            "value": record_of(entries.ArgumentEntry, value=expression, dtype=_dtype),
            "cluster_order": record_of(entries.ArgumentEntry, cluster_order=expression),
            "one_of": record_of(entries.ArgumentEntry, one_of=list_of(_name, 1), index=expression),
            "fields": record_of(
                entries.ArgumentEntry, {"alignment": 1}, fields=list_of(self._field, 1), alignment=whole(1, 256)
            ),
            "map": record_of(
                _mapped, plain_map, map=list_of(_name, 1), box=list_of(expression, 2, 2), swizzle=expression,
                l2_promotion=expression,
            ),
        }  # fmt: skip
        """By the key that tells one from another."""
        tensor = record_of(
            entries.TensorEntry, {"transposed": None, "when": None},
            name=_name, role=_role, dtype=_dtype, shape=shape, transposed=_transposed, when=expression,
        )  # fmt: skip
        scalar = record_of(entries.ScalarEntry, name=_name, dtype=_dtype, value=expression)
        self._computation = record_of(
            entries.Computation, {"options": {}, "scalars": ()},
            dtypes=mapping_of(_name, _dtype), options=mapping_of(_name, plain), tensors=list_of(tensor),
            scalars=list_of(scalar),
        )  # fmt: skip
        scratch = record_of(
            entries.ScratchEntry, {"zeroed": False, "zeroed_once": False, "when": None},
            name=_name, dtype=_dtype, shape=shape, zeroed=flag, zeroed_once=flag, when=expression,
        )  # fmt: skip
        self.configuration = record_of(
            entries.ConfigurationEntry, {"parameters": {}, "requires": (), "scratch": (), "slices": ()},
            computation=_index, cc=_cc, variant=text, parameters=mapping_of(_name, plain),
            requires=list_of(record_of(_condition, reason=text, holds=expression)), scratch=list_of(scratch),
            launches=list_of(self._launch, 1), slices=list_of(self._launch),
        )  # fmt: skip
        self.winner = record_of(
            entries.WinnerEntry, {"mode": ""},
            computation=_index, gpu=text, sizes=self._all_sizes, configuration=_index, time_ns=positive, mode=text,
        )  # fmt: skip
        residuals = list_of(optional(whole(-MAX_RESIDUAL, MAX_RESIDUAL)), 1, MAX_MEMBERS)
        member = record_of(
            entries.MemberEntry, {"cost": entries.MemberEntry.cost}, configuration=_index, cost=expression
        )
        point = record_of(entries.PointEntry, sizes=self._all_sizes, residuals=residuals)
        self.portfolio = record_of(
            entries.PortfolioEntry, computation=_index, gpu=text, bound=positive, neighbours=whole(1, MAX_MEMBERS),
            reach=whole(UNIT // 16, 64 * UNIT), cost_weight=whole(0, UNIT), members=list_of(member, 1, MAX_MEMBERS),
            points=list_of(point, 1, MAX_POINTS),
        )  # fmt: skip

    def _launch_reader(self) -> Read[entries.LaunchEntry]:
        expression, sides = self._expression, list_of(self._expression, 1, 3)
        flags = {"cooperative": False, "programmatic": False}
        absent = dict.fromkeys(("when", "carveout", "alignment", "resident"))
        return record_of(
            entries.LaunchEntry,
            {**absent, **flags, "shared_bytes": Expression(0), "cluster": (), "repeat": (), "constants": ()},
            repeat=list_of(self._loop, 0, MAX_LOOPS),  # first, for what follows may name the loops
            cubin=_sha, source=_sha, entry=_entry, when=expression, grid=sides, block=sides,
            shared_bytes=expression, cluster=list_of(expression, 0, 3), cooperative=flag, programmatic=flag,
            carveout=expression, alignment=expression, resident=expression, arguments=list_of(self._argument),
            constants=list_of(_pair),
        )  # fmt: skip

    def _launch(self, value: Any, where: str) -> entries.LaunchEntry:
        outside = self._names
        try:
            return self._read_launch(value, where)
        finally:
            self._names = outside

    def _loop(self, value: Any, where: str) -> entries.RepeatEntry:
        """Read a loop; what follows of its launch may use its name."""
        table = JsonObject(value, where)
        loop = entries.RepeatEntry(table.take("name", _name), table.take("count", self._expression))
        if loop.name in self._names:
            refuse(where, f"{loop.name} is there twice")
        self._names |= {loop.name}
        return table.done(loop)

    def _expression(self, value: Any, where: str) -> Expression:
        try:
            return Expression(check(value, self._names))
        except ValueError as error:
            refuse(where, str(error))

    def computation(self, value: Any, where: str) -> entries.Computation:
        computation = self._computation(value, where)
        names = [item.name for item in computation.tensors] + [item.name for item in computation.scalars]
        check_different(names, where)
        return computation

    def _argument(self, value: Any, where: str) -> entries.ArgumentEntry:
        table = JsonObject(value, where)
        kind = next(filter(table.has, self._arguments), None)
        if kind is None:
            refuse(
                where,
                "it must have tensor, scratch, scalar, stride, value, one_of, fields, map or cluster_order",
            )
        argument = self._arguments[kind](value, where)
        if argument.alignment & (argument.alignment - 1):
            refuse(where, f"alignment {argument.alignment} is no power of two")
        return argument

    def _field(self, value: Any, where: str) -> entries.ArgumentEntry:
        if where.count("fields[") > MAX_STRUCTS:
            refuse(where, "structs are nested too deeply")
        field = self._argument(value, where)
        if field.map or field.cluster_order or field.one_of:
            refuse(where, "a field is a number, an address or a struct")
        return field

    def _all_sizes(self, value: Any, where: str) -> dict[str, int]:
        sizes = mapping_of(_name, whole(1, MAX_SIZE))(value, where)
        if sizes.keys() != set(self._sizes):
            refuse(where, f"sizes must be {', '.join(self._sizes)}")
        return sizes


def _check_configurations(manifest: entries.Manifest) -> None:
    """Raise an error for a configuration that refers to what is not there."""
    for number, configuration in enumerate(manifest.configurations):
        where = f"configurations[{number}]"
        if configuration.computation >= len(manifest.computations):
            refuse(where, f"there is no computation {configuration.computation}")
        computation = manifest.computations[configuration.computation]
        tensors = {item.name for item in computation.tensors}
        scalars = {item.name for item in computation.scalars}
        scratch = {item.name for item in configuration.scratch}
        check_different((*tensors, *scalars, *(item.name for item in configuration.scratch)), where)
        both = tensors | scratch
        named = {"tensor": tensors, "stride": tensors, "scalar": scalars, "scratch": scratch}
        named |= {"map": both, "one_of": both}
        for index, launch in enumerate((*configuration.launches, *configuration.slices)):
            for _, name in launch.constants:
                if name not in tensors:
                    refuse(f"{where}.launches[{index}]", f"there is no tensor {name}")
            for argument in (leaf for one in launch.arguments for leaf in one.leaves):
                kind = argument.kind or ("map" if argument.map else "one_of")
                for name in argument.buffers:
                    if name not in named[kind]:
                        refuse(f"{where}.launches[{index}]", f"there is no {kind} {name}")
                numbered = argument.cluster_order is not None and argument.cluster_order.tree != 0
                if numbered and configuration.cc not in manifest.probe:
                    refuse(where, f"there is no probe {configuration.cc}")


def _check_winners(manifest: entries.Manifest) -> None:
    """Raise an error for a winner or default whose configuration is not there, or computes something else."""
    chosen: Iterable[tuple[str, entries.WinnerEntry | entries.DefaultEntry]] = (
        *((f"winners[{number}]", item) for number, item in enumerate(manifest.winners)),
        *((f"defaults[{number}]", item) for number, item in enumerate(manifest.defaults)),
    )
    for where, item in chosen:
        if item.configuration >= len(manifest.configurations):
            refuse(where, f"there is no configuration {item.configuration}")
        configuration = manifest.configurations[item.configuration]
        other_cc = isinstance(item, entries.DefaultEntry) and item.cc != configuration.cc
        if item.computation != configuration.computation or other_cc:
            refuse(
                where, f"configuration {item.configuration} is for another computation or compute capability"
            )


def _check_portfolios(manifest: entries.Manifest) -> None:
    """Raise an error for a portfolio whose members or points do not fit together."""
    for number, portfolio in enumerate(manifest.portfolios):
        where = f"portfolios[{number}]"
        chosen = [member.configuration for member in portfolio.members]
        if max(chosen) >= len(manifest.configurations):
            refuse(where, f"there is no configuration {max(chosen)}")
        if len(set(chosen)) != len(chosen):
            refuse(where, "a configuration is there twice")
        members = [manifest.configurations[configuration] for configuration in chosen]
        if {(item.computation, item.cc) for item in members} != {(portfolio.computation, members[0].cc)}:
            refuse(where, "a configuration is for another computation or compute capability")
        for index, point in enumerate(portfolio.points):
            if len(point.residuals) != len(chosen):
                refuse(f"{where}.points[{index}]", f"residuals must be {len(chosen)}, one for each member")
