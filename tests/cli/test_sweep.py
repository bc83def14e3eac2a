"""Sizes of a sweep."""

from __future__ import annotations

import pytest

from tuner.cli.ladder import MOST, make_sweep
from tuner.core.errors import UsageError
from tuner.kernel.load import load_kernel

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([], []),
        (["m=4..16"], [{"m": 4}, {"m": 8}, {"m": 16}]),
        (["m=2**10..2^12:4"], [{"m": 1024}, {"m": 4096}]),
        (["m=10..79"], [{"m": 10}, {"m": 20}, {"m": 40}]),
        (["m=7"], [{"m": 7}]),
        (["m=3, 1,2..4, 4"], [{"m": 3}, {"m": 1}, {"m": 2}, {"m": 4}]),
        (["m=n=k=1..2"], [{"m": 1, "n": 1, "k": 1}, {"m": 2, "n": 2, "k": 2}]),
        (["m=1..2", "n = 10,30"], [{"m": 1, "n": 10}, {"m": 2, "n": 30}]),
    ],
)
def test_sweep(texts: list[str], found: list[dict[str, int]]) -> None:
    assert make_sweep(load_kernel("gemm"), texts) == found


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["m"], ("--sweep 'm'", "2**28")),
        (["m="], ("--sweep 'm='",)),
        (["m=1,,2"], ("--sweep 'm=1,,2'",)),
        (["m=1.."], ("--sweep 'm=1..'",)),
        (["m=one"], ("m=one", "whole number")),
        (["m=1..4:x"], ("factor=x", "whole number")),
        (["m=1..4:1"], ("factor 1", "from 2 up")),
        (["m=8..4"], ("is empty", "smaller number first")),
        (["m=0..4"], ("m=0", "start at 1")),
        (["q=1..4"], ("no size 'q'", "m, n, k")),
        (["m=1..4", "m=1..4"], ("m twice",)),
        (["m=1..4", "n=1..8"], ("different lengths", "3 of m, 4 of n")),
        (["k=1..4"], ("--size and in --sweep",)),
        (["m=" + ",".join(map(str, range(1, MOST + 2)))], (f"more than {MOST}", "factor")),
    ],
)
def test_sweep_that_is_none(texts: list[str], words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        make_sweep(load_kernel("gemm"), texts, ["k"])
    for word in words:
        assert word in str(refused.value)
