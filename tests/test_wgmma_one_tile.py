"""gemm on Hopper with a tile for each cluster: few rows, small products, deep k. What can be known without a GPU."""

from __future__ import annotations

import itertools
import json
import random
import re
from math import ceil

import pytest

from tuner.compile.nvrtc import compile_source
from tuner.expressions.arithmetic import Expression
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.launches import Launch, TensorMap
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.model import Configuration, Problem
from tuner.space.space import SearchSpace

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
VARIANTS = ("wgmma_split_k", "wgmma_skinny_m")
SAMPLES = 60


def problem(layout: str = "nn", dtype: str = "bfloat16", **sizes: int) -> Problem:
    return GEMM.problem({"m": 100, "n": 1048, "k": 4104, **sizes}, {"": dtype}, {"layout": layout})


def drawn(name: str, of: Problem, count: int = SAMPLES) -> list[Configuration]:
    [space] = SearchSpace.from_kernel(GEMM, of, HOPPER, [name]).variants
    rows = random.Random(f"{name} {of}").sample(range(len(space)), count)
    return [space.configuration(row) for row in rows]


def launch_of(of: Problem, configuration: Configuration) -> Launch:
    [launch] = make_plan(GEMM, of, HOPPER, configuration).launches
    return launch


def maps_of(launch: Launch) -> dict[str, TensorMap]:
    return {
        name: TensorMap(**json.loads(str(text))) for kind, name, text in launch.arguments if kind == "map"
    }


@pytest.mark.parametrize("m", [100, 1000])
@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_stage_is_what_its_boxes_bring(name: str, layout: str, m: int) -> None:
    """The barrier waits for the bytes of a stage: the boxes of all blocks that share it must add up to exactly them."""
    of = problem(layout, m=m)
    for configuration in drawn(name, of):
        values = configuration.values
        maps = maps_of(launch_of(of, configuration))
        a, b = maps["a"], maps["b"]
        assert (a.rows, a.columns) == (m, 4104)
        assert (b.rows, b.columns) == ((4104, 1048) if layout == "nn" else (1048, 4104))
        assert a.box_columns == b.box_columns == 64  # 128 bytes, within which pieces change places
        # A part of a tile that one block brings must begin where the change of places does: at whole 8 rows.
        assert a.box_rows % 8 == 0 and b.box_rows % 8 == 0
        slabs_k, slabs_n = values["block_k"] // 64, ceil(values["block_n"] / 64)
        brought = a.box_rows * values["cluster_n"] * slabs_k
        brought += b.box_rows * values["cluster_m"] * (slabs_n if layout == "nn" else slabs_k)
        assert brought * 128 == 2 * values["block_k"] * (values["block_m"] + values["block_n"])


@pytest.mark.parametrize("m", [100, 1000])
@pytest.mark.parametrize("name", VARIANTS)
def test_grid_clusters_and_memory_are_what_the_template_counts_on(name: str, m: int) -> None:
    of = problem(m=m)
    for configuration in drawn(name, of):
        values, launch = configuration.values, launch_of(of, configuration)
        split, split_k = values["cluster_k"], values.get("split_k", 1)
        members = values["cluster_m"] * values["cluster_n"]
        assert launch.cluster == ((split * members, 1, 1) if split * members > 1 else None)
        assert launch.grid[0] % (split * members * split_k) == 0
        tiles_m = ceil(m / values["block_m"] / values["cluster_m"])
        tiles_n = ceil(1048 / values["block_n"] / values["cluster_n"])
        assert launch.grid[0] == tiles_m * tiles_n * split * members * split_k
        stage = 2 * values["block_k"] * (values["block_m"] + values["block_n"])
        others = (split - 1) * values["block_m"] * values["block_n"] * 4 // split
        beside = launch.shared_bytes - 1024 - values["stages"] * (stage + 16) - 32
        [(source, _)] = render(GEMM, of, HOPPER, configuration)
        where = re.search(r"sums_at = (base[^;]*);", source)
        assert (where is not None) == (split > 1)
        if where is not None and where[1] == "base":  # where the stages were
            assert beside == 0 and others <= values["stages"] * stage
        else:
            assert beside == others
        if split > 1:
            assert f"expect_bytes(received, {others});" in source
        scratch = {buffer.name: buffer for buffer in make_plan(GEMM, of, HOPPER, configuration).scratch}
        if split_k > 1:
            tile = values["block_m"] * values["block_n"]
            assert scratch["partials"].count == launch.grid[0] // split * tile
            assert scratch["counters"].count == launch.grid[0] // split_k and scratch["counters"].zeroed_once
        elif scratch:
            assert scratch["partials"].count == scratch["counters"].count == 1


