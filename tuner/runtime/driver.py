"""The CUDA driver: its failures as exceptions, and what is called by ctypes.

Set-up goes through cuda-python's bindings. What every launch calls goes by ctypes with arguments that were made once:
that takes 0.2 us for a launch and 0.4 us for a tensor map beside the driver's own time.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from cuda.bindings import driver as cu

from ..core.errors import NoGpuError

# The bindings' documentation of each says that the process must be terminated and relaunched: illegal address,
# launch timeout, assertion, stack, illegal instruction, misaligned address, address space, program counter,
# launch failure, tensor memory leak, uncorrectable ECC, and the like.
STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 810, 911})


class DriverFailure(Exception):  # noqa: N818 - becomes the status of a trial
    """A driver call failed."""

    def __init__(self, code: int, name: str) -> None:
        self.code = code
        super().__init__(f"{name} ({code})")

    @property
    def sticky(self) -> bool:
        """Whether the context, and so this process, is of no more use."""
        return self.code in STICKY


def check(result: tuple[Any, ...]) -> Any:
    """Unpack what a driver call returned: nothing, one value or a tuple of them.

    Raises:
        DriverFailure: the call failed.
    """
    error, *values = result
    if int(error) != 0:
        raise failure(int(error))
    return values[0] if len(values) == 1 else tuple(values)


def failure(code: int) -> DriverFailure:
    """Return the exception for what a call returned, with the driver's name for it."""
    try:
        _, name = cu.cuGetErrorName(cu.CUresult(code))
    except ValueError:  # the driver is newer than the bindings
        name = None
    return DriverFailure(code, name.decode() if name else "CUDA error")


@functools.cache
def library() -> ctypes.CDLL:
    """Return the driver's library for calls by ctypes.

    Raises:
        NoGpuError: this machine has none.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoGpuError(f"the NVIDIA driver cannot be loaded: {error}", "install it") from None


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``; all attributes that are set here are whole numbers of 32 bits."""

    _fields_ = (("id", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )
