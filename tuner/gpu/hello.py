"""What a measuring process says of its GPU at first."""

from __future__ import annotations

from tuner.children.measuring import Hello
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import described, find_device


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
