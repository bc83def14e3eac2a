"""Calibrations of GPUs, kept for each card and driver."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from tuner.core.conditions import Calibration
from tuner.core.files import make_private, refusal, whole_file
from tuner.core.model import Gpu, digest
from tuner.kernel.render import render_ceilings, render_helpers

SHORT_NS = 50_000.0
"""A kernel that cannot be faster than this is not short: what the address of its code costs it, 22 to 41 ns, is less
than half of the least noise floor."""
VERSION = 4
"""Of how calibrations are taken."""
BESIDE_OTHERS_S = 900.0
"""How long a calibration is valid that was taken while other processes had a context on the GPU: what these did to the
noise may be over. Without it each of many judgements at once would calibrate, and none would ever be alone."""


class CalibrationCache:
    """A folder of calibrations.

    Args:
        folder: where; None keeps nothing, nor does one that another user could change.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None or refusal(folder) else folder

    def read(self, gpu: Gpu) -> Calibration | None:
        """Return what was measured last on this very card with this driver and these kernels."""
        if self._folder is None:
            return None
        found: list[tuple[float, Calibration]] = []
        for alone in (True, False):
            path = self._path(self._folder, gpu, alone=alone)
            # Absent, or of another version.
            with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
                at, calibration = path.stat().st_mtime, Calibration.from_json(json.loads(path.read_text()))
                sound = min(calibration.reference_ns, *calibration.noise.values()) > 0
                if sound and (alone or time.time() - at <= BESIDE_OTHERS_S):
                    found.append((at, calibration))
        return max(found, key=lambda one: one[0])[1] if found else None

    def write(self, gpu: Gpu, calibration: Calibration, *, alone: bool = True) -> None:
        """Keep a calibration; a folder that cannot be written costs its repetition, nothing else.

        Args:
            gpu: the card.
            calibration: of it.
            alone: whether no other process had a context on it; else it is valid for a quarter of an hour.
        """
        if self._folder is None:
            return
        path = self._path(self._folder, gpu, alone=alone)
        with suppress(OSError):
            make_private(self._folder.parent, self._folder)
            with whole_file(path, replace=True) as partial:
                partial.write_text(json.dumps(calibration.to_json()))

    @staticmethod
    def _path(folder: Path, gpu: Gpu, *, alone: bool) -> Path:
        how = digest([VERSION, gpu.driver, gpu.clock_hz, render_helpers(), render_ceilings(gpu.cc)])
        return folder / f"{gpu.uuid or 'unknown'}-{how[:16]}{'' if alone else '-beside-others'}.json"
