"""What a run tries first, and where it comes from: the kernel's own seeds, and what a library proposes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.errors import TunerError, UsageError
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Problem
from tuner.search import matmul_heuristics
from tuner.search.kernel_initial import settle
from tuner.space.space import SearchSpace

CHOICES = ("auto", "none", "kernel", "heuristics", "all")
"""What ``--seeds`` can be."""
INSISTING = ("heuristics", "all")
"""With these a library that cannot be asked is an error."""


@dataclass(frozen=True)
class Seeds:
    """Configurations to try first."""

    sources: Mapping[Configuration, str] = field(default_factory=dict)
    """Where each comes from, in the order in which they are tried."""
    notes: tuple[str, ...] = ()
    """What should have given some and did not, and why."""


def refuse(kernel: KernelSpec, which: str) -> None:
    """Say early that a library that is insisted on cannot be asked.

    Raises:
        UsageError: that.
    """
    if which not in INSISTING:
        return
    if kernel.matmul is None:
        raise UsageError(
            f"{kernel.file} does not say what to make of heuristics",
            "add [heuristics.matmul] to it, or leave out --seeds",
        )
    matmul_heuristics.require()


def gather(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, space: SearchSpace, which: str, *, recorded: bool
) -> Seeds:
    """Collect the seeds of a run.

    Args:
        kernel: whose file may have seeds, and say what becomes of a library's proposals.
        problem: what is computed.
        gpu: on which.
        space: seeds outside of it are left out.
        which: one of :data:`CHOICES`. ``auto`` takes what there is: the kernel's own, and those of the library if it
            is installed and the kernel's file says how; not for a recording, so that it gives the same run everywhere.
        recorded: whether the times come from a recording.

    Raises:
        UsageError: the library is insisted on, and cannot be asked.
        TunerError: it is insisted on, and fails.
    """
    sources: dict[Configuration, str] = {}
    notes: list[str] = []
    if which in ("auto", "kernel", "all"):
        for settled in settle(kernel, problem, gpu, space):
            if settled.configuration is not None:
                sources[settled.configuration] = kernel.file.name
    refuse(kernel, which)
    insisted = which in INSISTING
    if insisted or (
        which == "auto" and not recorded and kernel.matmul is not None and matmul_heuristics.installed()
    ):
        try:
            proposed = matmul_heuristics.propose(kernel, problem, gpu, space)
        except TunerError as error:
            if insisted:
                raise
            notes.append(error.problem)
        else:
            for configuration in proposed:
                sources.setdefault(configuration, matmul_heuristics.source())
    return Seeds(sources, tuple(notes))
