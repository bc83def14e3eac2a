"""A compiled candidate on the GPU: modules, bound kernels, memory of its own; and what else can be timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import driver as cu

from tuner.children.cubin import calls_malloc, filled_variable, left_changed, source_name, variables
from tuner.children.measuring import Candidate
from tuner.gpu.buffers import Helpers, ProblemData
from tuner.gpu.driver import Graph, fill_bytes
from tuner.gpu.images import Images
from tuner.gpu.memory import Memory
from tuner.kernel.contents import NAN
from tuner.runtime.driver import DriverFailure, check
from tuner.runtime.kernel import Kernel
from tuner.runtime.launches import Launch

Piece = tuple[int, int, int]
"""Memory that is copied: its address, where it comes from, and bytes."""
READ_BYTES = 1 << 20
"""Of scratch that is read at a time."""


@dataclass(frozen=True)
class Region:
    """Memory that lives from launch to launch, and what is written over it so that nothing is found there.

    Attributes:
        what: it is, for a message.
        byte: what fills it.
        image: address of what is copied over it instead; 0 for none.
    """

    what: str
    address: int
    size_bytes: int
    byte: int = NAN
    image: int = 0

    def add_reset(self, graph: Graph, poison: int = NAN) -> None:
        """Append what overwrites it: what may hold anything, by a poison."""
        if self.image:
            graph.copy(self.address, self.image, self.size_bytes)
        else:
            graph.memset(self.address, poison if self.byte == NAN else self.byte, self.size_bytes)


COPIES = 2
"""Of the tensors at most, in turn, in fresh launches: a kernel that looks for another call's result finds it in the
other copy, and its own of before in the same."""


class Timed(ABC):
    """What can be timed: a loaded candidate, a captured call."""

    regions: Sequence[Region] = ()
    """Memory of its own that lives from launch to launch."""
    launches = 1
    """Of one run."""
    foreign = False
    """Whether it is a user's function, which may keep memory that nothing here knows."""
    trusted = False
    """Whether it is the tuner's own, which leans on no earlier launch."""

    @property
    def resets(self) -> Sequence[Region | Images]:
        """What overwrites all of its regions."""
        return self.regions

    @abstractmethod
    def add_to(self, graph: Graph, copy: int) -> None:
        """Append one run of it, on that copy of the tensors, to a graph."""

    def keeps(self) -> str:
        """Say which memory a run has changed that the next one must find as it was; empty if there is none."""
        return ""

    def deliver(self, copy: int) -> None:  # noqa: B027 - most write to the problem's tensors
        """Put the outputs of a copy where they are compared."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""


class Fixed(Timed):
    """Kernels that are bound already: one for each copy of the tensors, or the only one for all.

    Without any, what is left is the cost of timing.
    """

    trusted = True

    def __init__(self, *kernels: Kernel) -> None:
        self.kernels = kernels

    def add_to(self, graph: Graph, copy: int) -> None:
        """Append that of a copy."""
        if self.kernels:
            graph.kernel(self.kernels[copy % len(self.kernels)])

    def close(self) -> None:
        """It owns nothing."""


@dataclass
class Loaded(Timed):
    """A candidate on the GPU."""

    memory: Memory
    kernels: list[Kernel] = field(default_factory=list)
    """Its launches in order."""
    addresses: list[dict[str, int]] = field(default_factory=list)
    """``addresses[copy]``: what they are bound to for that copy of the tensors."""
    modules: list[Any] = field(default_factory=list)
    scratch: list[str] = field(default_factory=list)
    """Names of its own allocations: candidates in one race must not share them."""
    zeroed: list[tuple[int, int]] = field(default_factory=list)
    """Address and bytes of scratch that is cleared inside the timing, because the kernel needs it so."""
    kept_zero: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, address and bytes of scratch that was zero before the first run, and must be after each."""
    regions: list[Region] = field(default_factory=list)
    images: list[tuple[Images, list[str]]] = field(default_factory=list)
    """Of each module's variables, with the symbols of those that every run must leave as it has found them."""
    allocates: bool = False
    """Whether its code allocates memory, which a later launch gets again with what is in it."""
    copied: list[Piece] = field(default_factory=list)
    """Variables that hold a copy of an input, and the images of them."""
    unfilled: list[str] = field(default_factory=list)
    """``__constant__`` variables that are zero and that nothing fills."""

    def add_to(self, graph: Graph, copy: int) -> None:
        """Append all of its launches."""
        for address, size in self.zeroed:
            graph.memset(address, 0, size)
        for kernel in self.kernels:
            kernel.bind(self.addresses[copy])
            graph.kernel(kernel)

    def fill(self) -> None:
        """Copy inputs to the variables that launches fill."""
        copy_all(self.copied)

    def keeps(self) -> str:
        """Name a variable that a run has changed without leave, or other memory that nothing here can overwrite."""
        if self.allocates:
            return "it calls malloc (or new), whose memory lives from launch to launch: declare scratch memory instead"
        for images, symbols in self.images:
            if (number := images.changed()) is not None:
                return left_changed(source_name(symbols[number]))
        return ""

    @property
    def resets(self) -> Sequence[Region | Images]:
        """What overwrites all of its regions."""
        return [*(one for one in self.regions if not one.image), *(images for images, _ in self.images)]

    def scratch_not_zeroed(self) -> str:
        """Name scratch that must be zero between two runs and is not; empty if there is none.

        A run that finds it so may do nothing at all, and the outputs that are compared may be those of the run before.
        """
        for name, address, size in self.kept_zero:
            if any(map(any, _pieces(address, size))):
                return name
        return ""

    def close(self) -> None:
        """Unload, and give back the scratch; harmless after a fault."""
        for module in self.modules:
            cu.cuModuleUnload(module)
        for name in self.scratch:
            self.memory.free(name)


