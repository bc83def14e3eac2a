"""Which calls are replaced and why: kept in a small JSON file, so that the next start measures nothing, and as text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import torch

from tuner.core.errors import UsageError
from tuner.core.files import whole_file
from tuner.core.reading import read_at_most
from tuner.program.calls import Calls, as_table
from tuner.program.kinds import PRODUCT_KERNELS, CallKind, CallMode

if TYPE_CHECKING:
    from tuner.program.replace import Replacement

FORMAT, VERSION = "kernel-tune decisions", 1
WRITABLE = "name a file in a folder that exists and can be written"
MOST_BYTES = 64 << 20
"""Of a file; a decision takes some 700."""
NUMERICS = "sums are in float32, as torch's; each replaced product was compared with the true one, beside torch's own"


@dataclass(frozen=True)
class Decision:
    """What became of one kind of calls in one mode."""

    gpu: str
    torch: str
    """Its version."""
    problem: str
    mode: str
    configuration: str
    """Which one the tuned kernel ran; empty if it is not known."""
    replaced: bool
    reason: str
    """In words."""
    torch_ns: float | None = None
    tuned_ns: float | None = None
    ratio: float | None = None
    """Torch's time over the tuned kernel's, the median of pairs; above 1 the tuned kernel is faster."""
    ratio_low: float | None = None
    ratio_high: float | None = None
    torch_error: float | None = None
    """Norm of the difference from the true product over its norm."""
    tuned_error: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What must be the same for the decision to hold."""
        return (self.gpu, self.torch, self.problem, self.mode, self.configuration)


class Decisions:
    """Decisions, and the file that keeps them.

    Args:
        path: of the file, which need not exist; None to keep nothing.

    Raises:
        UsageError: the file is not one of these, or cannot be written.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._path = None if path is None else Path(path)
        self._of: dict[tuple[str, ...], Decision] = {}
        if self._path is None:
            return
        if self._path.exists():
            self._of = {decision.key: decision for decision in _read(self._path)}
        if not os.access(self._path.parent, os.W_OK):
            raise UsageError(f"{self._path} cannot be written", WRITABLE)

    def has(self, problem: str) -> bool:
        """Return whether anything was decided for a problem, on any GPU."""
        return any(decision.problem == problem for decision in self._of.values())

    def find(self, *key: str) -> Decision | None:
        """Return the decision for a GPU, a version of torch, a problem, a mode and a configuration."""
        return self._of.get(key)

    def add(self, decision: Decision) -> None:
        """Keep a decision, in the file as well.

        Raises:
            UsageError: the file cannot be written.
        """
        self._of[decision.key] = decision
        if self._path is None:
            return
        if self._path.exists():  # another process may have added to it
            self._of = {other.key: other for other in _read(self._path)} | self._of
        decisions = [asdict(self._of[key]) for key in sorted(self._of)]
        data = {"format": FORMAT, "version": VERSION, "decisions": decisions}
        try:
            with whole_file(self._path, replace=True) as partial:
                partial.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}", WRITABLE) from None


class _Kept(msgspec.Struct):
    format: Literal["kernel-tune decisions"]
    version: Literal[1]
    decisions: list[Decision]


def _read(path: Path) -> list[Decision]:
    try:
        return msgspec.json.decode(read_at_most(path, MOST_BYTES), type=_Kept).decisions
    except (OSError, ValueError, RecursionError) as error:
        remedy = "name another file, or remove it: what it holds is measured again"
        raise UsageError(
            f"{path} cannot be read as decisions of version {VERSION}: {error}", remedy
        ) from None


@dataclass(frozen=True)
class Answer:
    """What became of one kind of calls in one mode."""

    kind: CallKind
    mode: CallMode
    calls: int
    """How many were recorded; 0 if they were not recorded."""
    share: float
    """Of the operations of all products that were recorded."""
    outcome: str
    """``replaced``, ``not faster``, ``refused``, ``no kernel`` or ``not timed``."""
    reason: str
    decision: Decision | None

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary."""
        own = asdict(self)
        return {"problem": self.kind.problem, "call": own.pop("kind")["call"], **own}


def answers(replacement: Replacement) -> list[Answer]:
    """Return what became of each kind of product, the one with the most operations first."""
    recorded = replacement.calls
    products = Calls(replacement.device)
    for key, count in (recorded.counts if recorded else {}).items():
        if key[0].kernel in (*PRODUCT_KERNELS, ""):
            products.counts[key] = count
    listed = {kind for kind, _ in products.counts}
    for kind in replacement.seen():
        if kind not in listed:
            products.counts[kind, CallMode.EAGER] = 0
    total, rows = products.flop or 1.0, []
    for kind, mode in products.heaviest():
        count = products.counts[kind, mode]
        outcome = _outcome(replacement, kind, mode)
        rows.append(Answer(kind, mode, count, count * kind.flop / total, *outcome))
    return rows


def _outcome(replacement: Replacement, kind: CallKind, mode: CallMode) -> tuple[str, str, Decision | None]:
    if kind.obstacle:
        return "no kernel", kind.obstacle, None
    decision = replacement.decision(kind, mode)
    if decision is None:
        return "not timed", "pass the calls of tuner.record() that has seen it", None
    said = "; ".join(
        [decision.reason, *(f"{n} calls: {why}" for why, n in replacement.refusals(kind).items())]
    )
    if decision.replaced:
        return "replaced", said, decision
    return ("refused" if decision.ratio is None else "not faster"), said, decision


def shares(rows: list[Answer]) -> dict[str, float]:
    """Return the share of the operations of each outcome."""
    total: dict[str, float] = {}
    for row in rows:
        total[row.outcome] = total.get(row.outcome, 0.0) + row.share
    return total


def report(replacement: Replacement) -> str:
    """Return what became of a program's products, as text."""
    rows = answers(replacement)
    where = f"{replacement.gpu}, torch {torch.__version__}"
    if not rows:
        return f"{where}: no products"
    parts = ", ".join(f"{outcome} {100 * share:.1f} %" for outcome, share in shares(rows).items())
    shared = "of the operations: " if any(row.calls for row in rows) else "not recorded: "
    head = ("calls", "mode", "share", "torch us", "tuned us", "torch / tuned", "outcome", "problem", "why")
    lines = [f"{where}; {shared}{parts}", as_table(head, list(_cells(rows))), *_times(rows), NUMERICS]
    return "\n".join(lines)


def _times(rows: list[Answer]) -> Iterator[str]:
    timed = [(row, row.decision) for row in rows if row.calls and row.decision and row.decision.torch_ns]
    if timed:
        own = sum(row.calls * (decision.torch_ns or 0) for row, decision in timed)
        replaced = [(row.calls, decision) for row, decision in timed if decision.replaced]
        gain = sum(calls * ((one.torch_ns or 0) - (one.tuned_ns or 0)) for calls, one in replaced)
        after = f"with what is replaced {(own - gain) / 1000:.1f} us"
        yield f"torch takes {own / 1000:.1f} us for all that was timed; {after}"


def _cells(rows: list[Answer]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        decision, times = row.decision, ("", "", "")
        if decision and decision.torch_ns and decision.tuned_ns and decision.ratio:
            interval = f"{decision.ratio:.3f} ({decision.ratio_low:.3f} to {decision.ratio_high:.3f})"
            times = (f"{decision.torch_ns / 1000:.2f}", f"{decision.tuned_ns / 1000:.2f}", interval)
        share = f"{100 * row.share:.1f} %"
        yield (str(row.calls), str(row.mode), share, *times, row.outcome, row.kind.problem, row.reason)
