"""A manifest, format 1: what a program needs to call winners (``docs/bundles.md`` describes it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.core import paths
from tuner.core.model import Resources
from tuner.core.version import __version__
from tuner.winners.contents import BundledPortfolio, Contents
from tuner.winners.records import CompiledLaunch, Record, computation_record, configuration_record

FORMAT = "kernel-tune bundle"
VERSION = 1
LICENSE = "Apache-2.0: the launchers, and the sources and cubins of this built-in kernel; see LICENSE"
OWN_LICENSE = (
    "Apache-2.0: the launchers, see LICENSE; the generated sources and cubins: that of the kernel's own files"
)
PROBE_ENTRY = "whereabouts"
"""The kernel of ``templates/common/helpers.cu.j2`` that shows in which GPC clusters run."""


@dataclass(frozen=True)
class CompiledConfiguration:
    """A configuration's launches by number, as compiled."""

    launches: Mapping[int, CompiledLaunch]
    resources: Resources | None
    """What the compiler reported; None where constraints do not ask for it."""


def manifest(
    contents: Contents,
    compiled: Sequence[CompiledConfiguration | None],
    probes: Mapping[int, str],
    nvrtc_major: int,
) -> Record:
    """Return the manifest, as JSON.

    Args:
        contents: what it says.
        compiled: each of its configurations; None leaves one out, with the winners and defaults that name it.
        probes: the name of the cubin by which GPUs of a compute capability are probed, where that is needed.
        nvrtc_major: version of the compiler: a driver of the same one, or a later, loads its cubins.

    Raises:
        KernelError: an expression that a program cannot evaluate.
    """
    of = [(number, item) for number, item in enumerate(compiled) if item is not None]
    new = {number: index for index, (number, _) in enumerate(of)}
    portfolios = [_portfolio(one, new) for one in contents.portfolios if new.keys() & set(one.members)]
    return {
        "format": FORMAT,
        "version": VERSION,
        "tool": f"kernel-tune {__version__}",
        "kernel": contents.kernel.name,
        "summary": contents.kernel.summary,
        "license": LICENSE if contents.kernel.folder == paths.search_spaces() else OWN_LICENSE,
        "minimum_driver": 1000 * nvrtc_major,
        "sizes": list(contents.kernel.sizes),
        "probe": {str(cc): {"cubin": cubin, "entry": PROBE_ENTRY} for cc, cubin in sorted(probes.items())},
        "computations": [computation_record(contents.kernel, problem) for problem in contents.computations],
        "configurations": [
            configuration_record(bundled, contents.computation_of(bundled), item.launches, item.resources)
            for bundled, item in ((contents.configurations[number], item) for number, item in of)
        ],
        "winners": [
            {
                "computation": winner.computation,
                "gpu": winner.stored.run.gpu.name,
                "sizes": dict(winner.stored.run.problem.sizes),
                "configuration": new[winner.configuration],
                "time_ns": float(winner.stored.winner.time_ns),
                "mode": str(winner.stored.run.conditions.mode),
            }
            for winner in contents.winners
            if winner.configuration in new
        ],
        "defaults": [
            {"computation": item.computation, "cc": item.cc, "configuration": new[item.configuration]}
            for item in contents.defaults
            if item.configuration in new
        ],
        **({"portfolios": portfolios} if portfolios else {}),
    }


def _portfolio(bundled: BundledPortfolio, new: Mapping[int, int]) -> Record:
    """Return a portfolio's record, without members that are left out.

    Args:
        bundled: the portfolio.
        new: numbers of configurations in the manifest, by those of the contents.
    """
    stored, fit = bundled.stored, bundled.stored.fit
    there = [index for index, number in enumerate(bundled.members) if number in new]
    members = []
    for index in there:
        cost = stored.costs[index].folded
        members.append(
            {"configuration": new[bundled.members[index]], **({} if cost == 1 else {"cost": cost})}
        )
    points = [
        {"sizes": dict(problem.sizes), "residuals": [residuals[index] for index in there]}
        for problem, residuals in zip(stored.problems, fit.residuals, strict=True)
    ]
    return {
        "computation": bundled.computation,
        "gpu": stored.gpu.name,
        "bound": stored.bound,
        "neighbours": fit.neighbours,
        "reach": fit.reach,
        "cost_weight": fit.cost_weight,
        "members": members,
        "points": points,
    }