@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("name", VARIANTS)
def test_clusters_synchronise_without_fences_of_the_gpu(name: str, layout: str) -> None:
    """An arrival with a cluster-wide release would wait for all memory traffic of the block: microseconds."""
    of = problem(layout)
    for configuration in drawn(name, of, 6):
        [(source, entry)] = render(GEMM, of, HOPPER, configuration)
        result = compile_source(source, entry, HOPPER.arch)
        assert result.resources.spill_bytes == 0
        assert not re.search(r"C75\d\d", result.log), (
            result.log
        )  # matrix instructions that wait for each other
        assert (
            "release.cluster.shared" not in source
            and "cluster.arrive.aligned" not in source.partition("extern")[2]
        )


def test_parts_that_exchange_sums_multiply_without_a_pause() -> None:
    """Sums that leave while the matrix unit works on others must not make the compiler wait for it every time."""
    of = problem(m=512, n=512, k=65536)
    space = SearchSpace.from_kernel(GEMM, of, HOPPER, ["wgmma_split_k"])
    parts = [one for one in space.configurations() if int(one.values["split_k"]) > 1]
    for configuration in random.Random(0).sample(parts, 12):
        [(source, entry)] = render(GEMM, of, HOPPER, configuration)
        result = compile_source(source, entry, HOPPER.arch)
        assert result.resources.spill_bytes == 0, configuration
        assert not re.search(r"C75\d\d", result.log), configuration


def test_each_run_of_sums_is_kept_by_the_part_that_adds_it_up() -> None:
    """`keeper` of a run, as the source has it, against the stretch from `first_run` to the next part's."""
    of = problem(m=512, n=512, k=65536)
    chosen = {"block_m": 128, "block_n": 128, "split_k": 8, "stages": 6}
    defaults = GEMM.variants["wgmma_split_k"].defaults
    [(source, _)] = render(GEMM, of, HOPPER, Configuration.of("wgmma_split_k", {**defaults, **chosen}))

    def of_source(pattern: str, **names: int) -> int:
        (text,) = re.findall(pattern, source)
        return int(Expression(text.replace("/", "//")).evaluate(names))

    for runs, parts in itertools.product([1, 2, 3, 4, 8, 11, 16, 32], [2, 3, 4, 6, 8, 12, 16]):
        sizes = {"RUNS": runs, "GRID_K": parts}
        kept = [of_source(r"keeper = (.+);", number=number, **sizes) for number in range(runs)]
        first = [of_source(r"first_run = .+return (.+?);", keeper=part, **sizes) for part in range(parts + 1)]
        for part in range(parts):
            stretch = range(first[part], first[part + 1])
            assert [number for number, keeper in enumerate(kept) if keeper == part] == list(stretch)
            assert len(stretch) <= of_source(r"MOST_RUNS = (.+);", **sizes)


def test_few_rows_take_the_narrow_side_of_the_instruction() -> None:
    for configuration in drawn("wgmma_skinny_m", problem(m=3), 10):
        assert configuration.values["block_m"] == 8
        [(source, _)] = render(GEMM, problem(m=3), HOPPER, configuration)
        assert "wgmma.mma_async.sync.aligned.m64n8k16" in source


def test_small_products_have_configurations_that_fill_the_gpu() -> None:
    for size in (512, 1024):
        grids = {
            launch_of(problem(m=size, n=size, k=size), configuration).grid[0]
            for name in VARIANTS
            for configuration in drawn(name, problem(m=size, n=size, k=size), 200)
        }
        assert any(100 <= grid <= HOPPER.sm_count for grid in grids)
