"""Does a kernel take as long where nothing of its earlier launches is left?

A benchmark launches a kernel a hundred times, on equal inputs, with the results still in the outputs. A kernel that
copies an earlier launch's result, or skips what is there already, is right at every look and fast only there. So what
may win is also timed *fresh*: before such a sample all memory that lives from launch to launch is overwritten, its
outputs, its scratch, the variables of its code and the shared memory of every SM. Then a kernel can lean on its inputs
alone, and that these are equal helps it no more.

Fresh samples are compared with *repeated* ones, before which as many bytes of the tuner's own memory are overwritten,
in one shuffled group: both follow the same kernels, so that the cost of events, caches of instructions and clocks are
the same, and honest kernels take as long in both.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass, field

from tuner.core.model import Verification
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Region, Timed
from tuner.gpu.driver import Graph
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import Samples, median_half_width

OUTPUTS, SHARED = "its outputs", "shared memory"
COPIES = 2
"""Of the tensors at most, in turn: a kernel that looks for another call's result finds it in the other copy, and its
own of before in the same."""
PAIRS = 6
"""Fresh samples of a group, and repeated ones; of long kernels as many as a group has room for."""
LIMIT = 0.03
"""Share by which fresh launches may take longer: some noise floors of a kernel of any length."""
LIMIT_NS = 250.0
"""The same as a time: events do not resolve less in kernels of microseconds."""
RESET_NS, RESET_BYTES_PER_NS = 5e3, 500.0
"""A reset takes so long at most, and writes so many bytes at least: a quarter of what an H100's memory takes."""
HALF_WIDTHS = 2.0
"""The same as a multiple of both medians' half-widths, for kernels whose times scatter."""


@dataclass
class Comparison:
    """Cold samples of one call each, fresh and repeated."""

    fresh_ns: list[float] = field(default_factory=list)
    repeated_ns: list[float] = field(default_factory=list)
    samples: Samples = field(default_factory=Samples)
    """Both, with what the clocks did."""
    verification: Verification = field(default_factory=lambda: Verification(True))
    """Of what the last sample has left."""

    def add(self, other: Comparison) -> None:
        """Take another group in."""
        self.fresh_ns += other.fresh_ns
        self.repeated_ns += other.repeated_ns
        self.samples.add(other.samples)
        self.verification = other.verification

    @property
    def slower(self) -> bool:
        """Whether fresh launches take longer than noise explains."""
        fresh_ns, repeated_ns = statistics.median(self.fresh_ns), statistics.median(self.repeated_ns)
        widths = [
            median_half_width(times) for times in (self.fresh_ns, self.repeated_ns) if len(times) >= PAIRS
        ]
        limit = max(LIMIT, LIMIT_NS / repeated_ns, HALF_WIDTHS * sum(widths))
        return fresh_ns > (1.0 + limit) * repeated_ns


class Freshness:
    """Compares fresh launches with repeated ones.

    Args:
        session: the problem.
        seed: of the order in the groups.
    """

    def __init__(self, session: ProblemSession, seed: int = 0) -> None:
        self._session = session
        self._draw = random.Random(seed)

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
        session = self._session
        copies = min(COPIES, session.data.copies)
        fresh = [False, True] * max(1, min(PAIRS, session.size(estimate_ns) // 2))
        self._draw.shuffle(fresh)
        resets = _Resets(session.data, timed, copies, [True] * copies + fresh, only)
        with closing(session.cold_graph(timed, copies + len(fresh), resets.add_before)) as graph:
            graph.before_ns = resets.most_ns
            samples = session.take(graph, estimate_ns)
        times_ns = samples.times_ns = samples.times_ns[copies:]
        return Comparison(
            [time for time, is_fresh in zip(times_ns, fresh, strict=True) if is_fresh],
            [time for time, is_fresh in zip(times_ns, fresh, strict=True) if not is_fresh],
            samples,
            session.check((copies + len(fresh) - 1) % copies),
        )

    def objection(self, timed: Timed, estimate_ns: float, first: Comparison | None) -> str:
        """Say that a kernel leans on what its earlier launches left, and on which memory; empty if it does not.

        Args:
            timed: what was launched.
            estimate_ns: its time.
            first: a comparison, which is confirmed by a second one; None if the kernel cannot win anyway.
        """
        kept = timed.keeps()
        if kept or first is None or not first.slower:
            return kept
        second = self.compare(timed, estimate_ns)
        while len(second.fresh_ns) < 3:
            second.add(self.compare(timed, estimate_ns))
        if not second.slower:
            return ""
        kinds = [OUTPUTS, SHARED, *(region.what for region in timed.regions)]
        named = [kind for kind in kinds if self.compare(timed, estimate_ns, (kind,)).slower]
        fresh_us, repeated_us = (statistics.median(t) / 1e3 for t in (second.fresh_ns, second.repeated_ns))
        return (
            f"leans on what earlier launches left in {' and '.join(named) or 'memory'}: it takes {repeated_us:.3g} us "
            f"there, and {fresh_us:.3g} us where nothing is left"
        )


class _Resets:
    """Overwrites what fresh samples must not find; before the others as much of the buffer that flushes the L2."""

    def __init__(
        self, data: ProblemData, timed: Timed, copies: int, fresh: list[bool], only: Collection[str]
    ) -> None:
        self._data, self._copies, self._fresh = data, copies, fresh
        self._regions = [region for region in timed.regions if not only or region.what in only]
        self._outputs = (
            [one for one in data.tensors if one.role == "output"] if not only or OUTPUTS in only else []
        )
        self._fill_shared = data.helpers.fill_shared() if not only or SHARED in only else None

    def add_before(self, graph: Graph, number: int) -> int:
        """Append what comes before a sample, and return the number of its copy."""
        data, fresh, copy = self._data, self._fresh[number], number % self._copies
        regions = [
            Region(OUTPUTS, data.address(tensor.name, copy), tensor.size_bytes) for tensor in self._outputs
        ]
        for region in (*regions, *self._regions):
            if fresh:
                region.add_reset(graph)
            else:
                own = min(region.size_bytes, data.flush_bytes)
                graph.memset(data.memory.addresses["flush"], 0, own)
        if fresh and self._fill_shared is not None:
            graph.kernel(self._fill_shared)
        return copy

    @property
    def most_ns(self) -> float:
        """What it may take before a sample."""
        sizes = [one.size_bytes for one in self._outputs] + [one.size_bytes for one in self._regions]
        return RESET_NS * (1 + len(sizes)) + sum(sizes) / RESET_BYTES_PER_NS
