"""Notices that the GPU is not what it was some seconds ago, by a kernel that always does the same."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import replace

from tuner.core.conditions import Conditions, Mode
from tuner.core.model import Gpu
from tuner.gpu.buffers import Helpers
from tuner.gpu.graph import Graph
from tuner.gpu.problem import ProblemSession
from tuner.kernel.workload import Batch, Limits

VECTOR_ROUNDS = 350
"""Of ``multiply_add``: some 200 us on an H200."""
EVERY = 16
EVERY_S = 30.0
"""Candidates, or seconds, from one probe to the next."""
TOLERANCE = 0.02
"""Relative difference from which the GPU counts as another: several times what rested medians of one kernel differ by
on an H200 (0.1 to 0.5 %)."""
AGAIN_S = 0.2
"""Wait before a second probe confirms it."""


class ReferenceKernel:
    """The kernel that always does the same: arithmetic, whose time shows the SM clock.

    No memory: where a buffer happens to lie changes the time of a sweep by some percent, and each problem has its own.

    Args:
        session: any problem's.
        helpers: the tuner's own kernels.
        gpu: for its size.
    """

    def __init__(self, session: ProblemSession, helpers: Helpers, gpu: Gpu) -> None:
        data, batch = session.data, Batch(1, 1)
        gap_ns = session.timer.measure_gap(data, session.stamps, Mode.COLD)
        light = Limits(0.0, 0.0, 0.0)
        self._session = replace(session, conditions=Conditions(), limits=light, batch=batch, gap_ns=gap_ns)
        never = data.memory.allocate("reference", 16)
        arguments = [("int32", VECTOR_ROUNDS), ("pointer", never)]
        self._arithmetic = helpers.kernel("multiply_add", 8 * gpu.sm_count, 256, arguments)

    def add_to(self, graph: Graph, copy: int) -> None:  # noqa: ARG002 - it touches no tensor
        """Append it."""
        graph.kernel(self._arithmetic)

    def close(self) -> None:
        """It owns nothing."""

    def time_ns(self) -> float:
        """Take eight samples, light and cold whatever the conditions of the problem are."""
        with closing(self._session.graph(self, 8, 2e5)) as graph:
            return statistics.median(self._session.take(graph, 2e5).times_ns)


class DriftWatch:
    """Probes the reference kernel now and then.

    Args:
        reference: the kernel.
    """

    def __init__(self, reference: ReferenceKernel) -> None:
        self._reference = reference
        self.reference_ns = reference.time_ns()
        self._candidates = 0
        self._last_s = time.monotonic()

    def probe(self) -> bool:
        """Count a candidate, and probe if it is time: whether the reference has changed since the last probe.

        Raises:
            ClockMismatchError: something disturbs the reference; this was no probe.
        """
        self._candidates += 1
        if self._candidates < EVERY and time.monotonic() < self._last_s + EVERY_S:
            return False
        time_ns = self._reference.time_ns()
        if self._differs(time_ns):
            time.sleep(AGAIN_S)
            time_ns = self._reference.time_ns()
        drifted = self._differs(time_ns)
        self._candidates, self._last_s = 0, time.monotonic()
        if drifted:
            self.reference_ns = time_ns  # later probes are compared with this one
        return drifted

    def _differs(self, time_ns: float) -> bool:
        return abs(time_ns / self.reference_ns - 1.0) > TOLERANCE
