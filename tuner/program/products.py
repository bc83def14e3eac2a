"""A tuned operation in the place of torch's products: how it is called, what would run, and whether it is faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tuner.core.errors import CallError, TunerError
from tuner.core.model import canonical_json
from tuner.core.stats import Verdict, median, paired_ratio, verdict
from tuner.program.calling import call_tuned, torch_call
from tuner.program.decisions import Decision
from tuner.program.kinds import BATCHES, PRODUCT_KERNELS, CallKind, CallMode
from tuner.program.timing import Around, errors, times_in_turn
from tuner.winners.load import load

NOISE_FLOOR = 0.002
"""How far from 1 the ratio of a product to itself gets when both are timed in turn (H200, docs/measuring.md)."""
ERROR_TIMES = 2.0
"""How much larger than torch's the error of a product may be."""


def gpu_name(device: str) -> str:
    """Return the name of the current device."""
    return torch.cuda.get_device_name(torch.cuda.current_device()) if device == "cuda" else "CPU"


class TunedProduct:
    """Tuned operations in the place of torch's products, by kind.

    Raises:
        TunerError: there is no such database or bundle, or it has no winners.

    Args:
        source: the path of a database, or of a bundle of gemm; an operation of :func:`tuner.load`, or any function like
            gemm's of two matrices, and perhaps ``out=``; or several by the name of their kernel.
        device: ``cuda`` or ``cpu``.
    """

    def __init__(self, source: Any, device: str) -> None:
        self.device, self._path = device, Path(source) if isinstance(source, (str, Path)) else None
        self._of: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
        self._given: dict[str, Any] = {}
        if self._path is None:
            named = {str(getattr(source, "name", "gemm")): source}
            self._given = dict(source) if isinstance(source, Mapping) else named
        elif self._path.is_dir():
            self._given = {"gemm": load("gemm", bundle=self._path)}
        else:
            self._check(self._path)

    def _check(self, path: Path) -> None:
        """Refuse a file that is no database, or has no winners of any kernel of products."""
        failures = []
        for kernel in PRODUCT_KERNELS:
            try:
                load(kernel, db=path)
            except TunerError as error:
                failures.append(error)
            else:
                return
        raise failures[0]

    def of(self, kind: CallKind) -> Any:
        """Return the operation that serves a kind.

        Raises:
            TunerError: none does.
        """
        if kind.kernel in self._given:
            return self._given[kind.kernel]
        if self._given or self._path is None:
            raise CallError(f"no operation of {kind.kernel} is given", "name a database that has its winners")
        # What arrays do not tell: which expression, and how the matrices of a batch lie.
        told = (*BATCHES, "grouped")
        fixed = tuple((k, v) for k, v in kind.options if kind.kernel in told or k != "layout")
        if (kind.kernel, fixed) not in self._of:
            options = {"output": kind.dtype, **dict(fixed)} if kind.op else dict(fixed)
            self._of[kind.kernel, fixed] = load(kind.kernel, db=self._path, options=options or None)
        return self._of[kind.kernel, fixed]

    def function(self, kind: CallKind) -> Callable[..., Any]:
        """Return the operation of a kind as a function, also within autograd, which differentiates the call in whose
        place it stands.

        Raises:
            TunerError: there is none.
        """
        operation = self.of(kind)

        def function(*tensors: Any, **named: Any) -> Any:
            return operation(*(each.detach() if each.requires_grad else each for each in tensors), **named)

        return function

    def configuration(self, kind: CallKind) -> str:
        """Return which configuration would run; nothing for an operation that cannot say.

        Raises:
            TunerError: none can.
        """
        plan = getattr(self.of(kind), "plan", None)
        if plan is None:
            return ""
        choice = plan(**self._problem(kind))
        return f"{choice.variant} {canonical_json(dict(choice.parameters))}"

    def warm(self, kind: CallKind) -> None:
        """Load what a call needs, so that it may be captured in a graph.

        Raises:
            TunerError: no configuration can run it.
        """
        warm = getattr(self.of(kind), "warm", None)
        if warm is not None:
            warm([self._problem(kind)])

    def _problem(self, kind: CallKind) -> dict[str, Any]:
        at = {"device": torch.cuda.current_device()} if self.device == "cuda" else {}
        return {**dict(kind.sizes), "dtypes": {"input": kind.dtype}, "options": dict(kind.options), **at}


def measured(
    product: TunedProduct, kind: CallKind, mode: CallMode, configuration: str, around: Around
) -> Decision:
    """Return whether a tuned product replaces torch's: checked, then timed in turn with it.

    Args:
        product: the tuned one.
        kind: of a product, without an obstacle.
        mode: in which it is called.
        configuration: what would run.
        around: two contexts: in the first torch's call is its own, in the second the tuned one.

    Raises:
        TunerError: the tuned one cannot be called, or returns no product.
    """
    where = (gpu_name(product.device), torch.__version__, kind.problem, str(mode), configuration)
    call, tuned = torch_call(kind), partial(call_tuned, product.function(kind), kind)
    torch_error, tuned_error = errors(kind, (call, tuned), product.device)
    allowed = max(ERROR_TIMES * torch_error, 2**-24 * dict(kind.sizes)["k"] ** 0.5)
    if not tuned_error <= allowed:
        reason = f"its error is {tuned_error:.2g}, torch's {torch_error:.2g}"
        finite = tuned_error if math.isfinite(tuned_error) else None
        return Decision(*where, False, reason, torch_error=torch_error, tuned_error=finite)
    own_ns, tuned_ns = times_in_turn(kind, (call, call), around, mode, product.device)
    ratio = paired_ratio(tuned_ns, own_ns)
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
        torch_ns=median(own_ns),
        tuned_ns=median(tuned_ns),
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
