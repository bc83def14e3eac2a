"""Launches that repeat: from the loops around entries to what is launched, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from ..core.errors import KernelError
from .entries import LaunchEntry, RepeatEntry
from .expressions import Names
from .launch_limits import UnlaunchableError

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
    steps = list(islice(_steps(entries, range(len(entries)), 0, names), MAX_LAUNCHES + 1))
    if len(steps) > MAX_LAUNCHES:
        problem = f"its launches repeat more than {MAX_LAUNCHES} times"
        raise UnlaunchableError(problem, "let the kernel loop, or use smaller sizes")
    if not (launched := [step for step in steps if step is not None]):
        remedy = "at least one launch's when must be true wherever the variant's requires is"
        raise KernelError(f"there is no launch for {problem}", remedy)
    return launched


def _steps(
    entries: Sequence[LaunchEntry], indices: Sequence[int], depth: int, names: Names
) -> Iterator[tuple[int, Names] | None]:
    """Yield what is launched of entries that are in the same loops up to a depth, and None for what is left out.

    A pass without any counts as well.
    """

    def loop(index: int) -> str:
        loops = entries[index].repeat
        return loops[depth].name if depth < len(loops) else ""

    for name, group in groupby(indices, loop):
        some = list(group)
        if not name:
            for index in some:
                when = entries[index].when
                yield (index, names) if when is None or when.evaluate(names) else None
            continue
        for number in range(_count(entries[some[0]].repeat[depth], names)):
            inner = _steps(entries, some, depth + 1, {**names, name: number})
            yield next(inner, None)
            yield from inner


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