def load(data: ProblemData, candidate: Candidate) -> Loaded:
    """Load a candidate's cubins, and make its launches."""
    loaded = Loaded(data.memory)
    own: dict[str, int] = {}
    cluster_order = data.helpers.cluster_orders.of
    try:
        for buffer in candidate.plan.scratch:
            loaded.scratch.append(data.memory.unused(f"scratch {buffer.name}"))
            address = data.memory.allocate_guarded(loaded.scratch[-1], buffer.size_bytes)
            # What the candidate before left there could be the right partial sums.
            fill_bytes(address, 0 if buffer.zeroed_once else NAN, buffer.size_bytes)
            own[buffer.name] = address
            if buffer.zeroed:
                loaded.zeroed.append((address, buffer.size_bytes))
            if buffer.zeroed_once:
                loaded.kept_zero.append((buffer.name, address, buffer.size_bytes))
            if not buffer.zeroed:
                byte = 0 if buffer.zeroed_once else NAN
                loaded.regions.append(Region(f"scratch {buffer.name}", address, buffer.size_bytes, byte))
        loaded.launches = len(candidate.plan.launches)
        for cubin, (launch, *_) in zip(candidate.cubins, candidate.plan.by_code, strict=True):
            loaded.modules.append(check(cu.cuModuleLoadData(cubin)))
            loaded.allocates |= calls_malloc(cubin)
            filled = filled_from(loaded.modules[-1], cubin, launch, data.addresses())
            loaded.copied += filled.values()
            loaded.fill()  # before images are taken
            known = variables(cubin)
            unfilled = (one for one in known if one.constant and one.zero and one.symbol not in filled)
            loaded.unfilled += [one.name for one in unfilled]
            living = [one.symbol for one in known if not one.constant]
            _add_variables(loaded, data.helpers, living, filled, candidate.plan.state)
        loaded.addresses = [{**data.addresses(copy), **own} for copy in range(data.copies)]
        loaded.kernels = [
            Kernel(
                loaded.modules[launch.code],
                candidate.entries[launch.code],
                launch,
                loaded.addresses[0],
                cluster_order,
            )
            for launch in candidate.plan.launches
        ]
    except BaseException:
        loaded.close()
        raise
    return loaded


def filled_from(module: Any, cubin: bytes, launch: Launch, addresses: Mapping[str, int]) -> dict[str, Piece]:
    """Return the variables of a module that a launch fills, by symbol."""
    filled = {}
    for name, tensor, size_bytes in launch.constants:
        symbol = filled_variable(cubin, name, size_bytes).symbol
        address, _ = check(cu.cuModuleGetGlobal(module, symbol.encode()))
        filled[symbol] = (int(address), addresses[tensor], size_bytes)
    return filled


def copy_all(pieces: Collection[Piece]) -> None:
    """Copy pieces of memory, and wait."""
    for address, source, size_bytes in pieces:
        check(cu.cuMemcpyDtoD(address, source, size_bytes))
    if pieces:
        check(cu.cuCtxSynchronize())


def _add_variables(
    loaded: Loaded,
    helpers: Helpers,
    symbols: Iterable[str],
    filled: Mapping[str, Piece],
    state: Collection[str],
) -> None:
    """Remember what a module's variables hold before the first run."""
    places: list[tuple[str, int, int]] = []
    for symbol in sorted(symbols, key=lambda one: source_name(one) in state):
        try:
            address, size_bytes = check(cu.cuModuleGetGlobal(loaded.modules[-1], symbol.encode()))
        except DriverFailure:
            if not symbol.startswith("$"):  # the compiler's own: texts that printf or assert is given
                raise
        else:
            places.append((symbol, int(address), size_bytes))
    if not places:
        return
    constant = [symbol for symbol, *_ in places if source_name(symbol) not in state]
    loaded.scratch.append(loaded.memory.unused("images of variables"))
    images = Images(
        helpers,
        loaded.memory,
        loaded.scratch[-1],
        [(address, size_bytes) for _, address, size_bytes in places],
        len(constant),
    )
    loaded.images.append((images, constant))
    for (symbol, address, size_bytes), image in zip(places, images.addresses, strict=True):
        loaded.regions.append(Region(source_name(symbol), address, size_bytes, image=image))
        if symbol in filled:
            _, source, filled_bytes = filled[symbol]
            loaded.copied.append((image, source, filled_bytes))


def _pieces(address: int, size_bytes: int) -> Iterator[bytearray]:
    """Read memory, however large it is."""
    for start in range(0, size_bytes, READ_BYTES):
        raw = bytearray(min(READ_BYTES, size_bytes - start))
        check(cu.cuMemcpyDtoH(raw, address + start, len(raw)))
        yield raw
