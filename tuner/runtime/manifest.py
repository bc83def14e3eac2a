"""Read the manifest of a bundle: what is damaged, newer or refers to nothing is refused in one line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from ..errors import BundleError
from .dtypes import ITEMSIZE
from .expressions import Expression, check
from .launch_limits import DEVICE_LIMITS
from .manifest_records import (
    ArgumentEntry,
    Computation,
    ConfigurationEntry,
    DefaultEntry,
    LaunchEntry,
    Manifest,
    MemberEntry,
    PointEntry,
    PortfolioEntry,
    ProbeEntry,
    Requirement,
    ScalarEntry,
    ScratchEntry,
    TensorEntry,
    WinnerEntry,
)
from .portfolio import MAX_RESIDUAL, UNIT
from .strict_json import (
    FILE,
    JsonObject,
    check_different,
    flag,
    list_of,
    mapping_of,
    matching,
    optional,
    parsed,
    plain,
    positive,
    refuse,
    text,
    whole,
)

FORMAT = "kernel-tune bundle"
VERSION = 1
MAX_DIMENSIONS = 32
MAX_SIZE = 2**62
MAX_MEMBERS, MAX_POINTS = 64, 4096
"""Of a portfolio."""
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


def file_digest(data: bytes) -> str:
    """Return the name, without its ending, that a file of a bundle has: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:32]


