"""A problem as a process with a GPU gets it: tensors, how to compute what is expected, and a compiled candidate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import field

from tuner.children.record import Record
from tuner.core.model import Value
from tuner.kernel.functions import PythonFunction
from tuner.runtime.launches import Buffer, Launch, Plan


class CudaReference(Record, frozen=True):
    """The kernel's CUDA reference, compiled."""

    cubin: bytes
    entry: str
    launch: Launch


class ReferenceData(Record, frozen=True):
    """How to find out what a problem's outputs must be, and how far they may be from it."""

    accumulate: str
    """Dtype of the kernel's sums."""
    reduction: int = 1
    """Terms of a sum."""
    tolerance: float = 1.0
    """Factor of the allowance."""
    operand_rounding: float = 0.0
    """Relative error of an operand that the kernel rounds."""
    numpy: Mapping[str, str] = field(default_factory=dict)
    """Expression of each output."""
    cuda: CudaReference | None = None
    golden: Mapping[str, Path] = field(default_factory=dict)
    """File of each output."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, Value] = field(default_factory=dict)
    flops: float = 1.0
    """Of the problem: NumPy checks the CUDA reference where they are few."""
    python: PythonFunction | None = None
    """A function for the outputs without an expression."""


class ProblemSetup(Record, frozen=True):
    """The tensors of a problem and its reference."""

    tensors: tuple[Buffer, ...]
    reference: ReferenceData


class Candidate(Record, frozen=True):
    """A compiled configuration, or another kernel that can be launched."""

    plan: Plan
    cubins: tuple[bytes, ...]
    """Of each launch, as are the entries."""
    entries: tuple[str, ...]
