"""What a tuned kernel is compared with: a library's call, a user's own kernel or Python function, NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class BaselineKind(StrEnum):
    """How a baseline is run."""

    CALL = "call"
    """A library's function on the GPU, from the kernel's file: ``torch.mm(a, b, out=c)``."""
    PYTHON = "python"
    """A user's function on GPU tensors: ``module:function`` or ``file.py:function``."""
    LAUNCH = "launch"
    """A user's kernel: ``name<<<grid, block, shared>>>(arguments)`` of a ``.cu`` or ``.cubin`` file."""
    NUMPY = "numpy"
    """The NumPy reference on the CPU."""


@dataclass(frozen=True)
class Baseline:
    """One of them."""

    name: str
    """As tables show it: ``torch``, ``numpy``, ``mine.cu``."""
    kind: BaselineKind
    text: str
    file: Path | None = None
