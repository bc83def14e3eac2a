"""CUDA graphs of a program: what is called while one is captured, and how often it is replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Watch = Callable[[Any], None]
_watching: list[dict[str, Watch]] = []
_own: dict[str, Any] = {}
"""Torch's functions, while any are watched."""
_lock = threading.RLock()


@contextmanager
def watched_graphs(begins: Watch, ends: Watch, replays: Watch) -> Iterator[None]:
    """Call functions with each graph whose capture begins or ends, or that is replayed, until the context ends.

    Such contexts may end in any order.
    """
    watch = {"capture_begin": begins, "capture_end": ends, "replay": replays}
    with _lock:
        if not _watching:
            _take()
        _watching.append(watch)
    try:
        yield
    finally:
        with _lock:
            _watching[:] = [other for other in _watching if other is not watch]
            if not _watching:
                graph = _own.pop("class")
                while _own:
                    setattr(graph, *_own.popitem())


def _take() -> None:
    graph = torch.cuda.CUDAGraph

    def watched(name: str, own: Any) -> Any:
        def function(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name != "capture_begin":  # what is called is known, even if it fails
                _tell(name, self)
                return own(self, *args, **kwargs)
            result = own(self, *args, **kwargs)
            _tell(name, self)
            return result

        return function

    for name in ("capture_begin", "capture_end", "replay"):
        _own[name] = getattr(graph, name)
        setattr(graph, name, watched(name, _own[name]))
    _own["class"] = graph


def _tell(name: str, graph: Any) -> None:
    for watch in tuple(_watching):
        watch[name](graph)
