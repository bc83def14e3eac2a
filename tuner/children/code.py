"""What the head and the child of ``tune explain`` say to each other: a configuration, and the code of its launches."""

from __future__ import annotations

from pathlib import Path

from tuner.children.record import Message, Record
from tuner.core.model import Configuration, Gpu, Problem, Resources
from tuner.core.processes import Channel


class ListingRequest(Record, frozen=True):
    """Compile every launch of a configuration, to be read."""

    kernel_file: Path
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    nvdisasm: Path | None
    """None for the PTX alone."""


class LaunchListing(Record, frozen=True):
    """The code of one launch."""

    name: str
    """Of the kernel, as its file has it."""
    entry: str
    """Its name in the cubin."""
    ptx: str
    sass: str
    """Empty where there is none; ``sass_note`` says why."""
    sass_note: str
    resources: Resources
    barriers: int


class Listings(Message, frozen=True):
    """The launches in order."""

    launches: tuple[LaunchListing, ...]


class ListingRefused(Message, frozen=True):
    """The configuration does not render or compile."""

    problem: str
    remedy: str


LISTING: Channel[ListingRequest, Listings | ListingRefused] = Channel(
    ListingRequest, Listings | ListingRefused
)
