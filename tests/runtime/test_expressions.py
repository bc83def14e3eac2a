"""The expressions of a bundle's manifest: the cases that the C++ launcher shares, and that no other error comes out."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from tuner.core.errors import ExpressionError
from tuner.expressions.arithmetic import parse
from tuner.runtime.expressions import MAX_PARTS, Expression, NoValueError, Tree, check

CASES = json.loads((Path(__file__).parents[1] / "expressions.json").read_text())


def value_of(tree: Any, names: dict[str, int]) -> float | None:
    try:
        value: float = Expression(check(tree, names)).evaluate(names)
    except NoValueError:
        return None
    return int(value) if isinstance(value, bool) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: json.dumps(case)[:60])
def test_shared_cases(case: dict[str, Any]) -> None:
    names = case.get("names", {})
    if case.get("refused"):
        with pytest.raises(ValueError, match="an expression "):
            check(case["expression"], names)
        return
    value, expected = value_of(case["expression"], names), case["value"]
    assert type(value) is type(expected)
    if isinstance(expected, float):
        assert value is not None
        assert math.isclose(value, expected, rel_tol=1e-15)
    else:
        assert value == expected


def test_cases_of_every_operator() -> None:
    def operators(tree: Any) -> set[str]:
        if not isinstance(tree, list) or not tree:
            return set()
        return {str(tree[0])}.union(*map(operators, tree[1:]))

    valued = [case for case in CASES if not case.get("refused")]
    assert len(CASES) >= 150
    used = set().union(*(operators(case["expression"]) for case in valued))
    assert used == {*BINARY, *UNARY, "**", "log2", "if"}


def test_a_number_that_is_not_finite_is_refused() -> None:
    for value in (math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match="an expression has"):
            check(value, ())


def test_too_many_parts_are_refused() -> None:
    check(["and", *[1] * (MAX_PARTS - 1)], ())
    with pytest.raises(ValueError, match="parts"):
        check(["and", *[1] * MAX_PARTS], ())


def test_a_condition_without_a_value_does_not_hold() -> None:
    condition = Expression(check(["==", ["%", 8, "m"], 0], ["m"]))
    assert [condition.holds({"m": m}) for m in (0, 3, 4)] == [False, False, True]


BINARY = {
    "+": "{} + {}", "-": "{} - {}", "*": "{} * {}", "/": "{} / {}", "//": "{} // {}", "%": "{} % {}",
    "&": "{} & {}", "|": "{} | {}", "^": "{} ^ {}", "==": "{} == {}", "!=": "{} != {}", "<": "{} < {}",
    "<=": "{} <= {}", ">": "{} > {}", ">=": "{} >= {}", "and": "{} and {}", "or": "{} or {}",
    "ceil_div": "ceil_div({}, {})", "round_up": "round_up({}, {})", "min": "min({}, {})", "max": "max({}, {})",
}  # fmt: skip
UNARY = {"neg": "-{}", "not": "not {}", "abs": "abs({})", "is_pow2": "is_pow2({})"}


def test_values_are_those_of_kernel_files() -> None:
    """A thousand random expressions, in both languages, over integers that stay small."""

    def draw(depth: int) -> tuple[Any, str]:
        if depth == 0 or random.random() < 0.2:
            leaf = random.choice(["m", "n", random.randint(-9, 99)])
            return leaf, f"({leaf})"
        if random.random() < 0.2:
            (operator, text), operands = random.choice(list(UNARY.items())), [draw(depth - 1)]
        elif random.random() < 0.15:
            operator, text, operands = "if", "{1} if {0} else {2}", [draw(depth - 1) for _ in range(3)]
        else:
            (operator, text), operands = (
                random.choice(list(BINARY.items())),
                [draw(depth - 1) for _ in range(2)],
            )
        return [operator, *(tree for tree, _ in operands)], f"({text.format(*(t for _, t in operands))})"

    random.seed(5)
    compared = 0
    for _ in range(1000):
        tree, text = draw(4)
        names = {"m": random.randint(1, 5000), "n": random.randint(1, 70)}
        value = value_of(tree, names)
        try:
            expected = parse(text).evaluate(names)
        except ExpressionError as error:
            assert "has no value here" in str(error)
            expected = None
        if value is not None:
            compared += 1
        elif expected is not None:
            assert abs(expected) > 2**63
            continue
        assert value == expected, (text, names)
    assert compared > 700


def test_nothing_but_its_own_errors() -> None:
    """Damaged expressions are refused or have a value, or none."""
    random.seed(7)
    atoms: list[Any] = [None, "m", "", "+", {}, [], -1, 0, 1e308, 2**63, True, "if", 3.5, 2**62]
    outcomes = {"refused": 0, "none": 0, "value": 0}

    def draw(depth: int) -> Any:
        if depth == 0 or random.random() < 0.3:
            return random.choice(atoms if random.random() < 0.2 else ["m", 0, 7, -3, 2.5, 2**62])
        operator = random.choice([*BINARY, *UNARY, "**", "log2", "if", "what"])
        return [operator, *(draw(depth - 1) for _ in range(random.choice([1, 2, 2, 2, 3])))]

    for _ in range(5000):
        try:
            tree: Tree = check(draw(3), ("m",))
        except ValueError as error:
            outcomes["refused"] += 1
            assert "\n" not in str(error)
            continue
        try:
            assert math.isfinite(Expression(tree).evaluate({"m": random.choice([1, 4096, 2**62])}))
            outcomes["value"] += 1
        except NoValueError:
            outcomes["none"] += 1
    assert min(outcomes.values()) > 50, outcomes
