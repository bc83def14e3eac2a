"""Initial configurations, tried first by a run: those of the kernel's file, settled, and a library's heuristics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.initial import settle
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.search import matmul_heuristics

CHOICES = ("auto", "none", "kernel", "heuristics", "all")
"""What ``--initial`` can be."""
REQUIRING = ("heuristics", "all")
"""With these it is an error if the library is not there."""


@dataclass(frozen=True)
class Initial:
    """Configurations to try first."""

    sources: Mapping[Configuration, str] = field(default_factory=dict)
    """Where each comes from, in the order in which they are tried."""
    notes: tuple[str, ...] = ()
    """Why a source gave none."""


def refuse(kernel: KernelSpec, which: str) -> None:
    """Check, before anything is measured, that a required library is there.

    Raises:
        UsageError: it cannot.
    """
    if which not in REQUIRING:
        return
    if kernel.matmul is None:
        raise UsageError(
            f"{kernel.file} does not say what to make of heuristics",
            "add [heuristics.matmul] to it, or leave out --initial",
        )
    matmul_heuristics.require()


def gather(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, space: SearchSpace, which: str, *, recorded: bool
) -> Initial:
    """Return the initial configurations of a run.

    Args:
        kernel: whose file may have some, and say what becomes of a library's proposals.
        problem: what is computed.
        gpu: on which.
        space: configurations outside of it are left out.
        which: one of :data:`CHOICES`. ``auto`` takes what there is: the kernel's own, and those of the library if it
            is installed and the kernel's file says how; not for a recording, so that it gives the same run everywhere.
        recorded: whether the times come from a recording.

    Raises:
        UsageError: the library is required, and is not there.
        TunerError: it is required, and fails.
    """
    sources: dict[Configuration, str] = {}
    notes: list[str] = []
    if which in ("auto", "kernel", "all"):
        for settled in settle(kernel, problem, gpu, space.contains):
            if settled.configuration is not None:
                sources[settled.configuration] = settled.spec.file or kernel.file.name
    refuse(kernel, which)
    required = which in REQUIRING
    if required or (
        which == "auto" and not recorded and kernel.matmul is not None and matmul_heuristics.installed()
    ):
        try:
            proposed = matmul_heuristics.propose(kernel, problem, gpu, space)
        except TunerError as error:
            if required:
                raise
            notes.append(error.problem)
        else:
            for configuration in proposed:
                sources.setdefault(configuration, matmul_heuristics.source())
    return Initial(sources, tuple(notes))
