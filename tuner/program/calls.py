"""What a program called, how often, and what it is worth; how calls are seen, and perhaps answered by other functions.

The functions take the place of torch's own in its dispatcher. There, each product of a program ends, whether it
is called eagerly, by autograd or by compiled code (``extern_kernels.mm``), and nothing has to be traced again. A
``TorchDispatchMode`` would not do: under one, compiled functions fall back to their eager form.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tuner.core.errors import CallError, DeviceError, UsageError
from tuner.core.files import write_csv
from tuner.core.stats import median
from tuner.program.calling import torch_call
from tuner.program.kinds import PRODUCTS, REDUCTIONS, CallKind, CallMode, kind_of
from tuner.program.timing import times_in_turn
from tuner.report.layout import drawn
from tuner.report.terminal import printable

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
            functions[name] = self._while_active(name, partial(own.call_boxed, keys))
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
            result = own(self, *args, **kwargs)
            if name == "capture_begin":
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


class Calls:
    """The calls of a program, by kind and mode.

    Attributes:
        counts: how often.
        unknown_replays: replays of graphs that were captured when nothing was recorded: what they call is not known.
        time_ns: of one of torch's own calls, where it was measured.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.counts: Counter[tuple[CallKind, CallMode]] = Counter()
        self.unknown_replays = 0
        self.time_ns: dict[tuple[CallKind, CallMode], float] = {}

    def heaviest(self) -> list[tuple[CallKind, CallMode]]:
        """Return the kinds and modes, those with the most operations first."""
        return sorted(self.counts, key=lambda key: (-self.counts[key] * key[0].flop, key[0].problem, key[1]))

    @property
    def flop(self) -> float:
        """Operations of all calls."""
        return sum(count * kind.flop for (kind, _), count in self.counts.items())

    def time(self) -> None:
        """Measure what torch takes for one call of each product that a kernel could serve, as it is called."""
        with torch.no_grad():
            for kind, mode in self.heaviest():
                if kind.is_product:
                    (samples,) = times_in_turn(kind, [torch_call(kind)], [nullcontext()], mode, self.device)
                    self.time_ns[kind, mode] = median(samples)

    def save(self, path: str | Path, kernel: str = "gemm") -> None:
        """Write the problems of one kernel as a file for ``tune KERNEL --problems``, the heaviest first.

        Beside sizes, options and dtype it says how often each is called and, where it was measured, how long
        torch takes for one call.

        Raises:
            UsageError: there are none.
            OSError: the file cannot be written.
        """
        rows: dict[str, dict[str, Any]] = {}
        spent_ns = defaultdict[str, float](float)
        problems = [key for key in self.heaviest() if key[0].kernel == kernel and not key[0].obstacle]
        for kind, mode in problems:
            name, count = replace(kind, apart=()).problem, self.counts[kind, mode]
            row: dict[str, Any] = {**dict(kind.sizes), **dict(kind.options), "dtype": kind.dtype, "calls": 0}
            rows.setdefault(name, row)["calls"] += count
            spent_ns[name] += count * self.time_ns.get((kind, mode), 0.0)
        if not rows:
            others = sorted({kind.kernel for kind, _ in self.counts if kind.kernel and not kind.obstacle})
            remedy = f"there are problems of: {', '.join(others)}" if others else "run it within the record"
            raise UsageError(f"no call that was recorded is a problem of {kernel}", remedy)
        names = list(rows)
        if all(key in self.time_ns for key in problems):
            names.sort(key=lambda name: -spent_ns[name])
            for name, row in rows.items():
                row["time_us"] = f"{spent_ns[name] / row['calls'] / 1000:.3f}"
        write_csv(Path(path), list(rows[names[0]]), [rows[name] for name in names])

    def __str__(self) -> str:
        unknown = (
            f"\nnot counted: {self.unknown_replays} replays of graphs that were captured "
            "when nothing was recorded; capture them within tuner.record()"
        )
        unknown = unknown if self.unknown_replays else ""
        if not self.counts:
            return f"no calls that a kernel could serve{unknown}"
        total = self.flop or 1.0
        rows = []
        for kind, mode in self.heaviest():
            count, time_ns = self.counts[kind, mode], self.time_ns.get((kind, mode))
            share = f"{100 * count * kind.flop / total:.1f} %"
            time_us = "" if time_ns is None else f"{time_ns / 1000:.2f}"
            obstacle = kind.obstacle and f"no kernel: {kind.obstacle}"
            rows.append((str(count), str(mode), share, time_us, kind.call, kind.problem, obstacle))
        head = ("calls", "mode", "share", "torch us", "call", "problem", "")
        calls = sum(self.counts.values())
        first = f"{calls} calls of {len(rows)} kinds, {total / 1e12:.3g} TFLOP; share: of the operations"
        return f"{first}\n{as_table(head, rows)}{unknown}"


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text with a column for each of the head's names; numbers are to the right."""
    named = [dict(zip(head, map(printable, row), strict=True)) for row in rows]  # decisions come from a file
    shown = [name for name in head if any(row[name] for row in named)]
    right = [name for name in shown if all(row[name][:1].isdigit() or not row[name] for row in named)]
    return "\n".join(drawn(shown, named, right))


_of_graph: WeakKeyDictionary[Any, Counter[CallKind]] = WeakKeyDictionary()
"""What was called in each graph that was captured while something was recorded."""


@contextmanager
def record(device: str = "") -> Iterator[Calls]:
    """Record what a torch program calls, until the context ends: products, and sums, means and maxima over everything.

    Calls within compiled code and autograd are seen, too. What is called while a CUDA graph is captured counts as
    often as the graph is replayed, now or within a later record.

    Args:
        device: whose calls: ``cuda`` or ``cpu``; by default that of the GPU, if there is one.

    Raises:
        DeviceError: torch is too old.
    """
    calls = Calls(device or default_device())
    within = threading.local()
    capturing: list[Counter[CallKind]] = []

    def make(name: str, own: Function) -> Function:
        def function(*args: Any, **kwargs: Any) -> Any:
            kind = None if getattr(within, "another", False) else kind_of(name, args, kwargs)
            if kind is not None:
                if capturing:
                    capturing[-1][kind] += 1
                else:
                    calls.counts[kind, CallMode.EAGER] += 1
            if not name.startswith(("_grouped_mm", "_scaled_mm")):
                return own(*args, **kwargs)
            within.another = True  # where torch has no kernel, it multiplies by others
            try:
                return own(*args, **kwargs)
            finally:
                within.another = False

        return function

    def begins(graph: Any) -> None:
        _of_graph[graph] = Counter()
        capturing.append(_of_graph[graph])

    def ends(_graph: Any) -> None:
        if capturing:  # otherwise it began before the record
            capturing.pop()

    def replays(graph: Any) -> None:
        captured: Mapping[CallKind, int] | None = _of_graph.get(graph)
        calls.unknown_replays += captured is None
        for kind, count in (captured or {}).items():
            calls.counts[kind, CallMode.GRAPH] += count

    with watched_graphs(begins, ends, replays), Interception((*PRODUCTS, *REDUCTIONS), make, calls.device):
        yield calls
