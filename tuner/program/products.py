"""A tuned operation in the place of torch's products: how it is called, what would run, and whether it is faster; as
linear layers it stays with a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tuner.core.errors import CallError, TunerError
from tuner.core.model import canonical_json
from tuner.core.stats import Verdict, median, paired_ratio, verdict
from tuner.program.decisions import Decision
from tuner.program.kinds import DTYPES, CallKind, CallMode
from tuner.program.timing import Around, errors, times_in_turn
from tuner.winners.load import load

NOISE_FLOOR = 0.002
"""How far from 1 the ratio of a product to itself gets when both are timed in turn (H200, docs/measuring.md)."""
ERROR_TIMES = 2.0
"""How much larger than torch's the error of a product may be."""


def operation_of(source: Any) -> Any:
    """Return the operation of gemm: the one that is given, or the winners of a database or of a bundle's folder.

    Raises:
        TunerError: there is no such database or bundle, or it has no winners of gemm.
    """
    if not isinstance(source, (str, Path)):
        return source
    if Path(source).is_dir():
        return load("gemm", bundle=source)
    return load("gemm", db=source)


def gpu_name(device: str) -> str:
    """Return the name of the current device."""
    return torch.cuda.get_device_name(torch.cuda.current_device()) if device == "cuda" else "CPU"


class TunedProduct:
    """An operation as a function of two matrices.

    Args:
        operation: takes two matrices, and perhaps ``out=``; from :func:`tuner.load`, or any function like it.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(self, operation: Any, device: str) -> None:
        self.operation, self.device = operation, device

    def __call__(self, a: Any, b: Any, out: Any = None) -> Any:
        """Return the product, also within autograd, which differentiates the call that this stands for."""
        if a.requires_grad or b.requires_grad:
            a, b = a.detach(), b.detach()
        return self.operation(a, b) if out is None else self.operation(a, b, out=out)

    def configuration(self, kind: CallKind) -> str:
        """Return which configuration would run; nothing for an operation that cannot say.

        Raises:
            TunerError: none can.
        """
        plan = getattr(self.operation, "plan", None)
        if plan is None:
            return ""
        choice = plan(**self._problem(kind))
        return f"{choice.variant} {canonical_json(dict(choice.parameters))}"

    def warm(self, kind: CallKind) -> None:
        """Load what a call needs, so that it may be captured in a graph.

        Raises:
            TunerError: no configuration can run it.
        """
        warm = getattr(self.operation, "warm", None)
        if warm is not None:
            warm([self._problem(kind)])

    def _problem(self, kind: CallKind) -> dict[str, Any]:
        at = {"device": torch.cuda.current_device()} if self.device == "cuda" else {}
        return {**dict(kind.sizes), "dtypes": {"input": kind.dtype}, "options": dict(kind.options), **at}


def measured(
    product: TunedProduct,
    kind: CallKind,
    mode: CallMode,
    configuration: str,
    around: Around,
) -> Decision:
    """Return whether a tuned product replaces torch's: checked, then timed in turn with it.

    Args:
        product: the tuned one.
        kind: of gemm, without an obstacle.
        mode: in which it is called.
        configuration: what would run.
        around: two contexts: in the first ``torch.mm`` is torch's own, in the second the tuned one.

    Raises:
        TunerError: the tuned one cannot be called, or returns no product.
    """
    where = (gpu_name(product.device), torch.__version__, kind.problem, str(mode), configuration)
    torch_error, tuned_error = errors(kind, (torch.mm, product), product.device)
    allowed = max(ERROR_TIMES * torch_error, 2**-24 * dict(kind.sizes)["k"] ** 0.5)
    if not tuned_error <= allowed:
        reason = f"its error is {tuned_error:.2g}, torch's {torch_error:.2g}"
        finite = tuned_error if math.isfinite(tuned_error) else None
        return Decision(*where, False, reason, torch_error=torch_error, tuned_error=finite)
    own, tuned = times_in_turn(kind, (torch.mm, torch.mm), around, mode, product.device)
    ratio = paired_ratio(tuned, own)
    faster = verdict(ratio, NOISE_FLOOR)
    words = {
        Verdict.FASTER: "faster",
        Verdict.SLOWER: "slower",
        Verdict.SAME: "as fast as torch's",
        Verdict.AMBIGUOUS: "not faster beyond the noise",
    }
    return Decision(
        *where,
        faster is Verdict.FASTER,
        words[faster],
        torch_ns=median(own),
        tuned_ns=median(tuned),
        ratio=1 / ratio.median,
        ratio_low=1 / ratio.high,
        ratio_high=1 / ratio.low,
        torch_error=torch_error,
        tuned_error=tuned_error,
    )


def refused(product: TunedProduct, kind: CallKind, mode: CallMode, error: TunerError) -> Decision:
    """Return the decision for a kind that cannot be run or timed."""
    where = (gpu_name(product.device), torch.__version__, kind.problem, str(mode), "")
    what = "no valid configuration: " if isinstance(error, CallError) else ""
    return Decision(*where, False, f"{what}{error.problem}")


class TunedLinear(torch.nn.Linear):  # type: ignore[misc]
    """A linear layer without bias that calls a tuned product for some numbers of rows, and torch for others.

    Attributes:
        tuned_rows: those numbers.
        tuned: ``tuned(x, weight)`` is ``x @ weight.T``.
    """

    tuned_rows: frozenset[int]
    tuned: Callable[[Any, Any], Any]

    def forward(self, x: Any) -> Any:
        """Return ``x @ weight.T``."""
        if x.numel() // self.in_features in self.tuned_rows and x.dtype == self.weight.dtype:
            return self.tuned(x, self.weight)
        return super().forward(x)


def replace_linear(product: TunedProduct, kinds: Iterable[CallKind], model: Any) -> list[str]:
    """Turn linear layers of a model into tuned ones, where they are of some kinds; return their names.

    Weights and the names of the state stay as they are.

    Args:
        product: the tuned one.
        kinds: which are to be replaced.
        model: a module.
    """
    rows: dict[tuple[int, int, str], set[int]] = {}
    for kind in kinds:
        sizes = dict(kind.sizes)
        if dict(kind.options)["layout"] == "nt":
            rows.setdefault((sizes["n"], sizes["k"], kind.dtype), set()).add(sizes["m"])
    names = []
    for name, layer in model.named_modules():
        if type(layer) is not torch.nn.Linear or layer.bias is not None:
            continue
        weight = layer.weight
        wanted = rows.get((*weight.shape, DTYPES.get(weight.dtype, "")))
        if wanted and weight.device.type == product.device and weight.is_contiguous():
            layer.__class__ = TunedLinear
            layer.tuned_rows, layer.tuned = frozenset(wanted), _linear(product)
            names.append(name)
    return names


def _linear(product: TunedProduct) -> Callable[[Any, Any], Any]:
    """Return the linear function of an operation: torch's custom op where it has one, which compiled code can hold."""
    as_op = getattr(product.operation, "torch", None)
    if as_op is not None:
        linear: Callable[[Any, Any], Any] = as_op().linear
        return linear

    def function(x: Any, weight: Any) -> Any:
        if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
            return torch.nn.functional.linear(x, weight)  # a plain function has no gradient
        return product(x.reshape(-1, x.shape[-1]), weight.t()).view(*x.shape[:-1], weight.shape[0])

    return function
