"""What a locked-in process has in place of a reference: what outputs must be is known outside of it only.

It leaves outputs in a file, the exchange, and is told what they are worth; it finds inputs there that it did not know
before it had imported what it runs; and it launches as often as it is asked to by a process that has its own clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from cuda.bindings import driver as cu

from tuner.children.measuring import Compare, Compared, Draw, Drawn, Pace, Paced, Question, Told
from tuner.core.model import Verification
from tuner.gpu.driver import Graph
from tuner.kernel.contents import Tried
from tuner.runtime.driver import check
from tuner.runtime.launches import Buffer

if TYPE_CHECKING:
    from tuner.gpu.buffers import ProblemData
    from tuner.gpu.candidate import Timed

Ask = Callable[[Question], Told]


class Exchange:
    """A file that has the tensors of a problem one behind the other.

    Args:
        file: which is large enough.
        data: the tensors on this process's side.
    """

    def __init__(self, file: Path, data: ProblemData) -> None:
        self._file = file
        ends = itertools.accumulate(tensor.size_bytes for tensor in data.tensors)
        self._starts = {
            tensor.name: end - tensor.size_bytes for tensor, end in zip(data.tensors, ends, strict=True)
        }

    def leave(self, tensor: Buffer, address: int) -> None:
        """Copy a tensor there from the GPU."""
        # Not by writing: no process may write beyond 2 GiB where files are bounded.
        place = np.memmap(self._file, np.uint8, "r+", self._starts[tensor.name], (tensor.size_bytes,))
        check(cu.cuMemcpyDtoH(place.ctypes.data, address, tensor.size_bytes))

    def found(self, tensor: Buffer) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Return a tensor's bytes; where a process has cut the file off, NaN."""
        whole = np.full(tensor.size_bytes, 0xFF, np.uint8)
        there = np.fromfile(self._file, np.uint8, tensor.size_bytes, offset=self._starts[tensor.name])
        whole[: len(there)] = there
        return whole


class Outside:
    """Stands for a verifier (:class:`tuner.gpu.verify.Verifier`) and its further contents.

    Args:
        data: the tensors.
        file: the exchange.
        ask: asks the process outside.
    """

    host_s = 0.0
    rough: Mapping[str, int] = {}

    def __init__(self, data: ProblemData, file: Path, ask: Ask) -> None:
        self._data, self._exchange, self._ask = data, Exchange(file, data), ask

    def check(self, copy: int = 0) -> Verification:
        """Return what the referee says of the outputs as they are now, in one copy of the tensors."""
        for tensor in self._data.outputs:
            self._exchange.leave(tensor, self._data.address(tensor.name, copy))
        told = self._ask(Compare())
        assert isinstance(told, Compared)
        return told.verification

    def draw(self, turn: int = 0, *, quick: bool = False) -> Drawn:
        """Fill the tensors with the problem's own inputs, or with a further content."""
        told = self._ask(Draw(turn, quick))
        assert isinstance(told, Drawn)
        if told.content and not told.why:
            for tensor in self._data.inputs:
                self._data.put(tensor, self._exchange.found(tensor))
            self._data.seal()
        return told

    def tried(self, *, quick: bool) -> Iterator[Tried[bool]]:
        """Yield further contents, and those that are left out."""
        for turn in itertools.count(1):
            told = self.draw(turn, quick=quick)
            if not told.content:
                return
            yield Tried(told.content, None if told.why else True, told.why)

    def pace(self, timed: Timed, time_ns: float) -> None:
        """Launch a candidate as often as is asked for, back to back on the same tensors; in no mode is it faster.

        Args:
            timed: the candidate.
            time_ns: of a call.
        """
        context = self._data.helpers.context
        with closing(Graph(context)) as graph:
            calls = 0
            while True:
                asked = self._ask(Pace(time_ns))
                assert isinstance(asked, Paced)
                if not asked.launches:
                    return
                if not calls:
                    calls = asked.calls
                    self._data.add_restore(graph)
                    for _ in range(calls):
                        timed.add_to(graph, 0)
                for _ in range(asked.launches):
                    graph.launch()
                context.synchronize()
