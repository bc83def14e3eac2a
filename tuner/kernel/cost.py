"""How long tuning a problem takes, roughly: for dealing out problems, not for promises."""

from __future__ import annotations

from dataclasses import replace

from tuner.core.model import Problem
from tuner.kernel.roofline import ARCHITECTURES, roof_of
from tuner.kernel.spec import KernelSpec

TYPICAL = replace(ARCHITECTURES[90], memory_bytes_per_s=4e12)
"""The GPU that estimates are for: the same everywhere, so that all hosts deal out a list in the same way."""
OPENING_S = 4.0
"""Inputs, the reference, the race, fresh processes and edge-case sizes: a search of gemm on an H200 spends about so
long beside its trials."""
TRIAL_S = 0.055
"""Of a candidate whose calls take no time: compiling, verifying and recording it (15 to 19 trials a second)."""
CALLS = 60.0
"""Calls at the speed of light that a trial takes: two dozen samples, most of them slower, and pauses between them."""


def tuning_seconds(kernel: KernelSpec, problem: Problem, trials: int) -> float:
    """Return the seconds that a run of so many trials takes, by the problem's minimum work.

    Raises:
        TunerError: the kernel's file says of the work what cannot be evaluated.
    """
    call_s = roof_of(kernel, problem, TYPICAL).speed_of_light_ns * 1e-9
    return OPENING_S + trials * (TRIAL_S + CALLS * call_s)
