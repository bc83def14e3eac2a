"""Expressions with what is known worked in have the same values as before."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from tuner.core.errors import DivisionByZeroError, KernelError
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.folding import fold
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.runtime.expressions import Expression as Folded
from tuner.runtime.expressions import NoValueError

CONSTANTS = {
    "schedule": "pingpong",
    "stages": 4,
    "swap": False,
    "input": "float16",
    "op": "x * y",
    "half": 0.5,
}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("stages * itemsize(input)", 8),
        ("schedule == 'pingpong'", True),
        ("schedule in ['cooperative', 'pingpong'] and m > stages", [">", "m", 4]),
        ("m > 1 and schedule == 'cooperative'", ["and", [">", "m", 1], False]),
        ("swap and m // 0 > 1", False),
        ("m if schedule == 'pingpong' else input + 1", "m"),
        ("1 <= m < stages", ["and", ["<=", 1, "m"], ["<", "m", 4]]),
        ("m not in [1, 2]", ["not", ["or", ["==", "m", 1], ["==", "m", 2]]]),
        ("m == 'text'", False),
        ("uses(op, 'z') * m + operations(op)", ["+", ["*", 0, "m"], 1]),
        ("m > 0 or 1 // 0", ["or", [">", "m", 0], ["//", 1, 0]]),
        ("m < 2 ** 64", ["<", "m", 2.0**64]),
        ("-m * +half", ["*", ["neg", "m"], 0.5]),
        ("m and stages", ["and", "m"]),
        ("input and m", ["and", "m"]),
        ("log2(stages)", 2.0),
        ("log2(0)", ["//", 1, 0]),
        ("min(m, stages, 3) ** 2", ["**", ["min", "m", 4, 3], 2]),
    ],
)
def test_what_is_known_is_worked_in(text: str, left: Any) -> None:
    folded = json.loads(json.dumps(fold(parse(text), CONSTANTS).tree, allow_nan=False))
    assert folded == left
    assert type(folded) is type(left)


@pytest.mark.parametrize("text", ["input", "schedule if m > 1 else 3", "('a' if m > 1 else 'b') == 'a'"])
def test_text_is_refused_where_a_program_needs_a_number(text: str) -> None:
    with pytest.raises(KernelError, match="sizes only"):
        fold(Expression(text, "key"), CONSTANTS)


@pytest.mark.parametrize("name", builtin_kernels())
def test_every_condition_of_a_built_in_kernel_has_the_value_it_had(name: str) -> None:
    """Of random parameters and sizes; a condition without a value is false."""
    kernel, rng, seen = load_kernel(name), random.Random(name), set[bool]()
    problem, gpu = kernel.problem(), ARCHITECTURES[90]
    for variant in kernel.variants.values():
        for _ in range(6):
            values = {p.name: rng.choice(p.values) for p in variant.parameters.values()}
            known = {**problem.dtypes, **problem.options, **values, "cc": 90}
            sizes = {size: rng.choice([1, 7, 64, 1000, 4096, 2**20, 2**30]) for size in problem.sizes}
            names = {**kernel.environment(problem, gpu), **sizes, **values}
            for _, condition in variant.constraints_before:
                expected = condition.holds(names)
                seen.add(expected)
                assert _holds(fold(condition, known), names) is expected, condition.text
            for launch in variant.launches:
                for item in (*launch.grid, *launch.block, launch.shared_bytes):
                    exact = _exact(item, names)
                    # No grid is so large, and a bundle's integers end there.
                    beyond = max(exact or 0, math.prod(sizes.values())) >= 2**63
                    assert beyond or _value(fold(item, known), names) == exact, item.text
    assert seen == {True, False}


def _holds(folded: Folded, names: dict[str, Any]) -> bool:
    return bool(_value(folded, names))


def _value(folded: Folded, names: dict[str, Any]) -> Any:
    numbers = {name: value for name, value in names.items() if not isinstance(value, str)}
    try:
        return folded.evaluate(numbers)
    except NoValueError:
        return None


def _exact(item: Expression, names: dict[str, Any]) -> Any:
    try:
        return item.evaluate(names)
    except DivisionByZeroError:
        return None
