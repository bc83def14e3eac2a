"""What a user would otherwise call, inside the same graphs and on the same buffers as a candidate.

A library call is captured once and becomes a child graph: no Python launch is timed, and it is flushed, rested and
interleaved like everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver as cu

from tuner.gpu.driver import Context, check
from tuner.gpu.graph import Graph


class Captured:
    """A captured call; joins a graph as one child node, and so can stand where a loaded candidate does."""

    def __init__(self, context: Context, call: Callable[[], None]) -> None:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        check(cu.cuStreamBeginCapture(context.stream, mode))
        try:
            call()
        finally:
            self._graph = check(cu.cuStreamEndCapture(context.stream))

    def add_to(self, graph: Graph) -> None:
        """Append the call."""
        graph.append(cu.cuGraphAddChildGraphNode, self._graph)

    def close(self) -> None:
        """Free the capture."""
        cu.cuGraphDestroy(self._graph)


@contextmanager
def torch_stream(context: Context) -> Iterator[Any]:
    """Make torch queue its work on the context's stream; gives the torch module."""
    import torch

    with torch.cuda.stream(torch.cuda.ExternalStream(int(context.stream))):
        yield torch


def torch_tensor(address: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Let torch see device memory of ours as a tensor."""
    import torch

    code = {"float32": "<f4", "float16": "<f2", "bfloat16": "<i2"}[dtype]

    class _Memory:
        __cuda_array_interface__ = {"shape": shape, "typestr": code, "data": (address, False), "version": 3}  # noqa: RUF012

    tensor = torch.as_tensor(_Memory(), device="cuda")
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor
