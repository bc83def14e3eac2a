"""Calls of a program as contestants beside the tuner's own launches: a stream's capture makes their graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cu

from tuner.gpu.candidate import Timed
from tuner.gpu.driver import Context, Graph
from tuner.gpu.problem import ProblemSession
from tuner.gpu.timing import SampleGraph
from tuner.runtime.driver import check
from tuner.runtime.kernel import Kernel

EXTERNAL = 1
"""CU_EVENT_RECORD_EXTERNAL: the event is recorded by each launch of the graph, as a node of it."""


class StreamGraph(Graph):
    """What is called in the context's stream, captured as a program captures it."""

    def __init__(self, context: Context) -> None:
        self._context, self._stream = context, context.stream
        self._graph: Any = None
        self._executable: Any = None
        self._events: list[Any] = []
        self._capturing = True
        check(
            cu.cuStreamBeginCapture(self._stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        )

    def append(self, add: Any, *arguments: Any) -> Any:
        """Refuse: nodes cannot be added to what is captured."""
        raise NotImplementedError

    def kernel(self, kernel: Kernel) -> None:
        """Launch it."""
        kernel.launch(int(self._stream))

    def memset(self, address: int, byte: int, size_bytes: int) -> None:
        """Set memory to a byte."""
        check(cu.cuMemsetD8Async(address, byte, size_bytes, self._stream))

    def copy(self, to: int, source: int, size_bytes: int) -> None:
        """Copy within the device."""
        check(cu.cuMemcpyDtoDAsync(to, source, size_bytes, self._stream))

    def event(self) -> Any:
        """Record a new event, and give it."""
        event = check(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DEFAULT.value))
        self._events.append(event)
        check(cu.cuEventRecordWithFlags(event, self._stream, EXTERNAL))
        return event

    def launch(self) -> None:
        """Queue what was captured."""
        self.end()
        if self._executable is None:
            self._executable = check(cu.cuGraphInstantiate(self._graph, 0))
        check(cu.cuGraphLaunch(self._executable, self._stream))

    def close(self) -> None:
        """Free what the driver holds; harmless after a fault."""
        if self._capturing:
            self._capturing = False
            _, self._graph = cu.cuStreamEndCapture(self._stream)
        for event in self._events:
            cu.cuEventDestroy(event)
        if self._executable is not None:
            cu.cuGraphExecDestroy(self._executable)
        if self._graph is not None and int(self._graph):
            cu.cuGraphDestroy(self._graph)
        self._events, self._executable, self._graph = [], None, None

    def end(self) -> None:
        """End the capture: the stream is free for other work."""
        if self._capturing:
            self._capturing = False
            self._graph = check(cu.cuStreamEndCapture(self._stream))


@dataclass(frozen=True)
class StreamCall:
    """Something that is called in a stream, for a copy of the tensors."""

    run: Callable[[int], object]

    def add_to(self, graph: Graph, copy: int) -> None:
        """Call it, while the graph is captured."""
        assert isinstance(graph, StreamGraph)
        self.run(copy)

    def close(self) -> None:
        """It owns nothing."""


class CallSession(ProblemSession):
    """A problem's session in which :class:`StreamCall` can be timed, too."""

    def empty_graph(self, timed: Timed) -> Graph | None:
        """Return a captured graph for a call, and the usual one for all else."""
        return StreamGraph(self.data.helpers.context) if isinstance(timed, StreamCall) else None

    def graph(self, timed: Timed, samples: int, estimate_ns: float) -> SampleGraph:
        """Build a group; that of a call is captured from the first stamp to the last."""
        if not isinstance(timed, StreamCall):
            return super().graph(timed, samples, estimate_ns)
        calls, captured = self.batch.calls_for(estimate_ns), StreamGraph(self.data.helpers.context)
        try:
            group = SampleGraph(self.data, self.stamps, timed, samples, self.conditions.mode, calls, captured)
            captured.end()
        except BaseException:
            captured.close()
            raise
        return group
