"""GPU memory with what a host's array holds, for calls from programs that have no library for GPU arrays."""

from __future__ import annotations

import weakref

from cuda.bindings import driver as cu

from .arrays import ArrayLayout, row_major
from .driver import PrimaryContext, check, failing_as, primary_context


class DeviceCopy:
    """A row-major array on the first GPU, freed with this object.

    Args:
        host_address: of the array's bytes.
        size_bytes: their number.
        dtype: a name of ``dtypes.py``.
        shape: its extents.

    Raises:
        NoGpuError: there is no GPU or no driver.
        DeviceError: the memory does not suffice.
    """

    def __init__(self, host_address: int, size_bytes: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._context, self._size_bytes = primary_context(0), size_bytes
        self.layout = ArrayLayout(dtype, shape, row_major(shape), 0, "cuda:0")
        what = f"an array of {size_bytes} bytes cannot be copied to the GPU"
        with failing_as(what), self._context.current():
            self.device_address = int(check(cu.cuMemAlloc(size_bytes)))
            weakref.finalize(self, _free, self._context, self.device_address).atexit = False
            check(cu.cuMemcpyHtoD(self.device_address, host_address, size_bytes))

    def read(self, host_address: int) -> None:
        """Copy its bytes to the host's memory, behind what the default stream still does with them.

        Raises:
            DeviceError: a kernel has failed.
        """
        with failing_as("the result cannot be copied from the GPU"), self._context.current():
            check(cu.cuMemcpyDtoH(host_address, self.device_address, self._size_bytes))


def _free(context: PrimaryContext, address: int) -> None:
    with context.current():
        cu.cuMemFree(address)
