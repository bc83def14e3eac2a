"""What variables of a candidate's code held before its first run, and which of them a run has changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from cuda.bindings import driver as cu

from tuner.gpu.buffers import Helpers
from tuner.gpu.driver import Graph
from tuner.gpu.memory import Memory
from tuner.runtime.driver import check
from tuner.runtime.expressions import round_up

BLOCK = 256
PIECE_BYTES = 1 << 12
"""Of a variable that one block copies or compares: 16 for each thread."""
SPAN = np.dtype([("variable", "<u8"), ("image", "<u8"), ("size_bytes", "<u8")])
"""A ``Span`` of ``templates/common/helpers.cu.j2``."""
HEADER_BYTES = 16
"""Before the spans in memory: the number of the first that differs."""


class Images:
    """Copies of variables in memory of their own, taken now.

    One launch takes, compares or restores them all. Constants of C++ are variables, too: a matrix product has 67, and
    the driver copies each by itself.

    Args:
        helpers: have the kernels.
        memory: takes the images.
        name: free in it.
        variables: address and bytes of each; those that are compared come first.
        compared: how many these are.
    """

    def __init__(
        self, helpers: Helpers, memory: Memory, name: str, variables: Sequence[tuple[int, int]], compared: int
    ) -> None:
        self._helpers = helpers
        pieces = [
            (number, start, min(PIECE_BYTES, size_bytes - start))
            for number, (_, size_bytes) in enumerate(variables)
            for start in range(0, size_bytes, PIECE_BYTES)
        ]
        self._numbers = [number for number, *_ in pieces if number < compared]
        header_bytes = HEADER_BYTES + round_up(SPAN.itemsize * len(pieces), 16)
        offsets = list(accumulate((round_up(one, 16) for _, one in variables), initial=header_bytes))
        self._base = memory.allocate(name, offsets[-1])
        self.addresses = [self._base + offset for offset in offsets[:-1]]
        """Of each variable's image."""
        spans = [
            (variables[number][0] + start, self.addresses[number] + start, size)
            for number, start, size in pieces
        ]
        self._header = b"\xff" * HEADER_BYTES + np.array(spans, SPAN).tobytes()
        self._pieces = len(pieces)
        self.size_bytes = sum(size_bytes for _, size_bytes in variables)
        """Of all variables."""
        self._write_header()
        helpers.run("copy_images", self._pieces, BLOCK, self._arguments(back=0))

    def _arguments(self, *, back: int) -> list[tuple[str, int]]:
        return [("pointer", self._base + HEADER_BYTES), ("int32", back)]

    def _write_header(self) -> None:
        """Write the spans, before each comparison anew: a candidate may have written anywhere."""
        check(cu.cuMemcpyHtoD(self._base, self._header, len(self._header)))
        check(cu.cuStreamSynchronize(0))  # the copy may be under way still, and no launch waits for it

    def changed(self) -> int | None:
        """Return the number of the first variable that is compared and not as it was; None if all are."""
        if not self._numbers:
            return None
        self._write_header()
        arguments = [("pointer", self._base + HEADER_BYTES), ("pointer", self._base)]
        self._helpers.run("compare_images", len(self._numbers), BLOCK, arguments)
        first = bytearray(4)
        check(cu.cuMemcpyDtoH(first, self._base, 4))
        piece = int.from_bytes(first, "little")
        return self._numbers[piece] if piece < len(self._numbers) else None

    def add_reset(self, graph: Graph) -> None:
        """Append what gives all variables their first values back."""
        graph.kernel(self._helpers.kernel("copy_images", self._pieces, BLOCK, self._arguments(back=1)))
