"""gemm on Hopper's warpgroup instructions, and the tensor maps that its tiles come by, without a GPU."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tuner.core.model import Configuration, Problem
from tuner.kernel.edge_sizes import VERIFIED_PROBLEMS, tile_edge_problems
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.runtime.launch_limits import UnlaunchableError
from tuner.runtime.launches import TensorMap

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
VARIANTS = ("wgmma", "wgmma_split_k", "wgmma_skinny_m", "wgmma_padded")
ALIGNED = VARIANTS[:3]
SERIALISED = ("C7510", "C7511", "C7517", "C7519", "C7508", "C7504")
"""ptxas says by these that it made the matrix instructions wait for each other, or ignored setmaxnreg."""


def problem(name: str, dtype: str = "bfloat16", layout: str = "nn", **sizes: int) -> Problem:
    odd = 1 if name == "wgmma_padded" else 0
    usual = {"m": 16 if name == "wgmma_skinny_m" else 4096, "n": 4096 + odd, "k": 4096 - odd}
    return GEMM.problem({**usual, **sizes}, {"": dtype}, {"layout": layout})


def space(name: str, of: Problem) -> SearchSpace:
    return SearchSpace.from_kernel(GEMM, of, HOPPER, [name])


def default_of(name: str) -> Configuration:
    return Configuration.of(name, GEMM.variants[name].defaults)


def test_only_on_hopper_and_only_for_rows_of_whole_16_bytes() -> None:
    for cc, gpu in ARCHITECTURES.items():
        names = {v.name for v in GEMM.usable_variants(problem("wgmma"), gpu)[0]}
        assert ("wgmma" in names) == (cc == 90), cc
        assert "wgmma_padded" not in names
    for odd in (problem("wgmma", k=4100), problem("wgmma", n=4097)):
        names = {v.name for v in GEMM.usable_variants(odd, HOPPER)[0]}
        assert names & set(VARIANTS) == {"wgmma_padded"}
    single = problem("wgmma", dtype="float32")
    assert not {v.name for v in GEMM.usable_variants(single, HOPPER)[0]} & set(VARIANTS)
    assert "wgmma_skinny_m" not in {v.name for v in GEMM.usable_variants(problem("wgmma", m=1025), HOPPER)[0]}


def test_what_the_accelerator_cannot_take_is_refused_before_compiling() -> None:
    of = problem("wgmma")
    default = default_of("wgmma")
    with pytest.raises(UnlaunchableError, match="multiple of 16 bytes"):
        make_plan(GEMM, problem("wgmma", k=4100), HOPPER, default)
    with pytest.raises(UnlaunchableError, match=r"9\.0"):
        make_plan(GEMM, of, replace(HOPPER, cc=89), default)
    huge = Configuration.of(
        "wgmma", {**default.values, "block_m": 512, "block_n": 64, "block_k": 64, "stages": 2}
    )
    with pytest.raises(UnlaunchableError, match="256 elements"):
        make_plan(GEMM, of, HOPPER, huge)


@pytest.mark.parametrize("name", ALIGNED)
def test_a_winner_is_verified_at_edge_case_sizes_although_it_refuses_odd_ones(name: str) -> None:
    of = problem(name)
    default = default_of(name)
    fitting = [p for p in tile_edge_problems(of, default) if not invalid_reason(GEMM, p, HOPPER, default)]
    assert len(fitting) >= VERIFIED_PROBLEMS // 2
    rows = default.values["block_m"]
    assert any(
        p.sizes["m"] % rows and p.sizes["n"] % default.values["block_n"] for p in fitting[:VERIFIED_PROBLEMS]
    )


@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_maps_are_of_the_matrices_as_they_lie(layout: str) -> None:
    of = problem("wgmma", layout=layout, m=1000, n=1048, k=520)
    found = space("wgmma", of)
    rows = random.Random(layout).sample(range(len(found)), 60)
    for configuration in [found.variants[0].configuration(row) for row in rows]:
        values = configuration.values
        [launch] = make_plan(GEMM, of, HOPPER, configuration).launches
        maps = [
            (name, TensorMap(**json.loads(str(text))))
            for kind, name, text in launch.arguments
            if kind == "map"
        ]
        assert [name for name, _ in maps] == ["a", "b", "c", "c"]
        a, b, c, rest = (found for _, found in maps)
        assert (a.rows, a.columns) == ((1000, 520) if layout[0] == "n" else (520, 1000))
        assert (b.rows, b.columns) == ((520, 1048) if layout[1] == "n" else (1048, 520))
        assert (c.rows, c.columns) == (rest.rows, rest.columns) == (1000, 1048)
        assert launch.grid[0] % (values["cluster_m"] * values["cluster_n"]) == 0
        # A part of C is 64 x 64, or what the wider side leaves over.
        assert (c.box_rows, c.box_columns, c.swizzle) == (64, 64, 128)
        over = values["block_n" if not values["swap_ab"] else "block_m"] % 64 or 64
        assert (rest.box_rows, rest.box_columns) == ((64, over) if not values["swap_ab"] else (over, 64))
