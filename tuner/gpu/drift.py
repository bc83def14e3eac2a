"""A kernel that always does the same notices that the GPU is not what it was some seconds ago."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import replace

from tuner.children.measuring import DRIFT, PROBED
from tuner.core.conditions import Conditions, Mode
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Fixed
from tuner.gpu.problem import ProblemSession
from tuner.kernel.batching import Batch, Limits

VECTOR_ROUNDS = 350
"""Of ``multiply_add``: some 200 us on an H200."""
EVERY_S = 30.0
"""From one probe to the next, where fewer than ``PROBED`` candidates are timed meanwhile."""
AGAIN_S = 0.2
"""Wait before a second probe confirms it."""


def arithmetic(data: ProblemData) -> Fixed:
    """Return a kernel that multiplies and adds on all SMs."""
    helpers = data.helpers
    arguments = [("int32", VECTOR_ROUNDS), ("pointer", data.memory.allocate("never", 16))]
    return Fixed(helpers.kernel("multiply_add", 8 * helpers.gpu.sm_count, 256, arguments))


class ReferenceKernel:
    """The kernel that always does the same: arithmetic, whose time shows the SM clock.

    No memory: where a buffer happens to lie changes the time of a sweep by some percent, and each problem has its own.

    Args:
        session: any problem's.
    """

    def __init__(self, session: ProblemSession) -> None:
        data, batch = session.data, Batch(1, 1)
        gap_ns = session.timer.measure_gap(data, session.stamps, Mode.COLD)
        light = Limits(0.0, 0.0, 0.0)
        self._session = replace(session, conditions=Conditions(), limits=light, batch=batch, gap_ns=gap_ns)
        self._arithmetic = arithmetic(data)

    def time_ns(self) -> float:
        """Take eight samples, light and cold whatever the conditions of the problem are."""
        with closing(self._session.graph(self._arithmetic, 8, 2e5)) as graph:
            return statistics.median(self._session.take(graph, 2e5).times_ns)


class DriftWatch:
    """Probes the reference kernel now and then.

    Args:
        reference: the kernel.
        before_ns: what it took in the process before this one; the first candidate then shows whether that still holds.
    """

    def __init__(self, reference: ReferenceKernel, before_ns: float = 0.0) -> None:
        self._reference = reference
        self.reference_ns = before_ns or reference.time_ns()
        self._candidates = PROBED if before_ns else 0
        self._last_s = time.monotonic()

    def probe(self) -> bool:
        """Count a candidate, and probe if it is time: whether the reference has changed since the last probe.

        Raises:
            ClockMismatchError: something disturbs the reference; this was no probe.
        """
        self._candidates += 1
        if self._candidates < PROBED and time.monotonic() < self._last_s + EVERY_S:
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
        return abs(time_ns / self.reference_ns - 1.0) > DRIFT
