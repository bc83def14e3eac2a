"""The child that says which GPUs there are; it makes no context on any."""

from __future__ import annotations

import os

from cuda.bindings import driver as cu

from tuner.children.measuring import LISTING_GPUS, GpuList
from tuner.core.processes import ParentPipe
from tuner.runtime.driver import DriverFailure, capability_of, check, name_of, uuid_of


def gpus() -> GpuList:
    """Return the GPUs that this process sees."""
    try:
        check(cu.cuInit(0))
        devices = [check(cu.cuDeviceGet(index)) for index in range(check(cu.cuDeviceGetCount()))]
        names, uuids = tuple(map(name_of, devices)), tuple(map(uuid_of, devices))
        return GpuList(names, uuids, tuple(map(capability_of, devices)))
    except (DriverFailure, RuntimeError, ImportError) as error:
        return GpuList((), (), (), str(error))


def main() -> None:
    """Answer the only question."""
    ParentPipe(LISTING_GPUS).send(gpus())
    os._exit(0)


if __name__ == "__main__":
    main()
