"""Calls of torch's operations on a device, seen and perhaps answered by other functions; CUDA graphs, watched.

The functions take the place of torch's own in its dispatcher. There, each product of a program ends, whether it
is called eagerly, by autograd or by compiled code (``extern_kernels.mm``), and nothing has to be traced again. A
``TorchDispatchMode`` would not do: under one, compiled functions fall back to their eager form.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tuner.core.errors import CallError, DeviceError

Function = Callable[..., Any]
KEYS = {"cuda": "CUDA", "cpu": "CPU"}


def default_device() -> str:
    """Return where programs are looked at unless they say otherwise: on the GPU, if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class Interception:
    """Puts functions in the place of torch's own while it is installed, for all threads of the process.

    Several may be installed at once, and removed in any order: one that a later one calls torch by way of passes calls
    on until that one is removed, too.

    Args:
        names: overloads of ``aten``; those that the device does not have are left out.
        make: gives the function that takes an overload's place, from its name and torch's own function.
        device: ``cuda`` or ``cpu``.

    Raises:
        DeviceError: this torch cannot name its own functions.
    """

    _installed: list[Interception] = []  # noqa: RUF012 - of the process
    _lock = threading.RLock()

    def __init__(self, names: Iterable[str], make: Callable[[str, Function], Function], device: str) -> None:
        if not hasattr(torch.library, "get_kernel"):
            raise DeviceError(f"torch {torch.__version__} cannot be recorded", "use torch 2.10 or later")
        if device not in KEYS:
            raise CallError(f"no device {device!r}", f"choose from: {', '.join(KEYS)}")
        self._names, self._make, self._key = tuple(names), make, KEYS[device]
        self._library: Any = None
        self._active = False

    def install(self) -> None:
        """Take the places.

        Raises:
            CallError: it has them already.
        """
        with self._lock:
            if self._active:
                raise CallError("this is installed already", "remove it first")
            if self._library is None:
                self._take()
                self._installed.append(self)
            self._active = True

    def _take(self) -> None:
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, self._key))
        functions = {}
        for name in self._names:
            try:
                own = torch.library.get_kernel(f"aten::{name}", self._key)
            except RuntimeError:  # not on this device, or not in this version
                continue
            functions[name] = self._while_active(name, _bound(own, keys))
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a function of torch is replaced: it is meant
            for name, function in functions.items():
                self._library.impl(name, function, self._key, allow_override=True)

    def _while_active(self, name: str, own: Function) -> Function:
        made = self._make(name, own)

        def function(*args: Any, **kwargs: Any) -> Any:
            return (made if self._active else own)(*args, **kwargs)

        return function

    def remove(self) -> None:
        """Return the places to torch, or to those that were installed before."""
        with self._lock:
            self._active = False
            while self._installed and not self._installed[-1]._active:
                last = self._installed.pop()
                last._library._destroy()
                last._library = None

    def __enter__(self) -> Interception:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _bound(own: Any, keys: Any) -> Function:
    call = own.call_boxed

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(keys, *args, **kwargs)

    return function


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
