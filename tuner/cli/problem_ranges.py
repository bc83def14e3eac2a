"""Rows of problems that stand for several: choices, and sizes drawn from ranges."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping

from tuner.core.errors import UsageError
from tuner.kernel.spec import KernelSpec

SAMPLES = "samples"
"""The column that says how many problems are drawn from a row."""
MOST = 4096
DRAWS = 50
"""For each problem that is asked for: what is drawn twice counts once."""

Row = Mapping[str, str]


def expanded(kernel: KernelSpec, row: Row, number_of: Callable[[str, str], int]) -> list[dict[str, str]]:
    """Return the rows that a row stands for.

    ``64|128`` is a choice: all combinations of all choices. With ``samples=20`` so many are drawn, and a size may be a
    range, such as ``16..8192:8``: multiples of 8, as many between 16 and 32 as between 4096 and 8192. The same row
    gives the same problems.

    Args:
        kernel: whose sizes, dtypes and options are meant; element expressions are left as they are.
        row: values by name.
        number_of: returns the whole number that a text means, given a name for errors.

    Raises:
        UsageError: a range without ``samples``, an empty choice or range, or too many problems.
    """
    if SAMPLES in kernel.sizes or SAMPLES in kernel.options:
        return [dict(row)]
    left = {name: text for name, text in row.items() if name != SAMPLES}
    several = {name: text for name, text in left.items() if name not in kernel.elements}
    if SAMPLES not in row:
        if ranges := [name for name, text in several.items() if name in kernel.sizes and ".." in text]:
            name = ranges[0]
            raise UsageError(f"{name}={left[name]} is a range", "say how many are drawn with samples=N")
        choices = [_choices(name, text) if name in several else [text] for name, text in left.items()]
        if (count := math.prod(map(len, choices))) > MOST:
            raise UsageError(
                f"{count} combinations of choices", f"give at most {MOST}, or draw some with samples=N"
            )
        return [dict(zip(left, one, strict=True)) for one in itertools.product(*choices)]
    if not 1 <= (count := number_of(SAMPLES, row[SAMPLES])) <= MOST:
        raise UsageError(f"{SAMPLES}={row[SAMPLES]}", f"draw from 1 to {MOST}")
    draw = random.Random(str(sorted(row.items())))
    drawn: dict[tuple[str, ...], dict[str, str]] = {}
    for _ in range(DRAWS * count):
        one = {
            name: _drawn(name, text, draw, number_of, ranged=name in kernel.sizes)
            if name in several
            else text
            for name, text in left.items()
        }
        drawn[tuple(one.values())] = one
        if len(drawn) == count:
            break
    return list(drawn.values())


def _choices(name: str, text: str) -> list[str]:
    choices = [part.strip() for part in text.split("|")]
    if "" in choices:
        raise UsageError(f"{name}={text} has an empty choice", "write it as 64|128")
    return choices


def _drawn(
    name: str, text: str, draw: random.Random, number_of: Callable[[str, str], int], *, ranged: bool
) -> str:
    choice = draw.choice(_choices(name, text))
    if not ranged or ".." not in choice:
        return choice
    low_text, _, rest = choice.partition("..")
    high_text, _, step_text = rest.partition(":")
    low, high = number_of(name, low_text), number_of(name, high_text)
    step = number_of(name, step_text) if step_text else 1
    first, last = -(-low // step) if step > 0 else 0, high // step if step > 0 else 0
    if not 1 <= first <= last:
        raise UsageError(
            f"{name}={choice} holds no size", "write it as 16..8192, or 16..8192:8 for multiples of 8"
        )
    exact = math.exp(draw.uniform(math.log(first), math.log(last + 1)))
    return str(min(last, max(first, int(exact))) * step)
