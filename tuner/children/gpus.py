"""What the head asks a child that looks for GPUs: a context, or even the driver, has no place in the head itself."""

from __future__ import annotations

from tuner.children.record import Record
from tuner.core.processes import Channel


class ListGpus(Record, frozen=True):
    """Which GPUs does this process see?"""


class GpuList(Record, frozen=True):
    """The GPUs by their numbers."""

    names: tuple[str, ...]
    uuids: tuple[str, ...]
    capabilities: tuple[int, ...] = ()
    """Compute capability of each, times ten."""
    error: str = ""
    """Why none can be used."""


LISTING: Channel[ListGpus, GpuList] = Channel(ListGpus, GpuList)
