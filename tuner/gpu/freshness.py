"""Does a kernel take as long where nothing of its earlier launches is left?

A benchmark launches a kernel a hundred times, on equal inputs, with the results still in the outputs. A kernel that
copies an earlier launch's result, or skips what is there already, is right at every look and fast only there. So what
may win is also timed *fresh*: before such a sample all memory that lives from launch to launch is overwritten, its
outputs, its scratch, the variables of its code and the shared memory of every SM. Then a kernel can lean on its inputs
alone, and that these are equal helps it no more.

Fresh samples are compared with *repeated* ones, before which as many bytes of the tuner's own memory are overwritten,
in one shuffled group: both follow the same work, so that the cost of events, caches of instructions and clocks are the
same, and honest kernels take about as long in both. *Plain* samples, with nothing overwritten before, are in the group,
too: what is overwritten for the others may take a kernel's own mark away, in shared memory or in the clock. A kernel
that leans on earlier launches only after dozens of them does so in no group: its fresh samples are also compared with
the time that it would be ranked by.

What a user's function keeps in memory of its own cannot be overwritten. For it the inputs before a fresh sample are
others, and before a repeated one the same again: random inputs are rolled, so that no launch before has met them.

The last sample of a group finds fresh outputs and everything else as it was left, and is verified: it fails what does a
part of its work in each launch.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from tuner.core.conditions import Mode
from tuner.core.model import Verification
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import COPIES, Region, Timed, copy_all
from tuner.gpu.driver import Graph
from tuner.gpu.memory import GUARD_BYTES
from tuner.gpu.problem import ProblemSession
from tuner.kernel.batching import Batch
from tuner.kernel.contents import is_random
from tuner.runtime.driver import DriverFailure
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launches import Buffer

OUTPUTS, SHARED, OWN = "its outputs", "shared memory", "memory of its own, for equal inputs"
EACH = 5
"""Samples of each kind in a group; of long kernels as many as a group has room for."""
LIMIT = 0.03
"""Share by which fresh launches may take longer: some noise floors of a kernel of any length."""
LIMIT_NS = 750.0
"""The same as a time, for each of a configuration's launches: events resolve 0.5 us (documentation of
cuEventElapsedTime), and a launch may find the caches of instructions and addresses in another state."""
PLAIN_FACTOR = 4.0
"""How many times as much longer than plain ones: behind other work an SM's L1 may be smaller."""
RESET_NS, RESET_BYTES_PER_NS = 5e3, 500.0
"""A reset takes so long at most, and writes so many bytes at least: a quarter of what an H100's memory takes."""
CLAIM_FACTOR = 1.1
CLAIM_APART_NS = {Mode.COLD: 1e3, Mode.ROTATING: 5e3}
"""By how much fresh samples, of each launch, may be above the time that a kernel is ranked by: it was measured some
seconds before, and where calls rotate without the cost of events. Of 243 comparisons of 23 kernels on an H100 none was
more than 0.4 % above it where calls are cold, and none more than 3.5 us and a tenth where they rotate. Warm times say
nothing of cold ones."""


class Kind(Enum):
    """What is overwritten before a sample."""

    FRESH = "all that an earlier launch may have left; and a function's inputs are others"
    REPEATED = "as much of the tuner's own memory"
    PLAIN = "nothing"
    LAST = "the outputs"


