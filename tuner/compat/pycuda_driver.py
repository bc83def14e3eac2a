"""What Kernel Tuner's scripts with host code take from ``pycuda.driver``: page-locked arrays.

They are ordinary arrays here; the process that calls the host code locks their pages. No context is made: this
process leaves the GPU alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike


class host_alloc_flags:  # noqa: N801 - as PyCUDA has it
    """All pages are locked in the same way: portable, and mapped into the GPU's addresses."""

    PORTABLE, DEVICEMAP, WRITECOMBINED = 1, 2, 4


class PageLocked(np.ndarray[Any, Any]):
    """An array whose pages are locked where host code uses it."""


def pagelocked_empty(shape: Any, dtype: DTypeLike, order: Any = "C", mem_flags: int = 0) -> PageLocked:  # noqa: ARG001
    """Return an array whose elements are undefined."""
    return np.empty(shape, dtype, order).view(PageLocked)


def pagelocked_zeros(shape: Any, dtype: DTypeLike, order: Any = "C", mem_flags: int = 0) -> PageLocked:
    """Return an array of zeros."""
    made = pagelocked_empty(shape, dtype, order, mem_flags)
    made.fill(0)
    return made


class Context:
    """Stands for a context; it is none."""

    def pop(self) -> None:
        """Do nothing."""

    detach = synchronize = pop


class Device:
    """A GPU by its number; kernels run on that of ``tune_kernel``."""

    def __init__(self, number: int) -> None:
        self.number = number

    def make_context(self, *_: Any) -> Context:
        """Return what has :meth:`Context.pop`."""
        return Context()

    retain_primary_context = make_context


def init(flags: int = 0) -> None:
    """Do nothing: CUDA is initialised where kernels run."""
