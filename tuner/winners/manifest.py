"""A manifest, format 2: what a program needs to call winners (``docs/bundles.md`` describes it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tuner.core import paths
from tuner.core.model import Resources
from tuner.core.version import __version__
from tuner.runtime.dtypes import FORMAT_1
from tuner.runtime.entries import (
    ArgumentEntry,
    DefaultEntry,
    Manifest,
    MemberEntry,
    PointEntry,
    PortfolioEntry,
    ProbeEntry,
    WinnerEntry,
)
from tuner.runtime.expressions import Expression
from tuner.runtime.manifest import FORMAT, VERSION
from tuner.winners.contents import Contents
from tuner.winners.portfolios import Portfolio
from tuner.winners.records import CompiledLaunch, computation_of, configuration_of

Record = dict[str, Any]
"""A part of a manifest, as JSON."""
LICENSE = "Apache-2.0: the launchers, and the sources and cubins of this built-in kernel; see LICENSE"
OWN_LICENSE = (
    "Apache-2.0: the launchers, see LICENSE; the generated sources and cubins: that of the kernel's own files"
)
ALWAYS = ("role",)
"""Keys that a manifest has even where they have a kernel file's default."""
PROBE_ENTRY = "whereabouts"
"""The kernel of ``templates/common/helpers.cu.j2`` that shows in which GPC clusters run."""


@dataclass(frozen=True)
class CompiledConfiguration:
    """A configuration's launches by number, as compiled."""

    launches: Mapping[int, CompiledLaunch]
    resources: Resources | None
    """What the compiler reported; None where constraints do not ask for it."""
    slices: Mapping[int, CompiledLaunch] = field(default_factory=dict)
    """The launches where rows of outputs lie apart; none where they were not compiled."""


def manifest_of(
    contents: Contents,
    compiled: Sequence[CompiledConfiguration | None],
    probes: Mapping[int, str],
    nvrtc_major: int,
) -> Manifest:
    """Return the manifest.

    Args:
        contents: what it says.
        compiled: each of its configurations; None leaves one out, with the winners and defaults that name it.
        probes: the name of the cubin by which GPUs of a compute capability are probed, where that is needed.
        nvrtc_major: version of the compiler: a driver of the same one, or a later, loads its cubins.

    Raises:
        KernelError: an expression that a program cannot evaluate.
    """
    configurations = contents.configurations
    computations = [contents.computation_of(bundled) for bundled in configurations]
    there = [(number, item) for number, item in enumerate(compiled) if item is not None]
    new = {number: index for index, (number, _) in enumerate(there)}
    return Manifest(
        f"kernel-tune {__version__}",
        contents.kernel.name,
        contents.kernel.summary,
        LICENSE if contents.kernel.folder == paths.search_spaces() else OWN_LICENSE,
        1000 * nvrtc_major,
        tuple(contents.kernel.sizes),
        {cc: ProbeEntry(cubin, PROBE_ENTRY) for cc, cubin in sorted(probes.items())},
        tuple(computation_of(contents.kernel, problem) for problem in contents.computations),
        tuple(
            configuration_of(
                configurations[number], computations[number], item.launches, item.resources, item.slices
            )
            for number, item in there
        ),
        tuple(
            WinnerEntry(
                computations[number],
                stored.run.gpu.name,
                dict(stored.run.problem.sizes),
                new[number],
                float(stored.winner.time_ns),
                str(stored.run.conditions.mode),
            )
            for number, stored in contents.winners
            if number in new
        ),
        tuple(
            DefaultEntry(computations[number], configurations[number].gpu.cc, new[number])
            for number in contents.defaults
            if number in new
        ),
        tuple(
            _portfolio(computations[members[0]], members, stored, new)
            for members, stored in contents.portfolios
            if new.keys() & set(members)
        ),
    )


def _portfolio(
    computation: int, numbers: Sequence[int], stored: Portfolio, new: Mapping[int, int]
) -> PortfolioEntry:
    """Return a portfolio's entry, without members that are left out.

    Args:
        computation: the number of its computation.
        numbers: those of its members' configurations in the contents.
        stored: the portfolio.
        new: numbers of configurations in the manifest, by those of the contents.
    """
    fit = stored.fit
    there = [index for index, number in enumerate(numbers) if number in new]
    return PortfolioEntry(
        computation,
        stored.gpu.name,
        stored.bound,
        fit.neighbours,
        fit.reach,
        fit.cost_weight,
        tuple(MemberEntry(new[numbers[index]], stored.costs[index].folded) for index in there),
        tuple(
            PointEntry(dict(problem.sizes), tuple(residuals[index] for index in there))
            for problem, residuals in zip(stored.problems, fit.residuals, strict=True)
        ),
    )


def manifest_record(made: Manifest) -> Record:
    """Return a manifest as JSON."""
    return {"format": FORMAT, "version": 1 if _as_before(made) else VERSION, **json_of(made)}


def _as_before(made: Manifest) -> bool:
    """Return whether launchers of format 1 can run it all."""
    launches = [launch for one in made.configurations for launch in (*one.launches, *one.slices)]
    leaves = [leaf for launch in launches for argument in launch.arguments for leaf in argument.leaves]
    dtypes = {leaf.dtype for leaf in leaves}
    for one in made.computations:
        dtypes |= {*one.dtypes.values(), *(item.dtype for item in one.tensors)}
        dtypes |= {item.dtype for item in one.scalars}
    dtypes |= {item.dtype for each in made.configurations for item in each.scratch}
    arguments = [argument for launch in launches for argument in launch.arguments]
    later = any(argument.fields or argument.one_of for argument in arguments)
    later = later or any(launch.constants or launch.repeat for launch in launches)
    return not later and dtypes <= set(FORMAT_1)


def json_of(value: Any) -> Any:
    """Return a part of a manifest as JSON; what has its default is left out."""
    match value:
        case Expression(tree=tree):
            return json_of(tree)
        case (str() as reason, Expression() as holds):
            return {"reason": reason, "holds": json_of(holds)}
        case ArgumentEntry():
            return _argument(value)
        case Mapping():
            return {str(key): json_of(item) for key, item in value.items()}
        case tuple():
            return [json_of(item) for item in value]
    if not is_dataclass(value):
        return value
    return {
        item.name: json_of(told)
        for item in fields(value)
        if (told := getattr(value, item.name)) != item.default or item.name in ALWAYS
    }


def _argument(argument: ArgumentEntry) -> Record:
    if argument.map is not None:
        cut = json_of(argument.map)
        names = [argument.name, *cut.pop("instead", ())]
        return {"map": names, "box": cut["box"], "swizzle": cut["swizzle"], "l2_promotion": cut["promotion"]}
    if argument.value is not None:
        return {"value": json_of(argument.value), "dtype": argument.dtype}
    if argument.cluster_order is not None:
        return {"cluster_order": json_of(argument.cluster_order)}
    if argument.index is not None:
        return {"one_of": list(argument.one_of), "index": json_of(argument.index)}
    if argument.fields:
        aligned = {"alignment": argument.alignment} if argument.alignment > 1 else {}
        return {"fields": [_argument(field) for field in argument.fields], **aligned}
    return {argument.kind: argument.name}
