"""Other contents of the same numbers, within a graph: inputs are rolled, so that no launch before has met them.

What foreign code keeps in memory of its own, nothing here can overwrite; but it can be of no use for other inputs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import copy_all
from tuner.gpu.driver import Graph
from tuner.kernel.contents import is_random
from tuner.runtime.driver import DriverFailure
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launches import Buffer

ALIGNED_BYTES, LARGE_BYTES = 256, 1 << 20
"""By multiples of it, so that both pieces are copied as fast as the whole; of small tensors by elements, so that no
content comes twice."""


class Rolling:
    """Rolls the random inputs of a problem; those that mean something stay as they are, and what follows from these.

    Args:
        data: the tensors, with the content that is rolled. Where there is no room for a copy, nothing is.
    """

    def __init__(self, data: ProblemData) -> None:
        self._data, self._draw = data, random.SystemRandom()
        self._base: dict[str, int] = {}
        for tensor in data.tensors if data.given is None else ():
            if tensor.role == "input" and is_random(tensor) and tensor.count > 1:
                try:
                    address = data.memory.allocate(f"{tensor.name} to roll", tensor.size_bytes)
                except DriverFailure as failure:
                    if failure.sticky:
                        raise
                    break
                self._base[tensor.name] = address
        copy_all([(self._base[one.name], data.address(one.name), one.size_bytes) for one in self.tensors])

    @property
    def tensors(self) -> Sequence[Buffer]:
        """Those that are rolled."""
        return [tensor for tensor in self._data.tensors if tensor.name in self._base]

    def add_to(self, graph: Graph, copy: int, *, rolled: bool) -> None:
        """Append what gives a copy of the inputs another content, or by as many bytes the first one."""
        for tensor in self.tensors:
            to, base = self._data.address(tensor.name, copy), self._base[tensor.name]
            step = ALIGNED_BYTES if tensor.size_bytes >= LARGE_BYTES else ITEMSIZE[tensor.dtype]
            first = step * self._draw.randrange(1, -(-tensor.size_bytes // step))
            rest = tensor.size_bytes - first
            if rolled:
                graph.copy(to, base + first, rest)
                graph.copy(to + rest, base, first)
            else:
                graph.copy(to, base, first)
                graph.copy(to + first, base + first, rest)
