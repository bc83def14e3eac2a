"""Samples as CUDA graphs: what lies before, between and behind the two events of each.

The event pairs lie inside one graph, so that no host work can slip between them.

- cold: ``[restore, flush, event, kernel, event]``. The flush *reads* three times the L2: what a memset would leave
  there is dirty, and the next kernel would pay for writing it back.
- rotating: ``[restore, flush, event, kernel on copy 0, on copy 1, ..., event]``, divided by the number of calls. Each
  call finds its data cold, because other copies went through the L2 since its turn before, and the cost of the events
  is shared by all of them.
- warm: ``[restore, kernel, event, kernel, kernel, ..., event]``, all on the same tensors.
"""

from __future__ import annotations

from contextlib import closing

from cuda.bindings import driver as cu

from tuner.core.conditions import Mode
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed
from tuner.gpu.clocks import Stamps
from tuner.gpu.graph import Graph
from tuner.runtime.driver import check


class SampleGraph:
    """A group of samples of one candidate between two stamps, ready to be launched.

    Args:
        data: the tensors.
        stamps: note clock and time before the first and after the last sample.
        timed: the candidate.
        samples: event pairs.
        mode: what the caches hold.
        calls: between two events; 1 when cold.
        graph: the empty graph that becomes the group; without it a new one.
    """

    def __init__(
        self,
        data: ProblemData,
        stamps: Stamps,
        timed: Timed,
        samples: int,
        mode: Mode,
        calls: int,
        graph: Graph | None = None,
    ) -> None:
        self.samples = samples
        self.calls = calls
        self.lead = 1 if mode is Mode.WARM else 0
        """Calls of each sample that lie before its first event."""
        copies = 1 if mode is Mode.WARM else data.copies
        self._graph = graph or Graph(data.helpers.context)
        self._pairs = []
        stamps.add_before(self._graph)
        for _ in range(samples):
            data.add_restore(self._graph)
            for _ in range(self.lead):
                timed.add_to(self._graph, 0)
            if mode is not Mode.WARM:
                self._graph.kernel(data.flush)
            start = self._graph.event()
            for call in range(self.calls):
                timed.add_to(self._graph, call % copies)
            self._pairs.append((start, self._graph.event()))
        stamps.add_after(self._graph)

    def launch(self) -> None:
        """Queue the group."""
        self._graph.launch()

    def read(self) -> list[float]:
        """Return each sample of the last launch, in nanoseconds a call; wait for the stream first."""
        return [
            float(check(cu.cuEventElapsedTime(start, end))) * 1e6 / self.calls for start, end in self._pairs
        ]

    def close(self) -> None:
        """Free it."""
        self._graph.close()


def run_once(data: ProblemData, timed: Timed, graph: Graph | None = None) -> float:
    """Run a candidate once on poisoned outputs and restored tensors, in an empty graph; return nanoseconds."""
    data.poison()
    with closing(graph or Graph(data.helpers.context)) as graph:
        data.add_restore(graph)
        start = graph.event()
        timed.add_to(graph, 0)
        end = graph.event()
        graph.launch()
        data.helpers.context.synchronize()
        return float(check(cu.cuEventElapsedTime(start, end))) * 1e6
