"""Takes groups of samples: alone on the GPU, rested or hot, with every clock checked.

Samples are CUDA graphs, of what lies before, between and behind the two events of each.

The event pairs lie inside one graph, so that no host work can slip between them.

- cold: ``[restore, flush, event, kernel, event]``. The flush *reads* three times the L2: what a memset would leave
  there is dirty, and the next kernel would pay for writing it back.
- rotating: ``[restore, flush, event, kernel on copy 0, on copy 1, ..., event]``, divided by the number of calls. Each
  call finds its data cold, because other copies went through the L2 since its turn before, and the cost of the events
  is shared by all of them.
- warm: ``[restore, kernel, event, kernel, kernel, ..., event]``, all on the same tensors.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field

from cuda.bindings import driver as cu

from tuner.core.conditions import Conditions, Mode, Regime
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Fixed, Timed
from tuner.gpu.clocks import SLOWDOWNS, Clocks, Stamps
from tuner.gpu.driver import Context, Graph
from tuner.kernel.batching import Batch
from tuner.kernel.contents import NAN
from tuner.runtime.driver import check


class SampleGraph:
    """A group of samples of one candidate between two stamps, ready to be launched.

    Args:
        data: the tensors.
        stamps: note clock and time before the first and after the last sample.
        timed: the candidate.
        samples: event pairs.
        mode: what the caches hold.
        calls: between two events; 1 when cold.
        graph: the empty graph that becomes the group; without it a new one.
        before: appends what else comes before the sample of a number, and returns the copy that it begins with.
    """

    def __init__(
        self,
        data: ProblemData,
        stamps: Stamps,
        timed: Timed,
        samples: int,
        mode: Mode,
        calls: int,
        graph: Graph | None = None,
        before: Callable[[Graph, int], int] | None = None,
    ) -> None:
        self.data, self.stamps = data, stamps
        self.samples, self.calls = samples, calls
        self.lead = 1 if mode is Mode.WARM else 0
        """Calls of each sample that lie before its first event."""
        self.before_ns = 0.0
        """What ``before`` may take."""
        copies = 1 if mode is Mode.WARM else data.copies
        self._graph = graph or Graph(data.helpers.context)
        self._pairs = []
        stamps.add_before(self._graph)
        for number in range(samples):
            first = before(self._graph, number) if before else 0
            data.add_restore(self._graph, first if before else None)
            for _ in range(self.lead):
                timed.add_to(self._graph, 0)
            if mode is not Mode.WARM:
                self._graph.kernel(data.flush)
            start = self._graph.event()
            for call in range(self.calls):
                timed.add_to(self._graph, (first + call) % copies)
            self._pairs.append((start, self._graph.event()))
        stamps.add_after(self._graph)

    def launch(self) -> None:
        """Queue the group."""
        self._graph.launch()

    def read(self) -> list[float]:
        """Return each sample of the last launch, in nanoseconds a call; wait for the stream first."""
        return [
            float(check(cu.cuEventElapsedTime(start, end))) * 1e6 / self.calls for start, end in self._pairs
        ]

    def close(self) -> None:
        """Free it."""
        self._graph.close()


def run_once(
    data: ProblemData,
    timed: Timed,
    graph: Graph | None = None,
    poison: int = NAN,
    beside: AbstractContextManager[None] | None = None,
) -> float:
    """Run a candidate once on poisoned memory and restored tensors, in an empty graph; return nanoseconds.

    Args:
        data: the tensors.
        timed: the candidate.
        graph: the empty graph; without it a new one.
        poison: what memory holds before.
        beside: other work, which there is for so long.
    """
    data.poison(poison)
    with closing(graph or Graph(data.helpers.context)) as graph:
        data.add_restore(graph)
        for region in timed.regions:
            if region.byte == NAN and not region.image:
                region.add_reset(graph, poison)
        if poison != NAN:
            graph.kernel(data.helpers.fill_shared(words=True, byte=poison))
        start = graph.event()
        timed.add_to(graph, 0)
        end = graph.event()
        graph.prepare()
        with beside or nullcontext():
            graph.launch()
            data.helpers.context.synchronize()
        timed.deliver(0)
        return float(check(cu.cuEventElapsedTime(start, end))) * 1e6


GROUP_NS = 8e6
"""Back-to-back GPU time of a group: below some 10 ms the power cap of an H200 is not reached from rest."""
MAX_GROUP = 16
REST_FACTOR = 1.5
"""Rest after a group of heavy samples, as a multiple of the group: the GPU is then busy 40 % of the time, which
keeps an 8192^3 cuBLAS product within 0.5 % of its rested time on an H200 (without a pause: 15 to 28 % slower)."""
HOT_GROUP_NS = 100e6
"""Length of a group under sustained load: the power limit's control loop swings within tens of milliseconds."""
WARM_UP_S = 1.0
"""Load before the first sustained group: an H200 takes some 0.6 s to come down to what its power limit allows."""
SETTLE_S = 0.15
"""Load before each further one, while the card is still hot: another kernel draws another power."""
COLD_AFTER_S = 0.2
"""A card that had nothing to do for so long has to be warmed up again."""
TRIES = 4
"""Takes of a group that something else disturbed."""
WAIT_S = (0.05,) * 62
"""Pauses while the hardware slows down by itself, at times for some 0.5 s on a hot H100; after the last the group is
taken as it is, and tagged."""
MOST_WAITING_S = TRIES * (sum(WAIT_S) + WARM_UP_S)
"""What the takes of one group can add to the time of its own work: waiting, and load ahead of it."""


