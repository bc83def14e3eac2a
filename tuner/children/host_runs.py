"""What the head and the child that runs kernels on the CPU say to each other."""

from __future__ import annotations

from pathlib import Path

from tuner.children.record import Record
from tuner.core.model import Configuration, Gpu, Problem
from tuner.core.processes import Channel


class HostRequest(Record, frozen=True):
    """Run something at each of some problems, up to the first fault."""

    kernel_file: Path
    gpu: Gpu
    problems: tuple[Problem, ...]
    folder: Path
    """Of this child, for what it compiles."""
    reference_only: bool = False
    """Whether the NumPy or Python reference is evaluated, and nothing else."""
    configuration: Configuration | None = None
    """None for the CUDA reference, which is compared with the other one."""


class HostResult(Record, frozen=True):
    """What came of one problem."""

    fault: str = ""
    """What is wrong with the kernel or the reference."""
    remedy: str = ""
    unsuitable: str = ""
    """Why this cannot be run on a CPU; nothing follows."""
    compared: bool = False
    """Whether there was something to compare the results with."""


HOST_RUNS: Channel[HostRequest, HostResult] = Channel(HostRequest, HostResult)
"""A result for each problem, in order."""
