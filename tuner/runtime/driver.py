"""The CUDA driver: its failures as exceptions, what is called by ctypes, and a GPU's primary context.

Set-up goes through cuda-python's bindings. What every launch calls goes by ctypes with arguments that were made once:
that takes 0.2 us for a launch and 0.4 us for a tensor map beside the driver's own time.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver as cu

from ..core.errors import CallError, DeviceError, NoGpuError
from .launch_limits import DEVICE_LIMITS

# The bindings' documentation of each says that the process must be terminated and relaunched: illegal address,
# launch timeout, assertion, stack, illegal instruction, misaligned address, address space, program counter,
# launch failure, tensor memory leak, uncorrectable ECC, and the like.
STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 810, 911})


NEEDED = "kernels run on a machine with an NVIDIA GPU and its driver; `tune doctor` says what is missing"


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


@contextmanager
def failing_as(problem: str) -> Iterator[None]:
    """Raise a driver's failure as an error that a caller of winners gets.

    Raises:
        DeviceError: the block has failed so.
    """
    try:
        yield
    except DriverFailure as error:
        raise DeviceError(f"{problem}: {error}") from None


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
        why = f"this machine has no NVIDIA driver that can be loaded ({error})"
        raise NoGpuError(f"no CUDA GPU can be used: {why}", NEEDED) from None


def gpu_count() -> int:
    """Return how many GPUs this process sees, numbered from 0.

    Raises:
        NoGpuError: there is none, or no driver.
    """
    library()  # without it the bindings have a sentence of their own
    try:
        check(cu.cuInit(0))
        return int(check(cu.cuDeviceGetCount()))
    except (DriverFailure, RuntimeError, ImportError) as error:
        raise NoGpuError(f"no CUDA GPU can be used: {str(error).rstrip('.')}", NEEDED) from None


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


_A = cu.CUdevice_attribute
ATTRIBUTES = {
    "sm_count": _A.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    "l2_bytes": _A.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
    "shared_bytes_optin": _A.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
    "shared_bytes_per_sm": _A.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
    "registers_per_sm": _A.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    "max_threads_per_sm": _A.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    "max_blocks_per_sm": _A.CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
    "max_threads_per_block": _A.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
}
"""Where the driver has a GPU's limits."""


def attribute_of(device: Any, kind: Any) -> int:
    """Return an attribute of a device."""
    return int(check(cu.cuDeviceGetAttribute(kind, device)))


def capability_of(device: Any) -> int:
    """Return a device's compute capability, times ten."""
    major = attribute_of(device, _A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    return 10 * major + attribute_of(device, _A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)


def name_of(device: Any) -> str:
    """Return a device's model."""
    return str(check(cu.cuDeviceGetName(256, device)).split(b"\0")[0].decode(errors="replace"))


def uuid_of(device: Any) -> str:
    """Return a device's UUID in hexadecimal digits."""
    return bytes(check(cu.cuDeviceGetUuid(device)).bytes).hex()


class PrimaryContext:
    """The primary context of one GPU, kept as long as the process.

    Attributes:
        index: the GPU's number, as libraries count.
        name: its model.
        limits: by the names of :data:`DEVICE_LIMITS`.

    Raises:
        NoGpuError: there is no GPU or no driver.
        CallError: there is no GPU of this number.
    """

    def __init__(self, index: int) -> None:
        count = gpu_count()
        if not 0 <= index < count:
            raise CallError(f"there is no GPU number {index}", f"this machine has {count}, numbered from 0")
        self.index = index
        try:
            device = check(cu.cuDeviceGet(index))
            self.limits = {"cc": capability_of(device)}
            self.limits |= {
                name: attribute_of(device, ATTRIBUTES[name]) for name in DEVICE_LIMITS if name != "cc"
            }
            self.name = name_of(device)
            self._handle = int(check(cu.cuDevicePrimaryCtxRetain(device)))
        except DriverFailure as error:
            raise NoGpuError(f"no CUDA GPU can be used: {error}", NEEDED) from None
        calls = library()
        self._current, self._push = calls.cuCtxGetCurrent, calls.cuCtxPushCurrent_v2
        self._pop = calls.cuCtxPopCurrent_v2

    def push(self) -> bool:
        """Make the context current in this thread; True if it was not, and :meth:`pop` is due.

        Raises:
            DriverFailure: it is of no more use.
        """
        now = ctypes.c_void_p()
        if self._current(ctypes.byref(now)) == 0 and now.value == self._handle:
            return False
        error = self._push(ctypes.c_void_p(self._handle))
        if error:
            raise DriverFailure(error, "cuCtxPushCurrent")
        return True

    def pop(self) -> None:
        """Make the context current that was so before :meth:`push`."""
        self._pop(ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current in this thread for a while."""
        pushed = self.push()
        try:
            yield
        finally:
            if pushed:
                self.pop()

    def wait(self, stream: int) -> None:
        """Wait for a stream."""
        with self.current():
            check(cu.cuStreamSynchronize(stream))

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Make the context current, and allow loading and allocating while streams are captured, here or elsewhere."""
        with self.current():
            mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            before = check(cu.cuThreadExchangeStreamCaptureMode(mode))
            try:
                yield
            finally:
                cu.cuThreadExchangeStreamCaptureMode(before)


primary_context = functools.cache(PrimaryContext)
"""Returns the only context of a GPU of this machine, by its number."""


def capture_id(stream: int) -> int | None:
    """Return the number of the capture that a stream is in; None if it is in none.

    Raises:
        DriverFailure: it is the legacy default stream, and another stream is captured.
    """
    status, number = ctypes.c_int(), ctypes.c_ulonglong()
    # By ctypes: the bindings would copy the capture's dependencies, too.
    error = library().cuStreamGetCaptureInfo_v3(
        ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None, None
    )
    if error:
        raise failure(error)
    return number.value if status.value else None
