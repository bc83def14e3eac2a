"""How long does it take, cold: CUDA graphs of [restore, flush, event, kernel, event], repeated.

The event pairs lie inside one graph, so that no host work can slip between them. Before each sample a sweep *reads*
three times the L2: what a memset would leave there is dirty, and the next kernel would pay for writing it back
(measured on an H200 at 2^20 floats: 7.6 us behind a memset, 4.5 behind a sweep, 4.7 on rotating buffers).
"""

from __future__ import annotations

import fcntl
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cuda.bindings import driver as cu

from tuner.gpu.buffers import Memory, ProblemData
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import Context, check
from tuner.gpu.graph import Graph, Kernel
from tuner.plan import Buffer

GROUP_NS = 8e6
"""Back-to-back GPU time of a group: below some 10 ms the power cap of an H200 is not reached from rest."""
MAX_GROUP = 16
REST_FACTOR = 1.5
"""Rest after a group of heavy samples, as a multiple of the group: the GPU is then busy 40 % of the time, which
keeps an 8192^3 cuBLAS product within 0.5 % of its rested time on an H200 (without a pause: 15 to 28 % slower)."""
HEAVY_SHARE = 0.15
"""Share of the peak FLOP rate above which a kernel draws enough power to need rest."""


@dataclass(frozen=True)
class Limits:
    """What the hardware allows for one problem."""

    floor_ns: float
    """No kernel can be faster: the speed of light, less what the L2 can hold and a tolerance for clocks."""
    flops: float
    peak_flops: float

    def heavy(self, time_ns: float) -> bool:
        """Whether a kernel of this time works hard enough to be slowed by the power cap."""
        return self.peak_flops > 0 and self.flops / (time_ns * 1e-9) > HEAVY_SHARE * self.peak_flops


@dataclass
class Loaded:
    """A candidate on the GPU: modules, kernels, and its scratch memory."""

    memory: Memory
    kernels: list[Kernel] = field(default_factory=list)
    modules: list[Any] = field(default_factory=list)
    scratch: list[str] = field(default_factory=list)
    """Names of its own allocations: candidates in one race must not share them."""
    zeroed: list[tuple[int, int]] = field(default_factory=list)
    """Address and bytes of scratch that is cleared inside the timing, because the kernel needs it so."""

    def add_to(self, graph: Graph) -> None:
        """Append all of its launches."""
        for address, size in self.zeroed:
            graph.memset(address, 0, size)
        for kernel in self.kernels:
            kernel.add_to(graph)

    def close(self) -> None:
        """Unload, and give back the scratch; harmless after a fault."""
        for module in self.modules:
            cu.cuModuleUnload(module)
        for name in self.scratch:
            self.memory.free(name)


def load(
    data: ProblemData,
    cubins: Sequence[bytes],
    entries: Sequence[str],
    launches: Sequence[Any],
    scratch: Sequence[Buffer],
) -> Loaded:
    """Load a candidate's cubins and bind its arguments."""
    loaded = Loaded(data.memory)
    addresses = dict(data.memory.addresses)
    try:
        for buffer in scratch:
            loaded.scratch.append(data.memory.unused(f"scratch {buffer.name}"))
            address = data.memory.allocate_guarded(loaded.scratch[-1], buffer.size_bytes)
            # What the candidate before left there could be the right partial sums.
            check(cu.cuMemsetD8(address, 0xFF, buffer.size_bytes))
            addresses[buffer.name] = address
            if buffer.zeroed:
                loaded.zeroed.append((address, buffer.size_bytes))
        for cubin, entry, launch in zip(cubins, entries, launches, strict=True):
            loaded.modules.append(check(cu.cuModuleLoadData(cubin)))
            loaded.kernels.append(Kernel(loaded.modules[-1], entry, launch, addresses))
    except BaseException:
        loaded.close()
        raise
    return loaded


class Timed(Protocol):
    """What can be timed: a loaded candidate, or a captured call."""

    def add_to(self, graph: Graph) -> None:
        """Append it to a graph."""


class ColdGraph:
    """A group of cold samples of one candidate, ready to be launched."""

    def __init__(self, data: ProblemData, candidate: Timed, samples: int, *, flush: bool = True) -> None:
        self.samples = samples
        self._graph = Graph(data.helpers.context)
        self._pairs = []
        for _ in range(samples):
            data.add_restore(self._graph)
            if flush:
                data.flush.add_to(self._graph)
            start = self._graph.event()
            candidate.add_to(self._graph)
            self._pairs.append((start, self._graph.event()))

    def run(self, context: Context) -> list[float]:
        """Launch the group, wait, and give each sample in nanoseconds."""
        self._graph.launch()
        context.synchronize()
        return [float(check(cu.cuEventElapsedTime(start, end))) * 1e6 for start, end in self._pairs]

    def close(self) -> None:
        """Free it."""
        self._graph.close()


class ClockMismatchError(Exception):
    """The events claim more time than passed on the wall."""


class Timer:
    """Takes groups of samples, rests where the power cap would otherwise choose the winner, and watches the clocks."""

    def __init__(self, context: Context, clocks: Clocks, uuid: str) -> None:
        self._context = context
        self._clocks = clocks
        self._rest_until = 0.0
        self._lock = _lock_file(uuid)

    def group(self, data: ProblemData, graph: ColdGraph, *, heavy: bool) -> tuple[list[float], set[str]]:
        """Take one group: poison the outputs, rest if due, launch, and say what held the clocks down.

        Raises:
            ClockMismatchError: the events contradict the wall clock.
        """
        if heavy:
            time.sleep(max(0.0, self._rest_until - time.monotonic()))
        data.poison()
        self._context.synchronize()
        began = time.monotonic()
        samples = graph.run(self._context)
        ended = time.monotonic()
        if sum(samples) * 1e-9 > (ended - began) * 1.02 + 1e-4:
            raise ClockMismatchError(
                f"events add up to {sum(samples) * 1e-6:.3f} ms in {(ended - began) * 1e3:.3f} ms of wall time"
            )
        if heavy:
            self._rest_until = ended + REST_FACTOR * (ended - began)
        return samples, set(self._clocks.reasons())

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other tuners on this GPU from using it at the same moment."""
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def _lock_file(uuid: str) -> Any:
    """Open the file that stands for a GPU; whoever made it, any user can lock it for reading."""
    path = Path(tempfile.gettempdir()) / f"kernel-tune-{uuid}.lock"
    with suppress(PermissionError):
        path.touch(mode=0o666)
    return path.open("rb")


def group_size(estimate_ns: float) -> int:
    """Give how many samples fit into a group."""
    return max(1, min(MAX_GROUP, int(GROUP_NS / max(estimate_ns, 1.0))))


def median_half_width(samples: Sequence[float]) -> float:
    """Give a quick relative half-width of the median's 95 % interval, from the quartiles.

    For a median, 1.57 IQR / sqrt(n) (McGill, Tukey and Larsen, American Statistician 32, 1978).
    """
    if len(samples) < 4:
        return float("inf")
    low, middle, high = statistics.quantiles(samples, n=4)
    return float(1.57 * (high - low) / (middle * len(samples) ** 0.5))
