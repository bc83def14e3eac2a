"""A GPU's context and limits, and the status of a trial that a failed driver call stands for."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

from tuner.core.errors import DeviceError
from tuner.core.model import Gpu, Status
from tuner.runtime.cluster_order import Observed
from tuner.runtime.context import ATTRIBUTES
from tuner.runtime.driver import DriverFailure, check

_OUT_OF_MEMORY = 2

_A = cu.CUdevice_attribute


def status_of(failure: DriverFailure) -> Status:
    """Return the status of the trial that caused a failure."""
    if failure.sticky:
        return Status.MEMORY_FAULT
    return Status.OUT_OF_MEMORY if failure.code == _OUT_OF_MEMORY else Status.LAUNCH_ERROR


def fill_bytes(address: int, byte: int, size_bytes: int) -> None:
    """Set memory to a byte, and wait until it is.

    The driver's own call returns before it is done, and our stream does not wait for the default one.
    """
    check(cu.cuMemsetD8(address, byte, size_bytes))
    check(cu.cuStreamSynchronize(0))


class Context:
    """The primary context of one GPU, current in this thread, and a stream.

    Attributes:
        cluster_orders: what was observed of where its clusters run.
    """

    def __init__(self, index: int) -> None:
        try:
            check(cu.cuInit(0))
            count = check(cu.cuDeviceGetCount())
        except (DriverFailure, RuntimeError, ImportError) as error:
            raise DeviceError(
                f"no CUDA GPU can be used: {str(error).rstrip('.')}", "run `tune doctor`"
            ) from None
        if not 0 <= index < count:
            raise DeviceError(
                f"there is no GPU number {index}", f"this machine has {count}: 0 to {count - 1}"
            )
        self.device = check(cu.cuDeviceGet(index))
        self.handle = check(cu.cuDevicePrimaryCtxRetain(self.device))
        check(cu.cuCtxSetCurrent(self.handle))
        self.stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
        self.cluster_orders = Observed()

    def attribute(self, attribute: Any) -> int:
        """Read a device attribute."""
        return int(check(cu.cuDeviceGetAttribute(attribute, self.device)))

    def describe(self) -> Gpu:
        """Return the GPU's name and limits."""
        uuid = bytes(check(cu.cuDeviceGetUuid(self.device)).bytes).hex()
        version = int(check(cu.cuDriverGetVersion()))
        clock_hz = self.attribute(_A.CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * 1e3
        memory_hz = self.attribute(_A.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 1e3
        bus_bytes = self.attribute(_A.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8
        cc = 10 * self.attribute(_A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) + self.attribute(
            _A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        )
        return Gpu(
            name=check(cu.cuDeviceGetName(256, self.device)).split(b"\0")[0].decode(errors="replace"),
            cc=cc,
            **{limit: self.attribute(attribute) for limit, attribute in ATTRIBUTES.items()},
            memory_bytes=int(check(cu.cuDeviceTotalMem(self.device))),
            reserved_shared_bytes=self.attribute(_A.CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
            clock_hz=clock_hz,
            # Two transfers a clock: all of today's graphics and high-bandwidth memories are double data rate.
            memory_bytes_per_s=2 * memory_hz * bus_bytes,
            uuid=uuid,
            driver=f"{version // 1000}.{version % 1000 // 10}",
        )

    def synchronize(self) -> None:
        """Wait for the stream."""
        check(cu.cuStreamSynchronize(self.stream))
