"""Tuned products in the place of torch's, where they are faster as the program calls them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import torch

from tuner.core.errors import CallError, DeviceError, TunerError
from tuner.core.stats import median
from tuner.program import products
from tuner.program.calling import call_product
from tuner.program.calls import Calls, Function, Interception, default_device, watched_graphs
from tuner.program.decisions import Decision, Decisions, report
from tuner.program.kinds import PRODUCT_KERNELS, PRODUCTS, CallKind, CallMode, product_kind

PASSED_ON, ROUNDS = 200, 7
"""Calls whose host time is measured with and without an interception, and how often."""
MOST_SHAPES = 4096
"""Shapes of calls that are remembered; beyond it, the oldest is forgotten, and looked at again when it comes."""


@dataclass
class _Substitution:
    """What is done with calls of one shape, dtype and strides."""

    kind: CallKind | None
    eager: bool = False
    graph: bool = False
    product: Function | None = None
    """The tuned one, once it was called."""
    taken: int = 0
    """Calls that the tuned product has answered."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Why others were left to torch all the same."""


_inside = threading.local()
"""Its ``active``: whether a thread is within a tuned product, what that calls itself is left to torch."""


class Replacement:
    """Replaces torch's products by tuned ones while it is installed, for all threads of the process.

    Each kind of calls is timed once in each mode, eager and in CUDA graphs, in turn with torch's own call; it is
    replaced in a mode if it is faster there beyond the noise, and no less exact. Eager calls are replaced only where
    that gains more than the other products lose, which are looked at, too; otherwise none is looked at but those of
    graphs that are captured. Compiled code and autograd call the replacements, too. A graph keeps what it was captured
    with.

    Args:
        operation: what multiplies: a database's path, or that of a bundle of gemm; of :func:`tuner.load`, or any
            function of two matrices that takes ``out=``; or such ones by kernel (``gemm``, ``linear``, ``bmm``).
        calls: of the program, from :func:`tuner.record`: these are decided before the first is replaced. Without
            them only what the file has decided is replaced.
        decisions: a JSON file that keeps what was measured; it need not exist. It is valid for one GPU, version of
            torch and configuration, and measured again for others.
        device: ``cuda`` or ``cpu``; by default the GPU, if there is one.
        modes: in which calls are replaced: ``eager``, ``graph``; by default in all that the device has.

    Attributes:
        gpu: the device's name.
        device, calls: as given.
        product: the tuned one.

    Raises:
        TunerError: the database, bundle or file cannot be read.
    """

    def __init__(
        self,
        operation: Any,
        calls: Calls | None = None,
        *,
        decisions: str | Path | None = None,
        device: str = "",
        modes: Sequence[CallMode | str] = (),
    ) -> None:
        self.device = device or default_device()
        if unknown := [mode for mode in modes if mode not in tuple(CallMode)]:
            raise CallError(f"no mode {unknown[0]!r}", f"choose from: {', '.join(CallMode)}")
        every = tuple(CallMode) if self.device == "cuda" else (CallMode.EAGER,)
        self._modes = tuple(mode for mode in every if not modes or mode in modes)
        self.calls = calls
        self.product = products.TunedProduct(operation, self.device)
        self._decisions = Decisions(decisions)
        self._decided: dict[tuple[str, CallMode], Decision] = {}
        self._entries: dict[tuple[Any, ...], _Substitution] = {}
        self.gpu = products.gpu_name(self.device)
        self._interception = Interception(PRODUCTS, self._maker(self._entries, self._entry), self.device)
        self._eager_pays = True
        """Whether eager calls gain more than those lose that are passed on to torch."""
        self._captures: AbstractContextManager[None] | None = None
        self._capturing_now = 0

    # -- deciding

    def decide(self, calls: Calls | None = None) -> None:
        """Decide on all kinds of some calls; what was decided before is not measured again."""
        for kind, _ in (calls or self.calls or Calls(self.device)).heaviest():
            if kind.is_product:
                for mode in self._modes:
                    self._decide(kind, mode)
        if (known := calls or self.calls) is not None:
            self._eager_pays = self._gain_ns(known) >= 0
        for entry in self._entries.values():  # of calls that were seen before
            if entry.kind is not None:
                entry.eager = self._replaces(entry.kind, CallMode.EAGER)
                entry.graph = self._replaces(entry.kind, CallMode.GRAPH)

    def _decide(self, kind: CallKind, mode: CallMode, *, measure: bool = True) -> None:
        """Decide on a kind, by what the file has decided or by timing it."""
        if (kind.problem, mode) in self._decided:
            return
        decision: Decision | None = None
        try:
            configuration = self.product.configuration(kind)
            where = (self.gpu, torch.__version__, kind.problem, str(mode), configuration)
            decision = self._decisions.find(*where)
            if decision is None and measure:
                forced = self._maker({}, lambda _: _Substitution(kind, True, True))
                around = (nullcontext(), Interception(PRODUCTS, forced, self.device))
                decision = products.measured(self.product, kind, mode, configuration, around)
                self._decisions.add(decision)
            elif decision is not None and decision.replaced and not _capturing(self.device):
                self.product.warm(kind)
        except TunerError as error:
            decision = products.refused(self.product, kind, mode, error)
        except torch.OutOfMemoryError:
            decision = products.refused(self.product, kind, mode, DeviceError("no memory is left to time it"))
        if decision is not None:
            self._decided[kind.problem, mode] = decision

    def _gain_ns(self, calls: Calls) -> float:
        """Return what eager calls gain together, less what the others lose that are intercepted, too; 0 without any."""
        gain, passed = 0.0, 0
        for (kind, mode), count in calls.counts.items():
            if mode is CallMode.EAGER and kind.kernel in (*PRODUCT_KERNELS, ""):
                decision = self._decided.get((kind.problem, mode)) if kind.is_product else None
                if decision is not None and decision.replaced:
                    gain += count * ((decision.torch_ns or 0.0) - (decision.tuned_ns or 0.0))
                else:
                    passed += count
        if not passed:
            return gain
        return gain - passed * self._passing_on_ns() if gain > 0 else -1.0

    def _passing_on_ns(self) -> float:
        """Return the host's time for passing a call on to torch."""
        matrix, samples = torch.zeros(16, 16, device=self.device), []

        def run() -> float:
            began = time.perf_counter_ns()
            for _ in range(PASSED_ON):
                torch.mm(matrix, matrix)
            taken = time.perf_counter_ns() - began
            if self.device == "cuda":
                torch.cuda.synchronize()
            return taken / PASSED_ON

        with torch.no_grad():
            for _ in range(ROUNDS):
                own = run()
                with Interception(PRODUCTS, self._maker({}, _Substitution), self.device):
                    run()
                    samples.append(run() - own)
        return max(median(samples), 0.0)

    def decision(self, kind: CallKind, mode: CallMode) -> Decision | None:
        """Return what was decided; None if nothing was."""
        if not kind.is_product:  # a product with a bias is the same problem otherwise
            return None
        decision = self._decided.get((kind.problem, mode))
        if decision is not None and decision.replaced and mode is CallMode.EAGER and not self._eager_pays:
            costs = "faster, but looking at the program's other products costs more than is gained"
            return replace_fields(decision, replaced=False, reason=costs)
        return decision

    # -- replacing

    def install(self) -> None:
        """Replace from now on, until :meth:`remove`: the form for a program that never stops using it.

        Raises:
            CallError: it is installed already.
        """
        self.decide()
        if self._eager_pays:
            self._interception.install()
        elif self._captures is not None:
            raise CallError("this is installed already", "remove it first")
        else:  # then only what is captured in graphs is looked at
            self._captures = watched_graphs(self._begins, self._ends, lambda _: None)
            self._captures.__enter__()

    def _begins(self, _graph: Any) -> None:
        if not self._capturing_now:
            self._interception.install()
        self._capturing_now += 1

    def _ends(self, _graph: Any) -> None:
        self._capturing_now -= 1
        if self._capturing_now == 0:
            self._interception.remove()

    def remove(self) -> None:
        """Let torch have its products again; graphs that were captured meanwhile keep what they have."""
        self._interception.remove()
        if self._captures is not None:
            self._captures.__exit__(None, None, None)
            self._captures, self._capturing_now = None, 0

    def __enter__(self) -> Replacement:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _maker(
        self, entries: dict[tuple[Any, ...], _Substitution], make_entry: Callable[[CallKind], _Substitution]
    ) -> Callable[[str, Function], Function]:
        """Return what makes the functions that take torch's places."""
        cuda, product = self.device == "cuda", self.product
        capturing = torch.cuda.is_current_stream_capturing

        def make(name: str, own: Function) -> Function:
            first = 1 if "add" in name else 0  # there the first argument is what is added

            def function(*args: Any, **kwargs: Any) -> Any:
                a, b = args[first], args[first + 1]
                of_a, of_b = (a.dtype, a.shape, a.stride()), (b.dtype, b.shape, b.stride())
                key: tuple[Any, ...] = (name, a.device, *of_a, *of_b)
                # What is added, ends of groups, scales, what else goes by position:
                if first or len(args) > 2:
                    key = (*key, _key_of(args[:1] if first else args[2:]))
                if kwargs:
                    key = (*key, *kwargs, _key_of(kwargs.values()))
                entry = entries.get(key)
                if entry is None:
                    kind = product_kind(name, args, kwargs)
                    entry = make_entry(kind) if kind and kind.is_product else _Substitution(kind)
                    while len(entries) >= MOST_SHAPES:
                        entries.pop(next(iter(entries)), None)
                    entries[key] = entry
                replaces = entry.graph if cuda and capturing() else entry.eager
                if replaces and entry.kind and not getattr(_inside, "active", False):
                    _inside.active = True
                    try:
                        if entry.product is None:
                            entry.product = product.function(entry.kind)
                        result = call_product(entry.product, entry.kind, args, kwargs)
                        entry.taken += 1
                        return result
                    except CallError as error:  # memory that is not aligned, a graph's first call
                        entry.refusals[error.problem] += 1
                    finally:
                        _inside.active = False
                return own(*args, **kwargs)

            return function

        return make

    def _entry(self, kind: CallKind) -> _Substitution:
        """Return what is done with a kind that is seen for the first time; what a file has decided counts."""
        for mode in self._modes if self._decisions.has(kind.problem) else ():
            self._decide(kind, mode, measure=False)
        eager, graph = (self._replaces(kind, mode) for mode in (CallMode.EAGER, CallMode.GRAPH))
        return _Substitution(kind, eager, graph)

    def _replaces(self, kind: CallKind, mode: CallMode) -> bool:
        decision = self.decision(kind, mode)
        return decision is not None and decision.replaced

    # -- what came of it

    def taken(self, kind: CallKind) -> int:
        """Return how many calls of a kind the tuned product has answered, captured ones among them."""
        return sum(entry.taken for entry in self._entries.values() if entry.kind == kind)

    def refusals(self, kind: CallKind) -> Mapping[str, int]:
        """Return why calls that should have been replaced were left to torch, with how many."""
        counts: Counter[str] = Counter()
        for entry in self._entries.values():
            if entry.kind == kind:
                counts += entry.refusals
        return counts

    def seen(self) -> list[CallKind]:
        """Return the kinds that were called while it was installed."""
        return list(dict.fromkeys(entry.kind for entry in self._entries.values() if entry.kind is not None))

    def predict(self, time_ns: float, calls: Calls | None = None) -> float:
        """Return the time that a program will take with the replacements, in ns.

        Args:
            time_ns: what it takes without them.
            calls: that it makes in this time; by default those that were given.

        Raises:
            CallError: there are none.
        """
        calls = calls or self.calls
        if calls is None:
            raise CallError("no calls to predict from", "pass those of tuner.record()")
        for (kind, mode), count in calls.counts.items():
            decision = self.decision(kind, mode)
            if decision and decision.replaced and decision.torch_ns and decision.tuned_ns:
                time_ns -= count * (decision.torch_ns - decision.tuned_ns)
        return time_ns

    def __str__(self) -> str:
        return report(self)


replace = Replacement
"""``with tuner.replace("results/tuning.db", calls) as report: ...``; then ``print(report)``."""


def _key_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return what identifies arguments: of a tensor, how it lies."""
    parts = [
        (value.dtype, value.shape, value.stride()) if isinstance(value, torch.Tensor) else value
        for value in values
    ]
    return tuple(parts)


def _capturing(device: str) -> bool:
    return device == "cuda" and torch.cuda.is_current_stream_capturing()
