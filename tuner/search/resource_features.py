"""Compiler statistics of a configuration as features: registers, spills, shared memory, blocks on an SM.

Only compiled configurations have them, so that a model with them can choose among nominees, but cannot nominate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.core.model import Resources
from tuner.search.features import ABSENT_DISTANCE, Codes, Floats

REGISTERS = np.log2(np.arange(8, 264, 8))
"""In steps of 8, as they are given to warps; by ratio, as all of these."""
BLOCKS = np.log2(1.0 + np.arange(33))
"""Blocks that fit on one SM."""
SHARED = np.arange(10, 18.25, 0.25)
"""Bytes of shared memory from 1 KiB on, in quarters of an octave."""
SPILLS = np.arange(0.0, 14.0)
"""Bytes that a thread spills, or keeps on its stack, in octaves."""
SCALES = (REGISTERS, BLOCKS, SHARED, SPILLS)


def distances() -> list[Floats]:
    """Return for each feature the distances between its levels; the last level is for none."""
    tables = []
    for scale in SCALES:
        wide = np.full((len(scale) + 1, len(scale) + 1), ABSENT_DISTANCE)
        wide[:-1, :-1] = np.abs(scale[:, None] - scale) / np.ptp(scale)
        wide[-1, -1] = 0.0
        tables.append(wide)
    return tables


def encode(resources: Sequence[Resources | None]) -> Codes:
    """Return the levels of each: one row each, one column a feature."""
    codes = np.array([[len(scale) for scale in SCALES]] * len(resources), dtype=np.int64)
    for row, report in zip(codes, resources, strict=True):
        if report is None:
            continue
        amounts = (
            np.log2(max(report.registers, 8)),
            np.log2(1.0 + report.active_blocks),
            np.log2(1024.0 + report.static_shared_bytes + report.dynamic_shared_bytes),
            np.log2(1.0 + report.spill_bytes + report.stack_bytes),
        )
        row[:] = [int(np.abs(scale - amount).argmin()) for scale, amount in zip(SCALES, amounts, strict=True)]
    return codes
