"""Compilers of a simulated run: they take so long, by a clock of their own."""

from __future__ import annotations

import heapq

from tuner.children.compilation import Compilation
from tuner.core.model import Configuration, Status


class Compiling:
    """A device whose compilers take so many seconds each, by a clock of its own."""

    def __init__(self, compilers: int, compile_s: float) -> None:
        self.compilers, self.lookahead = compilers, compilers + 8
        self.now_s, self._compile_s = 0.0, compile_s
        self._free = [0.0] * compilers
        self._ends: dict[Configuration, float] = {}

    def compile(self, configuration: Configuration) -> None:
        self._ends[configuration] = max(self.now_s, self._free[0]) + self._compile_s
        heapq.heapreplace(self._free, self._ends[configuration])

    def compiled(self, configuration: Configuration) -> Compilation | None:
        return Compilation(Status.OK) if self._ends[configuration] <= self.now_s else None

    def forget(self, configuration: Configuration) -> None:
        pass

    def wait(self) -> None:
        """Let the next compilation end."""
        self.now_s = min(end for end in self._ends.values() if end > self.now_s)
