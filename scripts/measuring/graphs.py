"""Calls that torch captures in CUDA graphs, which then take turns in random order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from scripts.torch_here import torch

ROUNDS = 60
Call = Callable[..., object]


def graph_of(call: Call, sets: Sequence[Sequence[Any]]) -> Any:
    """Return a graph of its calls on sets of arrays."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call(*sets[0])
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
            for arrays in sets:
                call(*arrays)
    return graph


def by_rounds(graphs: Sequence[Any], rest: float = 0.0) -> list[list[float]]:
    """Return milliseconds of each graph in each round.

    Args:
        graphs: each of them once a round.
        rest: behind each, as a multiple of its time.
    """
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(ROUNDS):
        for place in random.sample(range(len(graphs)), len(graphs)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graphs[place].replay()
            end.record()
            end.synchronize()
            times[place].append(begin.elapsed_time(end))
            time.sleep(rest * times[place][-1] / 1e3)
    return times
