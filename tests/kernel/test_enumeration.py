"""What is valid among very many combinations: all of it where it is little, an even sample where it is not."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import string

import numpy as np
import pytest

from tests.kernel.test_space import build, by_hand, variant
from tuner.core.errors import SpaceError, TunerError
from tuner.kernel import enumeration
from tuner.kernel.variant_spec import VariantSpec

LETTERS = string.ascii_lowercase
PAIRS = list(zip("abcdefghij", "klmnopqrst", strict=True))
TO_64 = list(range(1, 65))


def alike(count: int, values: list[int], *constraints: str) -> VariantSpec:
    """Return a variant of parameters with the same values; ``{+}`` is their sum, ``{*}`` their product."""
    names = LETTERS[:count]
    texts = [text.replace("{+}", "+".join(names)).replace("{*}", "*".join(names)) for text in constraints]
    return variant("v", dict.fromkeys(names, values), texts)


def drawn(draw: random.Random) -> list[str]:
    """Return some constraints over a to e, and the text t."""
    x, y, z, w, v = draw.sample("abcde", 5)
    forms = [
        f"{x} * {y} * {z} * {w} == {draw.choice([4, 6, 12, 16, 36])}",
        f"{x} + {y} + 2 * {z} - {w} <= {draw.randint(2, 9)}",
        f"48 % ({x} * {y}) == 0",
        f"{x} % {y} == 0 and {y} % {z} == 0",
        f"max({x}, {y}, {z}) < {w} + {draw.randint(1, 2)}",
        f"ceil_div(n, {x} * {y}) * {z} == {draw.choice([125, 250, 500])}",
        f"{x} < {y} < {z}",
        f"{x} * 0.5 + {y} * 0.25 >= {z}",
        f"({x} == {y}) + ({y} == {z}) + ({z} == {w}) == 1",
        f"t == 'x' or {x} * {y} * {z} == 8",
        f"{v} != 0 and abs({x} - {y}) * {z} == {w}",
        f"min({x}, {y}) ** 2 + {z} == {draw.randint(3, 9)}",
        f"({x} if t == 'x' else {y}) == {z} * {w}",
    ]
    return draw.sample(forms, 3)


def test_what_is_left_out_early_is_what_one_by_one_evaluation_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enumeration, "MAX_ROWS", 400)
    monkeypatch.setattr(enumeration, "HUGE", 1000)
    draw, exact = random.Random(1), 0
    for _ in range(25):
        values = {name: draw.sample([0, 1, 2, 3, 4, 6, 8], 4) for name in "abcde"}
        spec = variant("v", {**values, "t": ["x", "y"]}, drawn(draw))
        expected = by_hand(spec, {"n": 1000})
        try:
            space = build(spec)
        except SpaceError:
            assert not expected
            continue
        found = list(space.configurations())
        assert set(found) <= set(expected)
        if not space.sampled:
            assert found == expected
            exact += 1
    assert exact > 8


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (alike(8, TO_64, "{*} == 64"), math.comb(6 + 7, 7)),
        (alike(10, TO_64, "{+} == 14"), math.comb(13, 9)),
        (alike(10, TO_64, "64 <= {*}", "{*} < n // 15", "{+} <= 16"), None),
        (alike(9, TO_64, "max(a, b, c, d, e, f, g, h, i) == min(a, b, c, d, e, f, g, h, i)"), 64),
        (alike(8, TO_64, "a < b < c < d < e < f < g < h", "h <= 10"), math.comb(10, 8)),
        (alike(20, list(range(8)), *(f"{x} * {y} == 42" for x, y in PAIRS)), 2**10),
        (
            variant(
                "v",
                {f"p{i}": [0, 1] for i in range(40)},
                ["+".join(f"{2**i + 1} * p{i}" for i in range(40)) + f" == {sum(2**i + 1 for i in range(0, 40, 3))}"],
            ),
            1,
        ),
    ],
)  # fmt: skip
def test_few_valid_ones_among_very_many_are_all_found(spec: VariantSpec, count: int | None) -> None:
    space = build(spec)
    assert not space.sampled and space.size_before >= 10**12
    assert count is None or len(space) == count
    for configuration in itertools.islice(space.configurations(), 0, None, 97):
        assert all(condition.holds({"n": 1000, **configuration.values}) for _, condition in spec.constraints)


def test_what_is_too_many_is_a_sample_that_says_how_many_there_are_about() -> None:
    spec = alike(6, TO_64, "{+} == 192")
    ways = np.ones(1)
    for _ in range(6):
        ways = np.convolve(ways, [0, *[1] * 64])
    valid = enumeration.enumerate_valid(
        spec, {n: list(range(64)) for n in LETTERS[:6]}, {}, np.random.default_rng(0)
    )
    assert valid.sampled and len(valid.matrix) > 100_000
    assert np.all(valid.matrix.sum(axis=1) + 6 == 192)
    assert valid.about == pytest.approx(ways[192], rel=0.02)


@pytest.mark.parametrize(
    "spec",
    [
        alike(10, TO_64, "{+} == 256", "{*} == 7"),
        alike(10, TO_64, "2 * ({+}) == 257"),
        alike(12, TO_64, "a // 0 == 1"),
    ],
)
def test_that_nothing_is_valid_is_known_of_very_many(spec: VariantSpec) -> None:
    with pytest.raises(SpaceError, match=r"^no configuration is valid .*no combination meets "):
        build(spec)


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ("2 ** (a * b) + {+} >= 9", "exponent above 64"),
        ("kind + {+} >= 9", "text"),
        ("nix + {+} >= 9", "unknown name nix"),
    ],
)
def test_what_is_wrong_with_a_constraint_is_said_of_very_many_too(constraint: str, said: str) -> None:
    spec = alike(10, TO_64, constraint)
    kind = variant("v", {"kind": ["x", "y"]}).parameters
    with pytest.raises(TunerError, match=said):
        build(dataclasses.replace(spec, parameters={**kind, **spec.parameters}))
