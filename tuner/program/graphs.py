"""CUDA graphs of a program: what is called while one is captured, and how often it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def watched_graphs(
    begins: Callable[[Any], None], ends: Callable[[Any], None], replays: Callable[[Any], None]
) -> Iterator[None]:
    """Call functions with each graph whose capture begins or ends, or that is replayed, until the context ends."""
    graph = torch.cuda.CUDAGraph
    own = {name: getattr(graph, name) for name in ("capture_begin", "capture_end", "replay")}

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = own["capture_begin"](self, *args, **kwargs)
        begins(self)
        return result

    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        ends(self)
        return own["capture_end"](self, *args, **kwargs)

    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        replays(self)
        return own["replay"](self, *args, **kwargs)

    try:
        for function in (capture_begin, capture_end, replay):
            setattr(graph, function.__name__, function)
        yield
    finally:
        for name, function in own.items():
            setattr(graph, name, function)
