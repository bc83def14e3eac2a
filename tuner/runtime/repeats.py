"""Launches that repeat: from the loops around entries to what is launched, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ..core.errors import KernelError
from .entries import LaunchEntry, RepeatEntry
from .launch_limits import UnlaunchableError

Names = Mapping[str, Any]
"""A value for each name."""
MAX_LOOPS = 8
"""Around a launch."""
MAX_LAUNCHES = 4096
"""Of a configuration, with those that ``when`` leaves out, and passes without any."""


def expanded(entries: Sequence[LaunchEntry], names: Names, problem: object) -> list[tuple[int, Names]]:
    """Return what is launched for a problem, in order: the index of its entry, and the names' values in its pass.

    Raises:
        KernelError: nothing is, or a count is no whole number.
        UnlaunchableError: there are more than :data:`MAX_LAUNCHES`.
    """
    walk = _Walk(entries)
    walk.through(range(len(entries)), 0, names)
    if not walk.launched:
        remedy = "at least one launch's when must be true wherever the variant's requires is"
        raise KernelError(f"there is no launch for {problem}", remedy)
    return walk.launched


class _Walk:
    """Goes through entries and their loops."""

    def __init__(self, entries: Sequence[LaunchEntry]) -> None:
        self._entries = entries
        self._passed = 0
        self.launched: list[tuple[int, Names]] = []

    def through(self, indices: Sequence[int], depth: int, names: Names) -> None:
        """Go through entries that are in the same loops up to a depth."""
        for name, group in groupby(indices, lambda index: self._loop(index, depth)):
            some = list(group)
            if not name:
                for index in some:
                    when = self._entries[index].when
                    if when is None or when.evaluate(names):
                        self.launched.append((index, names))
                    self._pass(1)
                continue
            for number in range(_count(self._entries[some[0]].repeat[depth], names)):
                before = self._passed
                self.through(some, depth + 1, {**names, name: number})
                self._pass(self._passed == before)

    def _loop(self, index: int, depth: int) -> str:
        """Return the name of an entry's loop at a depth; empty if it is in no more."""
        loops = self._entries[index].repeat
        return loops[depth].name if depth < len(loops) else ""

    def _pass(self, count: int) -> None:
        self._passed += count
        if self._passed > MAX_LAUNCHES:
            raise UnlaunchableError(
                f"its launches repeat more than {MAX_LAUNCHES} times",
                "let the kernel loop, or use smaller sizes",
            )


def _count(loop: RepeatEntry, names: Names) -> int:
    """Return how many passes a loop has."""
    value = loop.count.evaluate(names)
    if isinstance(value, str) or value != int(value) or value < 0:
        where, text = loop.count.where or f"repeat {loop.name}", loop.count.text
        raise KernelError(
            f"{where}: {text + ' = ' if text else ''}{value!r}",
            "a count is a whole number from 0; ceil_div(..., 1) rounds up",
        )
    return int(value)
