"""Which configuration runs a problem: exact, nearest, another card's, the default, or an error that says why."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from tests.runtime.manifests import LIMITS, MANIFEST, PLAIN, manifest_with
from tuner.core.errors import BundleError, CallError
from tuner.runtime.dispatch import (
    Dispatched,
    Match,
    Ranked,
    cost_of,
    dispatch,
    distance,
    excesses,
    log2_units,
    power_of_two,
    rank,
)
from tuner.runtime.entries import MemberEntry, PointEntry, PortfolioEntry
from tuner.runtime.manifest import read_manifest

H200, OTHER = "NVIDIA H200", "NVIDIA H20"
FREE = {**PLAIN, "variant": "free"}


def winner(configuration: int, m: int, gpu: str = H200, n: int = 4096) -> dict[str, Any]:
    """Return a winner: configuration 1 can run only k that are multiples of 8."""
    sizes = {"m": m, "n": n, "k": 4096}
    return {**MANIFEST["winners"][0], "configuration": configuration, "sizes": sizes, "gpu": gpu}


def chosen(
    winners: list[dict[str, Any]], m: int, *, k: int = 4096, gpu: str = H200, cc: int = 90, **more: Any
) -> Dispatched:
    configurations = [*copy.deepcopy(MANIFEST["configurations"]), FREE]
    configurations[1]["launches"][1]["arguments"][6] = {"cluster_order": 0}  # whose tables are short
    manifest = read_manifest(manifest_with(("winners", winners), ("configurations", configurations)))
    return dispatch(manifest, 0, {"m": m, "n": 4096, "k": k}, {**LIMITS, "cc": cc}, gpu, **more)


def outcome(found: Dispatched) -> tuple[int, str, int | None]:
    return found.concrete.configuration, str(found.match), found.tuned_at["m"] if found.tuned_at else None


WINNERS = [winner(1, 4096), winner(3, 1024), winner(0, 16), winner(0, 64, OTHER)]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ({"m": 4096}, (1, "exact", 4096)),
        ({"m": 16}, (0, "exact", 16)),
        ({"m": 3000}, (1, "nearest", 4096)),
        ({"m": 1500}, (3, "nearest", 1024)),
        ({"m": 64}, (0, "nearest", 16)),  # the other card's winner of these sizes comes after this one's own
        ({"m": 4096, "k": 4095}, (3, "nearest", 1024)),  # the nearest cannot run odd k
        ({"m": 64, "gpu": OTHER}, (0, "exact", 64)),
        ({"m": 4096, "gpu": OTHER}, (0, "nearest", 64)),
        ({"m": 4096, "gpu": "NVIDIA H800"}, (1, "other GPU", 4096)),
        ({"m": 1, "cc": 80}, (2, "default", None)),
    ],
)
def test_the_nearest_that_can_run(problem: dict[str, Any], expected: tuple[int, str, int | None]) -> None:
    found = chosen(WINNERS, **problem)
    assert outcome(found) == expected
    assert found.expected_slowdown == (1.0 if expected[1] == "exact" else None)
    assert found.reason and "\n" not in found.reason


def test_ties_go_to_the_first() -> None:
    for pair in ([winner(0, 1024), winner(3, 4096)], [winner(3, 4096), winner(0, 1024)]):
        assert chosen(pair, 2048).concrete.configuration == pair[0]["configuration"]
    assert chosen([winner(3, 512), winner(0, 512)], 512).concrete.configuration == 3


def test_distance_is_in_doublings() -> None:
    sizes = {"m": 4096, "n": 1, "k": 3}
    assert distance(("m", "n", "k"), sizes, sizes) == 0
    assert distance(("m", "n", "k"), sizes, {"m": 1024, "n": 8, "k": 3}) == 5


@pytest.mark.parametrize(("m", "slowdown"), [(4096, 1.0), (4097, 2 ** (85 / 1024)), (8192, 2**0.5)])
def test_only_at_the_very_sizes_a_measured_slowdown_counts_alone(m: int, slowdown: float) -> None:
    """From 4097 the first point is no part of an octave away, and the second one: their weights are 5 and 1."""
    points = [({"m": m, "n": 4096, "k": 4096}, residual) for m, residual in ((4096, 0), (8192, 512))]
    portfolio = {
        "computation": 0, "gpu": H200, "bound": 1.05, "neighbours": 2, "reach": 512, "cost_weight": 0,
        "members": [{"configuration": 0}],
        "points": [{"sizes": sizes, "residuals": [residual]} for sizes, residual in points],
    }  # fmt: skip
    manifest = read_manifest(manifest_with(("winners", []), ("portfolios", [portfolio])))
    found = dispatch(manifest, 0, {"m": m, "n": 4096, "k": 4096}, LIMITS, H200)
    assert found.expected_slowdown == pytest.approx(slowdown, rel=1e-9)


def test_logarithms_are_rounded_down_to_1024ths_of_an_octave() -> None:
    for value in (1, 2, 3, 5, 1000, 2**31 - 1, 2**31, 2**33 + 1, 2**40 - 1, 10**18, 2**62):
        assert log2_units(value) == math.floor(1024 * math.log2(value) + 1e-9)
    for units in (0, 1, 2, 511, 512, 1023, 1024, 1025, 10_241, 60 * 1024 + 512):
        assert power_of_two(units) == pytest.approx(2 ** (units / 1024), rel=1e-14)
    assert power_of_two(61 * 1024) == power_of_two(60 * 1024) == 2.0**60
    assert [Ranked(0, units).slowdown for units in (None, -5, 0, 1024)] == [None, 1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("cost", "whole"), [(3.9, 3), (0, 1), (-5, 1), (["//", "m", 0], 1), (2**62, 2**62), (1e30, 2**62)]
)
def test_costs_are_whole_numbers(cost: Any, whole: int) -> None:
    portfolio = {
        "computation": 0, "gpu": H200, "bound": 1.05, "neighbours": 1, "reach": 64, "cost_weight": 0,
        "members": [{"configuration": 0, "cost": cost}],
        "points": [{"sizes": {"m": 1, "n": 1, "k": 1}, "residuals": [0]}],
    }  # fmt: skip
    (read,) = read_manifest(manifest_with(("portfolios", [portfolio]))).portfolios
    assert cost_of(read.members[0].cost, {"m": 4096}) == whole


def test_what_a_cost_is_above_the_least_counts_by_its_weight() -> None:
    assert excesses([2, None, 8], 1024) == [0, None, 2048]
    assert excesses([2, None, 3], 1000) == [0, None, (1623 - 1024) * 1000 // 1024]
    assert excesses([None, None], 1024) == [None, None]


def test_the_nearest_measured_sizes_that_a_member_can_run_correct_its_cost() -> None:
    """The first member is known at three points, of which the two nearest count; the last one at none."""
    points = [({"m": 2}, [0, 100, None]), ({"m": 4}, [1024, None, None]), ({"m": 64}, [5000, 7, None])]
    members = tuple(MemberEntry(i) for i in range(3))
    measured = tuple(PointEntry(sizes, tuple(residuals)) for sizes, residuals in points)
    portfolio = PortfolioEntry(0, H200, 1.0, 2, 64, 0, members, measured)
    first, second, unknown = rank(portfolio, {"m": 1}, [1, 1, 1])
    near, far = 2**40 // (1024**2 + 512**2 + 64**2), 2**40 // (2048**2 + 2 * 512**2 + 64**2)
    furthest = 2**40 // ((6 * 1024) ** 2 + 512**2 + 64**2)
    assert {first.member: first.units, second.member: second.units} == {
        0: (far * 1024) // (near + far),
        1: (near * 100 + furthest * 7) // (near + furthest),
    }
    assert (unknown.member, unknown.units) == (2, None)
    assert [one.member for one in rank(portfolio, {"m": 4}, [1, 1, None])] == [1, 0]
    assert [(one.member, one.units) for one in rank(portfolio, {"m": 4}, [1, None, None])] == [(0, 1024)]


def test_the_default_is_the_first_that_can_run() -> None:
    assert outcome(chosen([], 4096)) == (1, "default", None)
    odd = chosen([], 4096, k=4095)
    assert outcome(odd) == (0, "default", None)
    assert "rows are vectors" in odd.reason


def test_policies() -> None:
    assert outcome(chosen(WINNERS, 4096, policy="default")) == (1, "default", None)
    assert outcome(chosen(WINNERS, 4096, policy="exact")) == (1, "exact", 4096)
    assert outcome(chosen(WINNERS, 4097, policy="raise")) == (1, "nearest", 4096)
    for problem, policy, said in (
        ({"m": 4097}, "exact", "no winner for exactly these sizes on this GPU"),
        ({"m": 64}, "exact", "no winner for exactly these sizes on this GPU"),
        ({"m": 4096, "gpu": "NVIDIA H800"}, "exact", "m=4096 n=4096 k=4096 on NVIDIA H800"),
        ({"m": 1, "cc": 80}, "raise", "no winner for sizes like these"),
    ):
        with pytest.raises(CallError, match=said) as caught:
            chosen(WINNERS, **problem, policy=policy)
        assert "\n" not in str(caught.value)
    with pytest.raises(
        CallError, match="no policy 'best'; choose from: nearest valid, raise, exact, default"
    ):
        chosen(WINNERS, 1, policy="best")


def test_an_exact_winner_that_cannot_run() -> None:
    """On a card of the same name with less shared memory, say."""
    less = {**LIMITS, "shared_bytes_optin": 1024}
    manifest = read_manifest(manifest_with())
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    with pytest.raises(CallError, match="132096 bytes of shared memory"):
        dispatch(manifest, 0, sizes, less, H200, policy="exact")
    found = dispatch(manifest, 0, sizes, less, H200)
    assert outcome(found) == (0, "nearest", 16)
    assert "132096 bytes" in found.reason


def test_nothing_can_run() -> None:
    manifest = read_manifest(manifest_with(("defaults", []), ("winners", [])))
    with pytest.raises(CallError, match="no configuration of gemm can run m=1 n=1 k=1 on NVIDIA H200"):
        dispatch(manifest, 0, {"m": 1, "n": 1, "k": 1}, LIMITS, H200)
    with pytest.raises(CallError, match="the limit in this dimension"):
        chosen([], 2**40)


@pytest.mark.parametrize(
    ("names", "said"), [("abc", r"\(a; b; c\)"), ("abcd", r"\(a; b; c; 1 more reasons\)")]
)
def test_three_reasons_are_said(names: str, said: str) -> None:
    """Why each of the defaults cannot run."""
    configurations = [{**PLAIN, "requires": [{"reason": name, "holds": ["==", "m", 0]}]} for name in names]
    defaults = [{"computation": 0, "cc": 90, "configuration": at} for at in range(len(names))]
    changes = (("configurations", configurations), ("defaults", defaults), ("winners", []))
    with pytest.raises(CallError, match=said):
        dispatch(read_manifest(manifest_with(*changes)), 0, {"m": 1, "n": 1, "k": 1}, LIMITS, H200)


def test_another_compute_capability_is_refused() -> None:
    with pytest.raises(BundleError, match=r"not compiled for compute capability 10.0, only for 8.0, 9.0"):
        chosen(WINNERS, 4096, cc=100)


def test_wrong_sizes_are_the_callers_fault() -> None:
    manifest = read_manifest(manifest_with())
    with pytest.raises(CallError, match="takes m, n, k"):
        dispatch(manifest, 0, {"m": 1}, LIMITS, H200)
    found = dispatch(manifest, 0, {"m": 8, "n": 8, "k": 128}, LIMITS, H200)
    assert found.match is Match.NEAREST
