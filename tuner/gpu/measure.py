"""One candidate: verified, timed as long as its rank deserves, verified again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from tuner.gpu.candidate import Timed
from tuner.gpu.problem import Stand
from tuner.gpu.timing import Samples, median_half_width
from tuner.model import Measurement, Status

SLOW_FACTOR = 3.0
HOPELESS_FACTOR = 10.0
MIN_SAMPLES = 12
ALSO_RAN_NS = 20e6
CONTENDER_FACTOR = 1.05
CONTENDER_NS = 80e6
CONTENDER_SAMPLES = 100
NARROW = 0.0025


class Judge:
    """Judges one candidate after the other.

    Args:
        stand: the problem.
        idle: whether nobody waits for the GPU; further samples then cost nobody anything.
    """

    def __init__(self, stand: Stand, idle: Callable[[], bool]) -> None:
        self._stand = stand
        self._idle = idle
        self.refined_s = 0.0
        """Seconds spent on more samples of the last candidate than its rank asked for."""

    def judge(self, timed: Timed, incumbent_ns: float, *, thorough: bool, verify_only: bool) -> Measurement:
        """Say what a candidate is worth.

        Args:
            timed: the candidate.
            incumbent_ns: the best time so far; 0 for none.
            thorough: take as many samples as a contender gets, whatever its rank.
            verify_only: one run, no timing.

        Raises:
            DriverFailure: it cannot be launched, or ruined the context.
            ClockMismatchError: its times contradict a clock.
        """
        self.refined_s = 0.0
        stand = self._stand
        first_ns, verification = stand.first_run(timed, incumbent_ns)
        if verification.checked and not verification.passed:
            return Measurement(Status.WRONG_RESULT, (first_ns,), verification.message, verification)
        if verify_only:
            return Measurement(Status.OK, (first_ns,), "", verification)
        samples, slow = self._sample(timed, first_ns, incumbent_ns, thorough)
        found = Measurement(
            Status.SLOW if slow else Status.OK,
            tuple(samples.times_ns),
            verification=verification,
            tags=tuple(sorted(samples.tags)),
            sm_clock_hz=samples.sm_clock_hz,
            capped_samples=samples.capped,
        )
        again = stand.check_after(timed, samples.calls)
        if again.checked and not again.passed:
            return replace(found, status=Status.WRONG_AFTER_TIMING, error=again.message, verification=again)
        middle, floor = statistics.median(samples.times_ns), stand.limits.floor_ns
        if middle < floor:
            least = f"{middle / 1e3:.2f} us is less than the hardware needs ({floor / 1e3:.2f} us)"
            return replace(found, status=Status.TOO_FAST, error=least)
        if not verification.checked:
            return replace(found, status=Status.UNVERIFIED, error=verification.message)
        return found

    def _sample(
        self, timed: Timed, first_ns: float, incumbent_ns: float, thorough: bool
    ) -> tuple[Samples, bool]:
        """Take as many samples as the candidate's rank deserves; says whether it was given up as slow."""
        stand = self._stand
        if incumbent_ns and not thorough and first_ns > HOPELESS_FACTOR * incumbent_ns:
            # The first run was not warmed up: kernels of microseconds can look ten times slower in it.
            samples = self._groups(timed, 1, first_ns, 1)
            if samples.times_ns[0] > SLOW_FACTOR * incumbent_ns:
                return samples, True
        if incumbent_ns and not thorough and first_ns > SLOW_FACTOR * incumbent_ns:
            samples = self._groups(timed, 2, first_ns, 2)
            if min(samples.times_ns) > SLOW_FACTOR * incumbent_ns:
                return samples, True
            first_ns = min(samples.times_ns)
        calls = stand.batch.calls_for(first_ns)
        size = stand.size(first_ns)
        samples = self._groups(timed, size, first_ns, 1 if calls * first_ns > ALSO_RAN_NS / 3 else 3)
        while len(samples.times_ns) < MIN_SAMPLES and calls * sum(samples.times_ns) < ALSO_RAN_NS:
            self._extend(timed, size, samples)
        middle = statistics.median(samples.times_ns)
        contends = thorough or not incumbent_ns or middle < CONTENDER_FACTOR * incumbent_ns
        while len(samples.times_ns) < CONTENDER_SAMPLES and calls * sum(samples.times_ns) < CONTENDER_NS:
            wide = contends and median_half_width(samples.times_ns) > NARROW
            # While the compilers are behind, the time is best spent on this candidate.
            if not wide and (thorough or not self._idle()):
                break
            began = time.monotonic()
            self._extend(timed, size, samples)
            self.refined_s += 0.0 if wide else time.monotonic() - began
        return samples, False

    def _extend(self, timed: Timed, size: int, samples: Samples) -> None:
        samples.add(self._groups(timed, size, statistics.median(samples.times_ns), size))

    def _groups(self, timed: Timed, size: int, estimate_ns: float, least: int) -> Samples:
        """Take groups of ``size`` until there are ``least`` samples."""
        samples = Samples()
        graph = self._stand.graph(timed, size, estimate_ns)
        try:
            while len(samples.times_ns) < least:
                samples.add(self._stand.take(graph, estimate_ns))
        finally:
            graph.close()
        return samples
