"""Other work on the GPU beside a kernel that is verified.

Alone on an idle GPU a kernel runs like clockwork: its warps take the same turns each time, and its blocks begin in
order. So a race can be won in every run, until the kernel shares the GPU: see docs/measuring.md, and
``scripts/measuring/races.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from cuda.bindings import driver as cu

from tuner.runtime.driver import check

if TYPE_CHECKING:
    from tuner.gpu.buffers import Helpers

LEAST_NS, MOST_NS = 3e5, 5e6
"""How long the other work takes: twice as long as the kernel within these limits. A long kernel meets it in a part."""
ROUND_NS = 150.0
"""Of ``multiply_add`` by 512 threads of an SM: 64 instructions of each of 16 warps, at some 1.7 GHz."""
HEAD_START_S = 5e-5
"""For which the other work is ahead."""


class Load(Enum):
    """What else the GPU does."""

    EVERY_SM = "every SM has other work, too"
    HALF = "half of the SMs are mostly taken"


class OtherWork:
    """Arithmetic in a stream of its own.

    Args:
        helpers: the tuner's own kernels.
    """

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))

    @contextmanager
    def during(self, load: Load, estimate_ns: float) -> Iterator[None]:
        """Let a block launch a kernel while there is other work; at its end there is none.

        Args:
            load: how much.
            estimate_ns: the kernel's time; 0 for none.
        """
        context, gpu = self._helpers.context, self._helpers.gpu
        length_ns = min(MOST_NS, max(LEAST_NS, 2 * estimate_ns))
        grid, block, shared_bytes = gpu.sm_count, 512, 0
        # Each of half as many blocks takes most of an SM's shared memory, so that no two lie on one SM.
        if load is Load.HALF:
            grid, block, shared_bytes = max(1, gpu.sm_count // 2), 1024, gpu.shared_bytes_optin * 7 // 8
        rounds = round(length_ns / ROUND_NS * 512 / block)
        arguments = [("int32", rounds), ("pointer", 0)]
        work = self._helpers.kernel("multiply_add", grid, block, arguments, shared_bytes)
        context.synchronize()
        work.launch(int(self._stream))
        time.sleep(HEAD_START_S)
        try:
            yield
        finally:
            cu.cuStreamSynchronize(self._stream)  # after a fault it only says so again
