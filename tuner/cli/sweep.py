"""``--sweep``: a range or a list of values for one size or several, as the sizes of each level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.cli.problems import size_of
from tuner.core.errors import UsageError, suggestion
from tuner.kernel.spec import KernelSpec

FACTOR = 2
"""From one value of a range to the next, if the range names no factor."""
MOST = 64
"""Levels of a sweep: each costs seconds."""
FORM = "write --sweep n=2**10..2**28, n=2**10..2**28:4, n=1000,2000,3000, or m=n=k=256..8192"


def make_sweep(kernel: KernelSpec, texts: Sequence[str], taken: Iterable[str] = ()) -> list[dict[str, int]]:
    """Return the sizes of each level by ``--sweep`` texts; several move together, value by value.

    Args:
        kernel: whose sizes they are.
        texts: each ``NAME[=NAME...]=VALUES``, where VALUES are numbers and ranges ``A..B`` or ``A..B:FACTOR``, with
            commas between them.
        taken: sizes that ``--size`` has set already.

    Raises:
        UsageError: a size that the kernel lacks or that is named twice, no numbers, or lists of different lengths.
    """
    columns: dict[str, list[int]] = {}
    for text in texts:
        *names, values = (part.strip() for part in text.split("="))
        if not names or not all(names) or not values:
            raise UsageError(f"--sweep {text!r}", FORM)
        numbers = [value for part in values.split(",") for value in _values(names[0], part.strip(), text)]
        for name in names:
            if name not in kernel.sizes:
                raise UsageError(f"{kernel.name} has no size {name!r}", suggestion(name, kernel.sizes))
            if name in columns:
                raise UsageError(f"--sweep names {name} twice", "name it once, with all of its values")
            if name in taken:
                raise UsageError(f"{name} is in --size and in --sweep", "name it in one of them")
            columns[name] = numbers
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{len(values)} of {name}" for name, values in columns.items())
        raise UsageError(f"sweeps move together, and these have different lengths: {counts}", FORM)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows = list({tuple(row.items()): row for row in rows}.values())
    if len(rows) > MOST:
        raise UsageError(
            f"--sweep gives {len(rows)} sizes, more than {MOST}", "use a larger factor: n=A..B:FACTOR"
        )
    return rows


def _values(name: str, text: str, whole: str) -> list[int]:
    """Return the numbers of one value or one range."""
    first, dots, rest = text.partition("..")
    if not first or (dots and not rest):
        raise UsageError(f"--sweep {whole!r}", FORM)
    low = size_of(name, first)
    if not dots:
        return [_positive(name, low)]
    last, colon, by = rest.partition(":")
    high, factor = size_of(name, last), size_of("factor", by) if colon else FACTOR
    if factor < 2:
        raise UsageError(f"--sweep {whole!r} has the factor {factor}", "a factor is a whole number from 2 up")
    if high < _positive(name, low):
        raise UsageError(
            f"--sweep {whole!r} is empty: {high} is below {low}", "write the smaller number first"
        )
    numbers = [low]
    while numbers[-1] * factor <= high:
        numbers.append(numbers[-1] * factor)
    return numbers


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise UsageError(f"size {name}={value}", "sizes start at 1")
    return value
