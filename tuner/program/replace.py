"""Tuned products in the place of torch's, where they are faster as the program calls them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tuner.core.errors import CallError, DeviceError, TunerError
from tuner.program import products
from tuner.program.calls import Calls, Function, Interception, default_device
from tuner.program.decisions import Decision, Decisions, report
from tuner.program.kinds import PRODUCTS, CallKind, CallMode, call_product, product_kind

MOST_SHAPES = 4096
"""Shapes of calls that are remembered; beyond it, the oldest is forgotten, and looked at again when it comes."""


@dataclass
class _Substitution:
    """What is done with calls of one shape, dtype and strides."""

    kind: CallKind | None
    eager: bool = False
    graph: bool = False
    taken: int = 0
    """Calls that the tuned product has answered."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Why others were left to torch all the same."""


_inside = threading.local()
"""Its ``active``: whether a thread is within a tuned product, what that calls itself is left to torch."""


class Replacement:
    """Replaces torch's products by tuned ones while it is installed, for all threads of the process.

    Each kind of calls is timed once in each mode, eager and in CUDA graphs, in turn with torch's own call; it is
    replaced in a mode if it is faster there beyond the noise, and no less exact. Compiled code and autograd call the
    replacements, too. A graph keeps what it was captured with.

    Args:
        operation: what multiplies: of :func:`tuner.load`, or a database's or bundle's path, or any function of two
            matrices that takes ``out=``.
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
        self.product = products.TunedProduct(products.operation_of(operation), self.device)
        self._decisions = Decisions(decisions)
        self._decided: dict[tuple[str, CallMode], Decision] = {}
        self._entries: dict[tuple[Any, ...], _Substitution] = {}
        self.gpu = products.gpu_name(self.device)
        self._interception = Interception(PRODUCTS, self._make, self.device)

    # -- deciding

    def decide(self, calls: Calls | None = None) -> None:
        """Decide on all kinds of some calls; what was decided before is not measured again."""
        for kind, _ in (calls or self.calls or Calls(self.device)).heaviest():
            if kind.is_product:
                for mode in self._modes:
                    self._decide(kind, mode)
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
            decision = self._decisions.find(
                self.gpu, torch.__version__, kind.problem, str(mode), configuration
            )
            if decision is None and measure:
                around = (nullcontext(), self._forced(kind))
                decision = products.measured(self.product, kind, mode, configuration, around)
                self._decisions.add(decision)
            elif decision is not None and decision.replaced and not self._capturing():
                self.product.warm(kind)
        except TunerError as error:
            decision = products.refused(self.product, kind, mode, error)
        except torch.OutOfMemoryError:
            decision = products.refused(self.product, kind, mode, DeviceError("no memory is left to time it"))
        if decision is not None:
            self._decided[kind.problem, mode] = decision

    def _forced(self, kind: CallKind) -> Interception:
        """Return an interception that replaces all products of a kind, to time what that is like."""
        return Interception(PRODUCTS, self._maker({}, lambda _: _Substitution(kind, True, True)), self.device)

    def decision(self, kind: CallKind, mode: CallMode) -> Decision | None:
        """Return what was decided; None if nothing was."""
        if not kind.is_product:  # a product with a bias is the same problem otherwise
            return None
        return self._decided.get((kind.problem, mode))

    def decided(self, mode: CallMode) -> list[CallKind]:
        """Return the kinds that are replaced in a mode."""
        kinds = [*(kind for kind, _ in self.calls.heaviest()), *self.seen()] if self.calls else self.seen()
        return list(dict.fromkeys(kind for kind in kinds if self._replaces(kind, mode)))

    # -- replacing

    def install(self) -> None:
        """Replace from now on, until :meth:`remove`: the form for a program that never stops using it.

        Raises:
            CallError: it is installed already.
        """
        self.decide()
        self._interception.install()

    def remove(self) -> None:
        """Let torch have its products again; graphs that were captured meanwhile keep what they have."""
        self._interception.remove()

    def __enter__(self) -> Replacement:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _capturing(self) -> bool:
        return self.device == "cuda" and torch.cuda.is_current_stream_capturing()

    def _make(self, name: str, own: Function) -> Function:
        return self._maker(self._entries, self._entry)(name, own)

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
                key: tuple[Any, ...] = (
                    name,
                    a.dtype,
                    a.shape,
                    a.stride(),
                    b.dtype,
                    b.shape,
                    b.stride(),
                    a.device,
                )
                if kwargs:
                    key = (*key, _key_of(kwargs))
                entry = entries.get(key)
                if entry is None:
                    kind = product_kind(name, args, kwargs)
                    entry = make_entry(kind) if kind and kind.is_product else _Substitution(kind)
                    while len(entries) >= MOST_SHAPES:
                        entries.pop(next(iter(entries)), None)
                    entries[key] = entry
                replaces = entry.graph if cuda and capturing() else entry.eager
                if replaces and not getattr(_inside, "active", False):
                    _inside.active = True
                    try:
                        result = call_product(product, name, args, kwargs)
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

    def linear_layers(self, model: Any, mode: CallMode | str) -> list[str]:
        """Turn a model's linear layers into tuned ones, where they were decided to be faster; return their names.

        Only this model changes, and nothing has to be installed. Layers with a bias stay torch's.

        Args:
            model: a module, on the device.
            mode: how it will be called: ``eager`` or ``graph``.
        """
        self.decide()
        return products.replace_linear(self.product, self.decided(CallMode(mode)), model)

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


def _key_of(kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies named arguments: of an output, how it lies."""
    return tuple(
        (name, value.dtype, value.shape, value.stride()) if isinstance(value, torch.Tensor) else (name, value)
        for name, value in kwargs.items()
    )
