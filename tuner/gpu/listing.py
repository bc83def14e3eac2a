"""The child that says which GPUs there are; it makes no context on any."""

from __future__ import annotations

import os

from cuda.bindings import driver as cu

from tuner.children.measuring import LISTING_GPUS, GpuList
from tuner.core.processes import ParentPipe
from tuner.runtime.driver import DriverFailure, check


def gpus() -> GpuList:
    """Return the GPUs that this process sees."""
    try:
        check(cu.cuInit(0))
        devices = [check(cu.cuDeviceGet(index)) for index in range(check(cu.cuDeviceGetCount()))]
        names = [check(cu.cuDeviceGetName(128, device)).split(b"\0")[0].decode() for device in devices]
        capabilities = [_capability(device) for device in devices]
        uuids = [bytes(check(cu.cuDeviceGetUuid(device)).bytes).hex() for device in devices]
    except (DriverFailure, RuntimeError, ImportError) as error:
        return GpuList((), (), (), str(error))
    return GpuList(tuple(names), tuple(uuids), tuple(capabilities))


def _capability(device: cu.CUdevice) -> int:
    kinds = cu.CUdevice_attribute
    major, minor = (
        int(check(cu.cuDeviceGetAttribute(kind, device)))
        for kind in (
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return 10 * major + minor


def main() -> None:
    """Answer the only question."""
    ParentPipe(LISTING_GPUS).send(gpus())
    os._exit(0)


if __name__ == "__main__":
    main()
