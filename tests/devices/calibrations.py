"""A calibration of a made-up card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.faults.fake_worker import GPU, REFERENCE_NS
from tuner.core.conditions import Calibration, Conditions

COLD = Conditions()
CALIBRATION = Calibration(
    noise={"cold, rested": 0.002, "rotating, rested": 0.003, "warm, rested": 0.004},
    short_noise_ns={"cold": 50.0, "rotating": 5.0},
    reference_ns=REFERENCE_NS,
    read_bytes_per_s=4.4e12,
    copy_bytes_per_s=4.2e12,
    matrix_flops=8e14,
    vector_flops=6e13,
    event_ns=1500.0,
    sm_clock_hz=1.98e9,
    measured="2026-11-20T12:00:00Z",
    notes=(
        "the SM clock is held at 1.20 of 1.98 GHz under light load: locked or limited by the GPU's owner",
    ),
)
CARD = replace(GPU, uuid="0123456789abcdef", driver="13.0")


def kept(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []
