"""What a condition may be where only some of its names have a value."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tuner.core.errors import ExpressionError
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.outlook import Outlook, magnitude
from tuner.expressions.ranges import FITS, range_of

VALUES = {
    "a": [1, 2, 3, 4],
    "b": [0, 1, 5],
    "c": [-3, 0, 2, 9],
    "d": [8, 16, 24, 64],
    "e": [0.5, 1.0, 2.5],
    "f": [False, True],
}
CONSTANTS = {"n": 96, "m": 7, "kind": "x"}


def drawn(draw: random.Random, depth: int) -> str:
    """Return a random expression of whole numbers, fractions and truth values."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice([*VALUES, *VALUES, "n", "m", str(draw.randint(-3, 9)), "0.5"])
    x, y, z = (drawn(draw, depth - 1) for _ in range(3))
    forms = [
        f"{x} + {y}", f"{x} - {y}", f"{x} * {y}", f"{x} * {y} * {z}", f"-{x}", f"{x} // {y}", f"{x} % {y}",
        f"{x} / {y}", f"ceil_div({x}, {y})", f"round_up({x}, {y})", f"min({x}, {y}, {z})", f"max({x}, {y})",
        f"abs({x})", f"{x} ** 2", f"{x} if {y} < {z} else {x}", f"2 ** min(abs({x}), 9)", f"{x} == {y} or {z}",
        f"not {x}", f"log2({x})",
    ]  # fmt: skip
    return f"({draw.choice(forms)})"


def holds(condition: Expression, names: dict[str, object]) -> bool | None:
    try:
        return condition.holds(names)
    except ExpressionError:
        return None  # such as a power that is too large


def test_what_holds_for_some_values_is_possible() -> None:
    draw, refused, tried = random.Random(0), 0, 0
    for _ in range(120):
        sides = drawn(draw, 3), drawn(draw, 2)
        condition = parse(f"{sides[0]} {draw.choice(['==', '<=', '<', '!=', '>='])} {sides[1]}")
        used = sorted(condition.names & VALUES.keys())
        known = draw.sample(used, draw.randint(0, len(used)))
        others = [name for name in used if name not in known]
        rows = list(itertools.product(*(VALUES[name] for name in known)))
        columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(known)}
        columns = {n: c.astype(np.int64) if c.dtype == bool else c for n, c in columns.items()}
        ranges = {name: range_of(VALUES[name]) for name in others}
        may = np.broadcast_to(Outlook(CONSTANTS, ranges).possible(condition, columns), len(rows))
        for row, said in zip(rows, may, strict=True):
            names = {**CONSTANTS, **dict(zip(known, row, strict=True))}
            completed = itertools.product(*(VALUES[name] for name in others))
            really = {holds(condition, {**names, **dict(zip(others, c, strict=True))}) for c in completed}
            assert said or True not in really, (condition.text, names)
            refused += not said
            tried += True not in really
    assert refused > 0.1 * tried > 0


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("a * d * b == n", {"d": [8, 64, 24]}, [True, False, True]),  # 96 is no multiple of 64
        ("n % (d * a) == 0", {"d": [16, 64]}, [True, False]),
        ("d + c + a <= 5", {"d": [8, 9, 7]}, [False, False, True]),  # c + a is -2 at least
        ("a * 10 + d * 100 + c == 1234", {"c": [4, 3, 34]}, [True, False, True]),
        ("max(a, d) < c", {"c": [8, 9]}, [False, True]),
        ("ceil_div(n, a * c) >= 50", {"c": [1, 2, 4]}, [True, False, False]),
        ("d == 5 and a == c", {"c": [4]}, [False]),
        ("f == 1 or a * d == n * c", {"c": [1], "f": [0]}, [True]),
        ("f == 1 or a * d == n * c", {"c": [7, 2], "f": [0, 0]}, [False, True]),
        ("(a * d) % b == 0", {"b": [0, 1]}, [False, True]),
        ("2 ** a * d == 2 ** c", {"c": [2, 10]}, [False, True]),
    ],
)
def test_what_no_value_of_the_others_fulfils_is_not(
    text: str, known: dict[str, list[int]], expected: list[bool]
) -> None:
    ranges = {name: range_of(VALUES[name]) for name in parse(text).names & VALUES.keys() - known.keys()}
    columns = {name: np.array(values) for name, values in known.items()}
    assert Outlook(CONSTANTS, ranges).possible(parse(text), columns).tolist() == expected


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("a * d < n", False),
        ("*".join(["d"] * 10) + " == 64", False),
        ("*".join(["d"] * 11) + " == 64", True),
        ("2 ** d > a", True),
    ],
)
def test_parts_beyond_64_bits_are_known_from_the_values(text: str, wide: bool) -> None:
    largest = {name: VALUES[name][-1] for name in VALUES}
    assert (magnitude(parse(text), {**CONSTANTS, **largest}) >= FITS) == wide
