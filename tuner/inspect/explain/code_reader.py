"""A configuration compiled to be read: what its launches' code says. No GPU is needed."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tuner.children.code import LISTING, LaunchListing, ListingRefused, ListingRequest, Listings
from tuner.core.errors import CompileError
from tuner.core.model import Configuration, Gpu, Problem, Resources
from tuner.core.processes import ChildDied, UnsendableError, ask_once
from tuner.inspect.explain.code_facts import CodeFacts, ptx_facts, sass_facts
from tuner.kernel.spec import KernelSpec

DEADLINE_S = 120.0
"""For all launches of a configuration: twice what a search gives each."""
MAX_TEXT_BYTES = 16 << 20
"""A longer listing is not read: the analysis would take minutes."""


@dataclass(frozen=True)
class LaunchCode:
    """What was compiled for one launch."""

    name: str
    """Of the kernel, as its file has it."""
    entry: str
    """Its name in the cubin."""
    resources: Resources
    barriers: int
    ptx: CodeFacts | None
    sass: CodeFacts | None
    notes: tuple[str, ...] = field(default=())
    """What could not be read, and why."""

    @property
    def facts(self) -> CodeFacts | None:
        """The SASS's, because that is what runs; else the PTX's."""
        return self.sass or self.ptx


def read_code(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration, *, sass: bool = True
) -> tuple[LaunchCode, ...]:
    """Compile a configuration in a process of its own, and read the code of each launch.

    Args:
        kernel: read again there, from its file.
        problem: what is computed.
        gpu: its compute capability is the target.
        configuration: one of the kernel's.
        sass: disassemble the machine code, too, if there is an ``nvdisasm``.

    Raises:
        CompileError: it does not render or compile, or takes too long.
    """
    tool = find_nvdisasm() if sass else None
    listings = _ask(ListingRequest(kernel.file, problem, gpu, configuration, tool))
    if isinstance(listings, ListingRefused):
        raise CompileError(f"{configuration} does not compile: {listings.problem}", listings.remedy)
    return tuple(_read_launch(listing) for listing in listings.launches)


def find_nvdisasm() -> Path | None:
    """Look for NVIDIA's disassembler: on the PATH, in a CUDA toolkit, in the pip package of its name."""
    on_path = shutil.which("nvdisasm")
    if on_path:
        return Path(on_path)
    return next((path for path in _candidates() if path.is_file() and os.access(path, os.X_OK)), None)


def _candidates() -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name]) / "bin" / "nvdisasm"
    yield Path("/usr/local/cuda/bin/nvdisasm")
    yield Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "bin" / "nvdisasm"


def _ask(request: ListingRequest) -> Listings | ListingRefused:
    try:
        listings = ask_once("tuner.inspect.explain.code_worker", LISTING, request, DEADLINE_S)
    except ChildDied as death:
        raise CompileError(f"the compiler process died ({death.reason})") from None
    except UnsendableError as error:
        raise CompileError(str(error)) from None
    if listings is None:
        raise CompileError(f"not compiled after {DEADLINE_S:g} s")
    return listings


def _read_launch(listing: LaunchListing) -> LaunchCode:
    notes = [listing.sass_note] if listing.sass_note else []

    def read(language: str, text: str, reader: Callable[[str, str], CodeFacts]) -> CodeFacts | None:
        if len(text) > MAX_TEXT_BYTES:
            notes.append(f"{len(text) >> 20} MiB of {language} are too long to be read")
        elif text:
            try:
                return reader(text, listing.entry)
            except ValueError as error:
                notes.append(str(error))
        return None

    ptx = read("PTX", listing.ptx, ptx_facts)
    sass = read("SASS", listing.sass, sass_facts)
    return LaunchCode(
        listing.name, listing.entry, listing.resources, listing.barriers, ptx, sass, tuple(notes)
    )
