"""Where the persistent product on Hopper divides a last round, prefetches, and walks another way."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.templates.sm90 import GEMM, HOPPER, chosen, drawn, problem, slices_of_c
from tuner.core.model import Configuration, Problem, Value
from tuner.inspect.tools.cases import small_problems
from tuner.kernel.plan import invalid_reason, pruning_reason
from tuner.kernel.space import SearchSpace

DIVIDED: dict[str, Value] = {
    "stream_k": True, "block_k": 64, "sm_margin": 0, "raster_group": 4, "epilogue": "overlapped",
}  # fmt: skip


def holds(of: Problem, configuration: Configuration, sm_count: int) -> bool:
    variant = GEMM.variants[configuration.variant]
    names = {**GEMM.environment(of, replace(HOPPER, sm_count=sm_count)), **configuration.values}
    return all(condition.holds(names) for _, condition in variant.constraints_before)


def is_searched(of: Problem, configuration: Configuration) -> bool:
    """Whether a search may try it; it may be run in any case."""
    assert not invalid_reason(GEMM, of, HOPPER, configuration)
    return not pruning_reason(GEMM, of, HOPPER, configuration)


@pytest.mark.parametrize(
    ("values", "lengths"),
    [
        ({"l2_evict_last": "a"}, {8192: True, 1024: False, 264: False}),  # where the L2 does not hold all
        ({"l2_evict_last": "b"}, {8192: True, 1024: False}),
        ({"raster": "hilbert", "raster_group": 16}, {8192: True, 1024: False}),  # a curve in large squares
        ({"raster": "hilbert", "raster_group": 8}, {8192: False}),
        ({"sm_margin": 4}, {4096: True, 1024: False}),  # SMs are left idle where there is work for them
    ],
)
def test_what_pays_for_large_products_is_tried_for_these(
    values: dict[str, Value], lengths: dict[int, bool]
) -> None:
    found = {n: is_searched(problem(n, n, n), chosen("wgmma", values)) for n in lengths}
    assert found == lengths


def test_blocks_that_wait_for_each_other_are_in_clusters_that_find_every_sm() -> None:
    of, values = (
        problem(4096, 11008, 4096),
        {**DIVIDED, "block_m": 256, "block_n": 128, "swap_ab": True, "stages": 3},
    )
    for rows, columns in ((1, 1), (2, 1), (1, 2)):
        assert not invalid_reason(
            GEMM, of, HOPPER, chosen("wgmma", {**values, "cluster_m": rows, "cluster_n": columns})
        )
    for rows, columns in ((4, 1), (2, 2), (1, 4)):
        four: dict[str, Value] = {**values, "cluster_m": rows, "cluster_n": columns}
        assert "clusters find every SM" in invalid_reason(GEMM, of, HOPPER, chosen("wgmma", four))
        assert not invalid_reason(GEMM, of, HOPPER, chosen("wgmma", {**four, "stream_k": False}))


def test_clusters_of_four_are_tried_where_they_fit_and_pay() -> None:
    def clusters(m: int, n: int, k: int) -> set[tuple[Value, Value]]:
        [space] = SearchSpace.from_kernel(GEMM, problem(m, n, k), HOPPER, ["wgmma"]).variants
        rows = random.Random(m).sample(range(len(space)), 2000)
        return {
            (one["cluster_m"], one["cluster_n"]) for one in (space.configuration(row).values for row in rows)
        }

    two = {(1, 1), (1, 2), (2, 1)}
    assert clusters(1000, 1000, 1000) == two | {(1, 4), (4, 1), (2, 2)}
    assert clusters(136, 2504, 264) == two | {(1, 4), (2, 2)}  # at most three tiles high
    assert clusters(4104, 4104, 4104) == two  # too many tiles


@pytest.mark.parametrize(
    ("tiles", "allowed"),
    [(132 + 1, True), (132 + 66, True), (132 + 67, False), (2 * 132, False), (66, False)],
)
def test_refused_where_the_last_round_is_long_or_none(tiles: int, allowed: bool) -> None:
    """Of 132 SMs: with work for half of them each tile can have two."""
    configuration = chosen("wgmma", {**DIVIDED, "block_m": 128, "block_n": 256, "stages": 3})
    of = problem(128, 256 * tiles, 4096)
    assert holds(of, configuration, 132) == allowed
    assert not holds(problem(128, 256 * tiles, 192), configuration, 132), "parts of a few steps"
    pairs = chosen("wgmma", {**configuration.values, "cluster_n": 2})
    assert holds(problem(128, 512 * tiles, 4096), pairs, 264) == allowed


def test_only_where_a_block_has_one_tile() -> None:
    of = problem(600, 1000, 1544)
    [one, *_] = drawn("wgmma", of, 1, prefetch=True)
    assert holds(of, one, HOPPER.sm_count)
    assert not holds(of, one, 4), "there are more tiles than SMs"
    assert not holds(problem(600, 1000, 64), one, HOPPER.sm_count), "there is no more than the stages hold"


@pytest.mark.parametrize("sizes", [(1024, 1024, 4096), (3000, 3000, 3000)])
def test_two_slices_of_c_at_least(sizes: tuple[int, int, int]) -> None:
    """A part of k that has no slice of C to write would never be added up.

    A product of steps and parts is an int: of steps, the deepest matrix that sizes of 32 bits allow has 2^25.
    """
    for configuration in drawn("wgmma", problem(*sizes), 40, stream_k=True):
        assert 2 <= slices_of_c(configuration) < 64, configuration


# -- where a tool that is a hundred times slower looks at it


def test_a_sanitizer_sees_a_divided_round_of_a_short_product() -> None:
    """No size around its tile has a last round to divide; its own size would take a sanitizer minutes."""
    own = problem(4096, 11008, 4096)
    winner = chosen("wgmma", {**DIVIDED, "block_m": 256, "block_n": 128, "swap_ab": True, "block_k": 128})
    found = small_problems(own, winner, lambda one: not invalid_reason(GEMM, one, HOPPER, winner), 2)
    assert len(found) == 2
    for one in found:
        m, n, k = (one.sizes[name] for name in "mnk")
        assert not invalid_reason(GEMM, one, HOPPER, winner) and m * n * k < 4096 * 11008 * 4096 / 50
        assert (m % 256 or n % 128) and -(-m // 256) * -(-n // 128) % HOPPER.sm_count > 0
