"""gemm on Hopper's warpgroup instructions, and the tensor maps that its tiles come by, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.core.model import Configuration, Problem
from tuner.kernel.edge_sizes import VERIFIED_PROBLEMS, tile_edge_problems
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.runtime.launch_limits import UnlaunchableError

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