@dataclass
class Comparison:
    """Cold samples of one call each."""

    fresh_ns: list[float]
    repeated_ns: list[float]
    plain_ns: list[float] = field(default_factory=list)
    verification: Verification = field(default_factory=lambda: Verification(True))
    """Of what the last sample has left."""
    launches: int = 1
    """Of one sample."""

    def add(self, other: Comparison) -> None:
        """Take another group in."""
        self.fresh_ns += other.fresh_ns
        self.repeated_ns += other.repeated_ns
        self.plain_ns += other.plain_ns

    @property
    def slower(self) -> bool:
        """Whether fresh launches take longer than noise explains."""
        return self._slower_than(self.repeated_ns, 1.0) or self._slower_than(self.plain_ns, PLAIN_FACTOR)

    @property
    def quick_ns(self) -> float:
        """The quarter of the fresh samples that is fastest ends here.

        Times may scatter, by a kernel's own doing, too; but one that leans on earlier launches is never fast without.
        """
        return sorted(self.fresh_ns)[len(self.fresh_ns) // 4]

    def _slower_than(self, times_ns: list[float], factor: float) -> bool:
        if not times_ns:
            return False
        other_ns = statistics.median(times_ns)
        return self.quick_ns > other_ns + factor * max(LIMIT * other_ns, LIMIT_NS * self.launches)


class Freshness:
    """Compares fresh launches with repeated ones, of one problem."""

    def __init__(self, session: ProblemSession) -> None:
        self._session = session
        self._draw = random.Random(0)

    @cached_property
    def _cold(self) -> ProblemSession:
        """The session with what a cold sample takes besides its call: the flush, which warm ones do not have."""
        warm = self._session.conditions.mode is Mode.WARM
        return self._session.in_mode(Mode.COLD, Batch(1, 1)) if warm else self._session

    def compare(self, timed: Timed, estimate_ns: float, only: Collection[str] = ()) -> Comparison:
        """Take one group; its first samples, one for each copy, warm up and do not count.

        Args:
            timed: what is launched.
            estimate_ns: its time.
            only: overwrite nothing but these before a fresh sample; without it everything.

        Raises:
            DriverFailure: it cannot be launched, or ruined the context.
            ClockMismatchError: its times contradict a clock.
        """
        session, cold = self._session, self._cold
        copies = min(COPIES, session.data.copies)
        shuffled = [Kind.FRESH, Kind.REPEATED, Kind.PLAIN] * max(1, min(EACH, session.size(estimate_ns) // 3))
        self._draw.shuffle(shuffled)
        kinds = [*[Kind.FRESH] * copies, *shuffled, Kind.LAST]
        resets = _Resets(session.data, timed, copies, kinds, only)
        with closing(cold.cold_graph(timed, len(kinds), resets.add_before)) as graph:
            graph.before_ns = resets.most_ns
            times_ns = cold.take(graph, estimate_ns).times_ns
        of: dict[Kind, list[float]] = {kind: [] for kind in Kind}
        for kind, time_ns in zip(kinds[copies:], times_ns[copies:], strict=True):
            of[kind].append(time_ns)
        timed.deliver((len(kinds) - 1) % copies)
        last = session.check((len(kinds) - 1) % copies)
        return Comparison(of[Kind.FRESH], of[Kind.REPEATED], of[Kind.PLAIN], last, timed.launches)

    def objection(self, timed: Timed, claimed_ns: float, first: Comparison | None) -> str:
        """Say that a kernel leans on what its earlier launches left, and on which memory; empty if it does not.

        Args:
            timed: what was launched.
            claimed_ns: the time that it would be ranked by.
            first: a comparison, which is confirmed by a second one; None if the kernel cannot win anyway.
        """
        kept = timed.keeps()
        if kept or first is None or not self._leans(first, claimed_ns):
            return kept
        second = self.compare(timed, claimed_ns)
        while len(second.fresh_ns) < EACH:
            second.add(self.compare(timed, claimed_ns))
        if not self._leans(second, claimed_ns):
            return ""
        regions = [region.what for region in timed.regions]
        if len(regions) > 1 and not self.compare(timed, claimed_ns, regions).slower:
            regions = []  # a matrix product has dozens
        places = [OUTPUTS, SHARED, *regions, *([OWN] if timed.foreign else [])]
        named = [place for place in places if self.compare(timed, claimed_ns, (place,)).slower]
        kinds = second.fresh_ns, second.repeated_ns, second.plain_ns
        fresh_us, *other_us = (statistics.median(times_ns) / 1e3 for times_ns in kinds)
        return (
            f"leans on what earlier launches left in {' and '.join(named) or 'memory'}: "
            f"it takes {min(claimed_ns / 1e3, *other_us):.3g} us there, and {fresh_us:.3g} us where nothing is left"
        )

    def _leans(self, comparison: Comparison, claimed_ns: float) -> bool:
        apart_ns = CLAIM_APART_NS.get(self._session.conditions.mode, math.inf)
        allowed_ns = CLAIM_FACTOR * claimed_ns + comparison.launches * apart_ns
        return comparison.slower or comparison.quick_ns > allowed_ns


ALIGNED_BYTES, LARGE_BYTES = 256, 1 << 20
"""By multiples of it, so that both pieces are copied as fast as the whole; of small tensors by elements, so that no
content comes twice."""


class Rolling:
    """Rolls the random inputs of a problem; those that mean something stay as they are, and what follows from these.

    Args:
        data: the tensors, with the content that is rolled. Where there is no room for a copy, nothing is.
    """

    def __init__(self, data: ProblemData) -> None:
        self._data, self._draw = data, random.SystemRandom()
        self._base: dict[str, int] = {}
        for tensor in data.tensors if data.given is None else ():
            if tensor.role == "input" and is_random(tensor) and tensor.count > 1:
                try:
                    address = data.memory.allocate(f"{tensor.name} to roll", tensor.size_bytes)
                except DriverFailure as failure:
                    if failure.sticky:
                        raise
                    break
                self._base[tensor.name] = address
        copy_all([(self._base[one.name], data.address(one.name), one.size_bytes) for one in self.tensors])

    @property
    def tensors(self) -> Sequence[Buffer]:
        """Those that are rolled."""
        return [tensor for tensor in self._data.tensors if tensor.name in self._base]

    def add_to(self, graph: Graph, copy: int, *, rolled: bool) -> None:
        """Append what gives a copy of the inputs another content, or by as many bytes the first one."""
        for tensor in self.tensors:
            to, base = self._data.address(tensor.name, copy), self._base[tensor.name]
            step = ALIGNED_BYTES if tensor.size_bytes >= LARGE_BYTES else ITEMSIZE[tensor.dtype]
            first = step * self._draw.randrange(1, -(-tensor.size_bytes // step))
            rest = tensor.size_bytes - first
            if rolled:
                graph.copy(to, base + first, rest)
                graph.copy(to + rest, base, first)
            else:
                graph.copy(to, base, first)
                graph.copy(to + first, base + first, rest)


class _Resets:
    """Overwrites what samples must not find; before repeated ones as much of the buffer that flushes the L2."""

    def __init__(
        self, data: ProblemData, timed: Timed, copies: int, kinds: Sequence[Kind], only: Collection[str]
    ) -> None:
        self._data, self._copies, self._kinds = data, copies, kinds
        self._resets = [region for region in timed.regions if region.what in only] if only else timed.resets
        self._outputs = [
            one for one in data.tensors if one.role == "output" and (not only or OUTPUTS in only)
        ]
        vary = timed.foreign and (not only or OWN in only)
        self._inputs = Rolling(data) if vary else None
        # Both take all of it: how an SM divides its memory between L1 and shared memory is then the same behind them.
        self._shared = {
            Kind.FRESH: data.helpers.fill_shared(words=not only or SHARED in only),
            Kind.REPEATED: data.helpers.fill_shared(words=False),
        }

    def add_before(self, graph: Graph, number: int) -> int:
        """Append what comes before a sample, and return the number of its copy."""
        data, kind, copy = self._data, self._kinds[number], number % self._copies
        # Behind other copies than the first there is a zone that no check looks at.
        zone = GUARD_BYTES if copy else 0
        regions = [
            Region(OUTPUTS, data.address(tensor.name, copy), tensor.size_bytes + zone)
            for tensor in self._outputs
        ]
        if self._inputs is not None and kind is not Kind.PLAIN:
            for number in range(self._copies) if kind is Kind.LAST else (copy,):
                self._inputs.add_to(graph, number, rolled=kind is Kind.FRESH)
        if kind is Kind.REPEATED:
            for region in (*regions, *self._resets):
                graph.memset(data.memory.addresses["flush"], 0, min(region.size_bytes, data.flush_bytes))
        elif kind is not Kind.PLAIN:
            for region in (*regions, *(self._resets if kind is Kind.FRESH else ())):
                region.add_reset(graph)
        if kind in self._shared:
            graph.kernel(self._shared[kind])
        return copy

    @property
    def most_ns(self) -> float:
        """What it may take before a sample."""
        rolled = self._inputs.tensors if self._inputs is not None else ()
        sizes = [one.size_bytes for one in self._outputs] + [one.size_bytes for one in self._resets]
        sizes += [one.size_bytes for one in (*rolled, *rolled)]
        return RESET_NS * (1 + len(sizes)) + sum(sizes) / RESET_BYTES_PER_NS
