"""The note for times that are more the launch's than the kernel's."""

from __future__ import annotations

from tuner.core.conditions import Calibration, Conditions
from tuner.report.tables import duration


def launch_note(
    calibration: Calibration | None, conditions: Conditions, time_ns: float, *, tied: bool = False
) -> str:
    """Return the note that launch latency decides, with its time; empty if it does not, or was not measured.

    Args:
        calibration: of the GPU, where there is one.
        conditions: under which the time was taken.
        time_ns: of the fastest.
        tied: whether others are statistically tied with it.
    """
    if calibration is None or not calibration.launch_decides(conditions, time_ns, tied=tied):
        return ""
    empty = duration(calibration.launch_ns[str(conditions.mode)])
    same = ", and the fastest are statistically tied" if tied else ""
    return f"launch latency decides: {duration(time_ns)}, where a kernel that copies 512 bytes takes {empty}{same}"
