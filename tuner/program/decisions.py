"""Which calls are replaced: what was measured, kept in a small JSON file so that the next start measures nothing."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from tuner.core.errors import UsageError
from tuner.core.files import read_at_most, whole_file

PROBLEM = 2
"""Where a decision's key has the problem."""
FORMAT, VERSION = "kernel-tune decisions", 1
WRITABLE = "name a file in a folder that exists and can be written"
MOST_BYTES = 64 << 20
"""Of a file; a decision takes some 700."""


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
        if self._path is not None and self._path.exists():
            self._of = {decision.key: decision for decision in _read(self._path)}
        if self._path is not None and not (
            self._path.parent.is_dir() and os.access(self._path.parent, os.W_OK)
        ):
            raise UsageError(f"{self._path} cannot be written", WRITABLE)

    def has(self, problem: str) -> bool:
        """Return whether anything was decided for a problem, on any GPU."""
        return any(key[PROBLEM] == problem for key in self._of)

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
        data = {
            "format": FORMAT,
            "version": VERSION,
            "decisions": [asdict(self._of[key]) for key in sorted(self._of)],
        }
        try:
            with whole_file(self._path, replace=True) as partial:
                partial.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}", WRITABLE) from None


class _Kept(msgspec.Struct):
    format: str
    version: int
    decisions: msgspec.Raw = msgspec.Raw()


def _read(path: Path) -> list[Decision]:
    remedy = "name another file, or remove it: what it holds is measured again"
    try:
        kept = msgspec.json.decode(read_at_most(path, MOST_BYTES), type=_Kept)
        if (kept.format, kept.version) != (FORMAT, VERSION):
            raise UsageError(f"{path} does not hold decisions of version {VERSION}", remedy)
        return msgspec.json.decode(kept.decisions, type=list[Decision])
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy) from None
