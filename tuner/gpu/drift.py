"""Notices that the GPU is not what it was some seconds ago, by a kernel that always does the same."""

from __future__ import annotations

import time

from tuner.gpu.calibration import Reference

EVERY = 16
EVERY_S = 30.0
"""Candidates, or seconds, from one look to the next."""
TOLERANCE = 0.02
AGAIN_S = 0.2
"""Wait before believing it."""


class DriftWatch:
    """Looks at the reference kernel now and then.

    Args:
        reference: the kernel.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.reference_ns = reference.time_ns()
        self._candidates = 0
        self._last_s = time.monotonic()

    def look(self) -> bool:
        """Count a candidate, and look if it is time: whether the reference has changed since the last look."""
        self._candidates += 1
        if self._candidates < EVERY and time.monotonic() < self._last_s + EVERY_S:
            return False
        found = self._reference.time_ns()
        if self._differs(found):
            time.sleep(AGAIN_S)
            found = self._reference.time_ns()
        drifted = self._differs(found)
        self._candidates, self._last_s = 0, time.monotonic()
        if drifted:
            self.reference_ns = found  # what comes now is compared with now
        return drifted

    def _differs(self, found_ns: float) -> bool:
        return abs(found_ns / self.reference_ns - 1.0) > TOLERANCE
