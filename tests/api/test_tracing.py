"""Functions of sizes and parameters as expressions of kernel files."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tuner
from tests.api.conftest import STENCIL, STENCIL_CALL
from tuner.api.tracing import traced
from tuner.core.errors import UsageError
from tuner.expressions.arithmetic import parse

KERNEL = {name: given for name, given in STENCIL_CALL.items() if name not in ("trials", "where")}
SIZES = {"n": 1000}
PARAMETERS: dict[str, list[Any]] = {"B": [32, 64, 128], "T": [1, 2, 3], "kind": ["row", "column"]}


def doubled(n: int, BLOCK: int) -> int:
    blocks = 1
    while blocks * BLOCK < n:
        blocks *= 2
    return blocks


def next_power(B: int) -> int:
    power = 1
    while power < B:
        power *= 2
    return power


def branching(kind: str, B: int) -> int:
    if kind == "row":
        return B
    if kind == "column":
        return 2 * B
    raise ValueError(kind)


def guarded(n: int, B: int, T: int) -> int:
    return n // B if B > 32 and (T == 1 or not n > 500) else max(B, T, 100) % 7


@pytest.mark.parametrize(
    "function",
    [
        lambda n, B: math.ceil(n / B),
        lambda n, B, T: (-(-n // (B * T)), 1),
        lambda p: [min(p["n"], p.B * p.T) + 1, p.n % p.T, abs(p.T - 5)],
        lambda B, T: 32 < B <= 128 or T == 2,
        lambda p: p["B"] * p["T"] <= 256 and p["kind"] != "row",
        branching,
        lambda B, T: divmod(B, T)[1] + ~T + B.bit_length(),
        guarded,
        next_power,
        lambda B: {32: 7, 64: 8}.get(B, B**2),
        lambda B, T: int(math.log2(B)) * T + round(B / 3),
        lambda B, T: np.int64(np.log2(B)) * T,
        lambda n, T: math.floor(n / T) + math.ceil(T) - T,
        lambda kind, B: {"row": 1, "column": 2}[kind] * B,
        lambda B: [8, 16, 32, 64, 128].index(B),
        lambda n, B, T: (n >> T) + (B << 1) - (1 << T),
        lambda n, B, T: [*divmod(n, B), *divmod(7, T), B.bit_length()],
        lambda kind, B: B if kind.startswith("r") else 1,
    ],
)
def test_expressions_have_the_values_of_the_function(function: Callable[..., Any]) -> None:
    texts = traced("grid", function, SIZES, PARAMETERS, set())
    for n in (1, 999, 1000) if function.__code__.co_names != ("p",) else (1000,):
        for values in itertools.product(*PARAMETERS.values()):
            names = {"n": n, **dict(zip(PARAMETERS, values, strict=True))}
            wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
            mapping = type("Names", (dict,), {"__getattr__": dict.__getitem__})(names)
            expected = function(mapping) if wanted == ("p",) else function(*(names[name] for name in wanted))
            expected = expected if isinstance(expected, tuple | list) else [expected]
            assert [parse(text).evaluate(names) for text in texts] == list(expected), texts


def test_names_may_be_all_that_there_are() -> None:
    assert traced("where", lambda B, **p: B * p["T"] <= 256, SIZES, PARAMETERS) == ["B * T <= 256"]


def test_arithmetic_stays_readable() -> None:
    assert traced("grid", lambda n, B, T: math.ceil(n / (B * T)), SIZES, PARAMETERS, set()) == [
        "ceil_div(n, B * T)"
    ]


def test_a_size_whose_value_counts_is_named() -> None:
    settled: set[str] = set()
    traced("grid", lambda n, B: int(math.sqrt(n)) // B, SIZES, PARAMETERS, settled)
    assert settled == {"n"}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda B, C: B, ["wants 'C'"]),
        (lambda p: p.C, ["no C", "p is a mapping of n, B, T, kind"]),
        (lambda B: [1] * B, ["more numbers at times"]),
        (lambda B: None + B, ["fails: TypeError"]),
        (lambda B: None, ["returns nothing; return a number"]),
        (lambda B: print, ["returns <built-in"]),
    ],
)
def test_refused_in_one_line(function: Callable[..., Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        traced("grid", function, SIZES, PARAMETERS, set())
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_too_many_values_are_refused() -> None:
    many = {name: list(range(1, 11)) for name in "abcd"}
    with pytest.raises(UsageError, match="too many values"):
        traced("where", lambda p: hash(tuple(int(p[name]) for name in "abcd")) % 3 == 0, {}, many, set())


@pytest.mark.parametrize("function", [doubled, lambda n: list(range(5000)).index(n)])
def test_a_loop_that_a_size_ends_is_soon_refused(function: Callable[..., Any]) -> None:
    began = time.process_time()
    with pytest.raises(UsageError, match="too many values"):
        tuner.Kernel(STENCIL, **{**KERNEL, "grid": function})
    assert time.process_time() - began < 2
