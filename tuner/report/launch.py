"""The sentence for times that are the launch's more than the kernel's."""

from __future__ import annotations

from tuner.conditions import Calibration, Conditions
from tuner.report.tables import duration


def launch_note(
    calibration: Calibration | None, conditions: Conditions, time_ns: float, *, tied: bool = False
) -> str:
    """Say that launch latency decides, and how much it is; empty where it does not, or nobody knows.

    Args:
        calibration: of the GPU, where there is one.
        conditions: under which the time was taken.
        time_ns: of the fastest.
        tied: whether others cannot be told from it.
    """
    if calibration is None or not calibration.launch_decides(conditions, time_ns, tied=tied):
        return ""
    least = duration(calibration.launch_ns[str(conditions.mode)])
    same = ", and the fastest cannot be told apart" if tied else ""
    return f"launch latency decides: {duration(time_ns)}, where a kernel that copies 512 bytes takes {least}{same}"
