"""What can be said of GPUs without a context, which takes long to make; and the child that lists them."""

from __future__ import annotations

import os

from cuda.bindings import driver as cu

from tuner.children.measuring import LISTING_GPUS, GpuList, Hello
from tuner.core.errors import NoGpuError
from tuner.core.processes import ParentPipe
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import described, find_device
from tuner.runtime.driver import DriverFailure, capability_of, check, gpu_count, name_of, uuid_of


def gpus() -> GpuList:
    """Return the GPUs that this process sees."""
    try:
        devices = [check(cu.cuDeviceGet(index)) for index in range(gpu_count())]
        names, uuids = tuple(map(name_of, devices)), tuple(map(uuid_of, devices))
        return GpuList(names, uuids, tuple(map(capability_of, devices)))
    except NoGpuError as error:
        return GpuList((), (), (), error.problem)
    except DriverFailure as error:
        return GpuList((), (), (), str(error))


def hello_of(index: int) -> tuple[Hello, Clocks]:
    """Return what there is to say of a GPU before there is a context on it, which takes long to make; and its clocks.

    Raises:
        DeviceError: there is no such GPU.
    """
    gpu = described(find_device(index))
    clocks = Clocks(gpu.uuid)
    others = clocks.processes()
    return Hello(gpu, _notes(gpu.name, clocks, others), others), clocks


def _notes(name: str, clocks: Clocks, others: int) -> tuple[str, ...]:
    """Say what a reader of the times should know about this GPU."""
    notes = []
    if others:
        others_have = "another process has" if others == 1 else f"{others} other processes have"
        notes.append(f"{others_have} a context on this GPU: what they run there disturbs the times")
    if "MIG" in name.split():
        notes.append("a MIG slice: the other slices share its memory bandwidth and power")
    if not clocks.available:
        notes.append("NVML does not answer: power caps and slow-downs cannot be told from slow kernels")
    return tuple(notes)


def main() -> None:
    """Answer the only question."""
    ParentPipe(LISTING_GPUS).send(gpus())
    os._exit(0)


if __name__ == "__main__":
    main()