def read_manifest(data: bytes) -> Manifest:
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
    sizes = top.take("sizes", list_of(_name))
    check_different(sizes, "sizes")
    for name in set(sizes) & set(DEVICE_LIMITS):
        refuse("sizes", f"{name} is a limit of the GPU")
    reader = _Reader(sizes)
    manifest = Manifest(
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


def _probe(value: Any, where: str) -> ProbeEntry:
    table = JsonObject(value, where)
    return table.done(ProbeEntry(table.take("cubin", _sha), table.take("entry", _entry)))


def _default(value: Any, where: str) -> DefaultEntry:
    table = JsonObject(value, where)
    return table.done(
        DefaultEntry(
            table.take("computation", _index), table.take("cc", _cc), table.take("configuration", _index)
        )
    )


class _Reader:
    """Reads what has expressions, or sizes.

    Args:
        sizes: names of the sizes.
    """

    def __init__(self, sizes: tuple[str, ...]) -> None:
        self._sizes = sizes
        self._names = frozenset((*sizes, *DEVICE_LIMITS))
        self._expressions = list_of(self._expression, 1, 3)
        self._shape = list_of(self._expression, 0, MAX_DIMENSIONS)

    def _expression(self, value: Any, where: str) -> Expression:
        try:
            return check(value, self._names)
        except ValueError as error:
            refuse(where, str(error))

    def computation(self, value: Any, where: str) -> Computation:
        table = JsonObject(value, where)
        computation = Computation(
            table.take("dtypes", mapping_of(_name, _dtype)),
            table.take("options", mapping_of(_name, plain), {}),
            table.take("tensors", list_of(self._tensor)),
            table.take("scalars", list_of(self._scalar), ()),
        )
        names = [item.name for item in computation.tensors] + [item.name for item in computation.scalars]
        check_different(names, where)
        return table.done(computation)

    def _tensor(self, value: Any, where: str) -> TensorEntry:
        table = JsonObject(value, where)
        return table.done(
            TensorEntry(
                table.take("name", _name),
                table.take("role", _role),
                table.take("dtype", _dtype),
                table.take("shape", self._shape),
                table.take("transposed", flag, False),
                table.take("when", self._expression, 1),
            )
        )

    def _scalar(self, value: Any, where: str) -> ScalarEntry:
        table = JsonObject(value, where)
        name, dtype = table.take("name", _name), table.take("dtype", _dtype)
        return table.done(ScalarEntry(name, dtype, table.take("value", self._expression)))

    def configuration(self, value: Any, where: str) -> ConfigurationEntry:
        table = JsonObject(value, where)
        return table.done(
            ConfigurationEntry(
                table.take("computation", _index),
                table.take("cc", _cc),
                table.take("variant", text),
                table.take("parameters", mapping_of(_name, plain), {}),
                table.take("requires", list_of(self._requirement), ()),
                table.take("scratch", list_of(self._scratch), ()),
                table.take("launches", list_of(self._launch, 1)),
            )
        )

    def _requirement(self, value: Any, where: str) -> Requirement:
        table = JsonObject(value, where)
        return table.done(Requirement(table.take("reason", text), table.take("holds", self._expression)))

    def _scratch(self, value: Any, where: str) -> ScratchEntry:
        table = JsonObject(value, where)
        return table.done(
            ScratchEntry(
                table.take("name", _name),
                table.take("dtype", _dtype),
                table.take("shape", self._shape),
                table.take("zeroed", flag, False),
                table.take("zeroed_once", flag, False),
                table.take("when", self._expression, 1),
            )
        )

    def _launch(self, value: Any, where: str) -> LaunchEntry:
        table = JsonObject(value, where)
        return table.done(
            LaunchEntry(
                cubin=table.take("cubin", _sha),
                source=table.take("source", _sha),
                entry=table.take("entry", _entry),
                when=table.take("when", self._expression, 1),
                grid=table.take("grid", self._expressions),
                block=table.take("block", self._expressions),
                shared_bytes=table.take("shared_bytes", self._expression, 0),
                cluster=table.take("cluster", list_of(self._expression, 0, 3), ()),
                cooperative=table.take("cooperative", flag, False),
                programmatic=table.take("programmatic", flag, False),
                carveout=table.take("carveout", self._expression, None),
                alignment=table.take("alignment", self._expression, 1),
                resident=table.take("resident", self._expression, 0),
                arguments=table.take("arguments", list_of(self._argument)),
            )
        )

    def _argument(self, value: Any, where: str) -> ArgumentEntry:
        table = JsonObject(value, where)
        for kind in ("tensor", "scratch", "scalar"):
            if table.has(kind):
                return table.done(ArgumentEntry(kind, (table.take(kind, _name),)))
        if table.has("value"):
            number = table.take("value", self._expression)
            return table.done(ArgumentEntry("value", value=number, dtype=table.take("dtype", _dtype)))
        if table.has("cluster_order"):
            order = table.take("cluster_order", self._expression)
            return table.done(ArgumentEntry("cluster_order", value=order))
        if not table.has("map"):
            refuse(where, "it must have tensor, scratch, scalar, value, map or cluster_order")
        return table.done(
            ArgumentEntry(
                "map",
                table.take("map", list_of(_name, 1)),
                box=table.take("box", list_of(self._expression, 2, 2)),
                swizzle=table.take("swizzle", self._expression, 0),
                promotion=table.take("l2_promotion", self._expression, 0),
            )
        )

    def winner(self, value: Any, where: str) -> WinnerEntry:
        table = JsonObject(value, where)
        return table.done(
            WinnerEntry(
                table.take("computation", _index),
                table.take("gpu", text),
                table.take("sizes", self._all_sizes),
                table.take("configuration", _index),
                table.take("time_ns", positive),
                table.take("mode", text, ""),
            )
        )

    def portfolio(self, value: Any, where: str) -> PortfolioEntry:
        table = JsonObject(value, where)
        return table.done(
            PortfolioEntry(
                table.take("computation", _index),
                table.take("gpu", text),
                table.take("bound", positive),
                table.take("neighbours", whole(1, MAX_MEMBERS)),
                table.take("reach", whole(UNIT // 16, 64 * UNIT)),
                table.take("cost_weight", whole(0, UNIT)),
                table.take("members", list_of(self._member, 1, MAX_MEMBERS)),
                table.take("points", list_of(self._point, 1, MAX_POINTS)),
            )
        )

    def _member(self, value: Any, where: str) -> MemberEntry:
        table = JsonObject(value, where)
        return table.done(
            MemberEntry(table.take("configuration", _index), table.take("cost", self._expression, 1))
        )

    def _point(self, value: Any, where: str) -> PointEntry:
        table = JsonObject(value, where)
        residuals = list_of(optional(whole(-MAX_RESIDUAL, MAX_RESIDUAL)), 1, MAX_MEMBERS)
        return table.done(
            PointEntry(table.take("sizes", self._all_sizes), table.take("residuals", residuals))
        )

    def _all_sizes(self, value: Any, where: str) -> dict[str, int]:
        sizes = mapping_of(_name, whole(1, MAX_SIZE))(value, where)
        if sizes.keys() != set(self._sizes):
            refuse(where, f"sizes must be {', '.join(self._sizes)}")
        return sizes


def _check_configurations(manifest: Manifest) -> None:
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
        named = {"tensor": tensors, "scalar": scalars, "scratch": scratch, "map": tensors | scratch}
        for index, launch in enumerate(configuration.launches):
            for argument in launch.arguments:
                for name in argument.names:
                    if name not in named[argument.kind]:
                        refuse(f"{where}.launches[{index}]", f"there is no {argument.kind} {name}")
                if argument.kind == "cluster_order" and argument.value != 0:
                    _require(
                        configuration.cc in manifest.probe, where, f"there is no probe {configuration.cc}"
                    )


def _check_winners(manifest: Manifest) -> None:
    """Raise an error for a winner or default whose configuration is not there, or computes something else."""
    chosen: Iterable[tuple[str, WinnerEntry | DefaultEntry]] = (
        *((f"winners[{number}]", item) for number, item in enumerate(manifest.winners)),
        *((f"defaults[{number}]", item) for number, item in enumerate(manifest.defaults)),
    )
    for where, item in chosen:
        _require(
            item.configuration < len(manifest.configurations),
            where,
            f"there is no configuration {item.configuration}",
        )
        configuration = manifest.configurations[item.configuration]
        _require(
            item.computation == configuration.computation
            and (isinstance(item, WinnerEntry) or item.cc == configuration.cc),
            where,
            f"configuration {item.configuration} is for another computation or compute capability",
        )


def _check_portfolios(manifest: Manifest) -> None:
    """Raise an error for a portfolio whose members or points do not fit together."""
    for number, portfolio in enumerate(manifest.portfolios):
        where = f"portfolios[{number}]"
        chosen = [member.configuration for member in portfolio.members]
        _require(
            max(chosen) < len(manifest.configurations), where, f"there is no configuration {max(chosen)}"
        )
        _require(len(set(chosen)) == len(chosen), where, "a configuration is there twice")
        members = [manifest.configurations[configuration] for configuration in chosen]
        _require(
            {(item.computation, item.cc) for item in members} == {(portfolio.computation, members[0].cc)},
            where,
            "a configuration is for another computation or compute capability",
        )
        for index, point in enumerate(portfolio.points):
            _require(
                len(point.residuals) == len(chosen),
                f"{where}.points[{index}]",
                f"residuals must be {len(chosen)}, one for each member",
            )


def _require(condition: bool, where: str, problem: str) -> None:
    if not condition:
        refuse(where, problem)
