"""How many trials may be pending."""

from __future__ import annotations

from tuner.devices.base import Device

LONG_NS = 50e6
"""Kernels of such a time are not submitted ahead where the time is short: every submitted one is awaited, also when the
time is over."""
AHEAD = 2
"""Then one is compiled while another is timed."""


def lookahead_of(device: Device, expected_ns: float | None, best_ns: float | None = None) -> int:
    """Return how many trials may be pending.

    Args:
        device: says how many keep it busy.
        expected_ns: what the next candidates take, roughly, if the time for them is short; else None.
        best_ns: of the fastest so far.
    """
    if expected_ns is None or max(expected_ns, best_ns or 0.0) < LONG_NS:
        return device.lookahead
    return min(device.lookahead, AHEAD)