@dataclass
class Samples:
    """What was measured of one candidate so far."""

    times_ns: list[float] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    capped: int = 0
    clocks_hz: list[float] = field(default_factory=list)
    calls: int = 1
    """Of each sample, in the last group."""

    def add(self, other: Samples) -> None:
        """Take another group in."""
        self.times_ns += other.times_ns
        self.tags |= other.tags
        self.capped += other.capped
        self.clocks_hz += other.clocks_hz
        self.calls = other.calls

    @property
    def sm_clock_hz(self) -> float:
        """Mean over the groups; 0 where none was counted."""
        return statistics.fmean(self.clocks_hz) if self.clocks_hz else 0.0


class ClockMismatchError(Exception):
    """The events contradict the clock on the wall, or the one on the GPU."""


class Timer:
    """Takes groups under one set of conditions.

    Args:
        context: of the GPU.
        clocks: NVML's.
    """

    def __init__(self, context: Context, clocks: Clocks) -> None:
        self._context = context
        self._clocks = clocks
        self._rest_until = 0.0
        self._hot_until = -math.inf
        self._hot: SampleGraph | None = None
        """Whose group under sustained load was the last."""

    def measure_gap(self, data: ProblemData, stamps: Stamps, mode: Mode) -> float:
        """Learn how many nanoseconds a sample takes besides its calls, by taking some of no call at all."""
        with closing(SampleGraph(data, stamps, Fixed(), 4, mode, 1)) as graph:
            spans = []
            for _ in range(3):
                graph.launch()
                self._context.synchronize()
                spans.append((stamps.read().elapsed_ns - sum(graph.read())) / graph.samples)
            return max(0.0, statistics.median(spans))

    def group(self, graph: SampleGraph, regime: Regime, gap_ns: float, *, heavy: bool) -> Samples:
        """Take one group: rest or warm up if due, poison the outputs, launch, and look at the clocks.

        A group that something else disturbed is taken again.

        Args:
            graph: the group.
            regime: rested or sustained.
            gap_ns: what a sample takes besides its calls.
            heavy: whether the kernel draws so much power that it needs rest, or load ahead.

        Raises:
            ClockMismatchError: the events contradict the wall clock, or the GPU's own, every time.
        """
        problem = ""
        for _ in range(TRIES):
            tags = self._wait_for_the_hardware()
            ahead = self._prepare(graph, regime) if heavy else 0
            graph.data.poison()
            if not ahead:
                self._context.synchronize()
            taken_s, ended = self._run(graph), time.monotonic()
            if heavy and regime is Regime.SUSTAINED:
                self._hot, self._hot_until = graph, ended + COLD_AFTER_S
            elif heavy:
                self._rest_until = ended + REST_FACTOR * taken_s
            times, span = graph.read(), graph.stamps.read()
            wall_s = math.inf if ahead else taken_s
            problem = self._contradiction(graph, times, wall_s, span.elapsed_ns, gap_ns)
            reasons = self._clocks.reasons()
            if not problem and not reasons & SLOWDOWNS - tags:
                break
        if problem:
            raise ClockMismatchError(problem)
        capped = len(times) if "power_cap" in reasons else 0
        clocks = [span.sm_clock_hz] if span.sm_clock_hz else []
        return Samples(times, set(tags | reasons) - {"clocks_setting"}, capped, clocks, graph.calls)

    def _run(self, graph: SampleGraph) -> float:
        """Launch a group, wait for it, and return the seconds of both."""
        began = time.monotonic()
        graph.launch()
        self._context.synchronize()
        return time.monotonic() - began

    def _wait_for_the_hardware(self) -> frozenset[str]:
        """Wait while heat or the power supply slows the card; return what does not go away."""
        for pause in WAIT_S:
            if not self._clocks.reasons() & SLOWDOWNS:
                return frozenset()
            time.sleep(pause)
        return self._clocks.reasons() & SLOWDOWNS

    def _prepare(self, graph: SampleGraph, regime: Regime) -> int:
        """Rest, or put load ahead of the group; return the number of launches that are queued ahead."""
        if regime is Regime.RESTED:
            time.sleep(max(0.0, self._rest_until - time.monotonic()))
            return 0
        hot = time.monotonic() < self._hot_until
        if hot and self._hot is graph:
            return 0
        once_s = max(self._run(graph), 1e-5)
        ahead = max(0, math.ceil((SETTLE_S if hot else WARM_UP_S) / once_s) - 1)
        for _ in range(ahead):
            graph.launch()
        return ahead

    def _contradiction(
        self,
        graph: SampleGraph,
        times_ns: Sequence[float],
        wall_s: float,
        elapsed_ns: float,
        gap_ns: float,
    ) -> str:
        """Compare the events with the clock on the wall, and with the one that the GPU keeps."""
        inside_ns = sum(times_ns) * graph.calls
        if inside_ns > wall_s * 1.02e9 + 1e5:
            return f"events add up to {inside_ns * 1e-6:.3f} ms in {wall_s * 1e3:.3f} ms of wall time"
        if not elapsed_ns:
            return ""
        if inside_ns > elapsed_ns * 1.02 + 1e4:
            return (
                f"events add up to {inside_ns * 1e-6:.3f} ms in {elapsed_ns * 1e-6:.3f} ms on the GPU's clock"
            )
        # Beside the timed calls there are others before them, and the flush and the gaps, whose length is known.
        lead_ns = graph.lead * sum(times_ns) * 2
        sample_ns = 1.5 * (gap_ns + graph.before_ns) + 3e4
        allowed_ns = inside_ns * 1.02 + lead_ns + graph.samples * sample_ns + 2e5
        if elapsed_ns > allowed_ns:
            return (
                f"the GPU was busy with something else: {elapsed_ns * 1e-6:.3f} ms passed around samples of "
                f"{inside_ns * 1e-6:.3f} ms"
            )
        return ""


def group_size(estimate_ns: float, conditions: Conditions, batch: Batch, *, heavy: bool) -> int:
    """Return how many samples fit into a group."""
    sample_ns = max(estimate_ns, 1.0) * batch.calls_for(estimate_ns)
    if heavy and conditions.regime is Regime.SUSTAINED:
        return max(1, min(8 * MAX_GROUP, int(HOT_GROUP_NS / sample_ns)))
    return max(1, min(MAX_GROUP, int(GROUP_NS / sample_ns)))


def median_half_width(samples: Sequence[float]) -> float:
    """Return a quick relative half-width of the median's 95 % interval, from the quartiles.

    For a median, 1.57 IQR / sqrt(n) (McGill, Tukey and Larsen, American Statistician 32, 1978).
    """
    if len(samples) < 4:
        return float("inf")
    low, middle, high = statistics.quantiles(samples, n=4)
    return float(1.57 * (high - low) / (middle * len(samples) ** 0.5))
