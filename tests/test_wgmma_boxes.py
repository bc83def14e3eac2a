"""What a block loads alone, before its cluster is ready, is what its cluster loads for it afterwards."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sources import between, definition, rendered
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.model import Configuration, Problem
from tuner.space.space import SearchSpace

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
BOX = re.compile(
    r"for \(int slab = 0; slab < (\d+); \+\+slab\) \{\s*"
    r"(load_box|multicast_box)\((.*?), &map_([ab]), (.*?), (.*?), ready(?:, (.*?))?\);"
)
SAMPLES = 25

Row = tuple[str, int, int]
"""128 bytes of a matrix: its name, column and row."""


def value_of(text: str, names: dict[str, int]) -> int:
    """Evaluate an expression of the template as C does."""
    return int(eval(text.replace("/", "//"), {}, names))  # noqa: S307 - our own source


def constants(source: str) -> dict[str, int]:
    """Evaluate the template's own constants."""
    found: dict[str, int] = {}
    lines = re.findall(r"^\s*constexpr int ([^\n]*);", source, re.MULTILINE)
    for name, value in re.findall(r"(\w+) = ([^,;]+)", "; ".join(lines)):
        try:
            found[name] = value_of(value, found)
        except (NameError, SyntaxError):
            continue  # of something else
    return found


def loads_of(source: str, one_tile: bool) -> tuple[str, str]:
    """Return the part of the source that loads for the block alone, and the one that loads for the cluster."""
    if one_tile:
        shared = definition(source, "load_step")
        return between(source, "int issued = 0;", "wait_for_cluster();"), shared
    alone = between(source, "int ahead = 0;", "if (group == CONSUMERS)")
    return alone, between(source, "if (group == CONSUMERS)", "} else {")


def boxes(text: str, names: dict[str, int]) -> Iterator[tuple[int, str, int, int, list[int]]]:
    """Return address, matrix, corner and receiving blocks of each box that a block asks for."""
    for count, call, to, matrix, x, y, blocks in BOX.findall(text):
        for slab in range(int(count)):
            here = {**names, "slab": slab}
            mask = 1 << names["rank"] if call == "load_box" else value_of(blocks, here)
            corner = value_of(x, here), value_of(y, here)
            yield value_of(to, here), matrix, *corner, [block for block in range(16) if mask >> block & 1]


def received(
    text: str, configuration: Configuration, names: dict[str, int], maps: dict[str, Any]
) -> dict[int, dict[int, Row]]:
    """Return what lies where in a stage of each block of a cluster, after all of them have loaded."""
    values = configuration.values
    cluster_n, split_k = values["cluster_n"], values.get("split_k", 1)
    members = values.get("cluster_m", 1) * cluster_n
    stages: dict[int, dict[int, Row]] = {rank: {} for rank in range(members * split_k)}
    for rank in stages:
        part, member = divmod(rank, members)
        rank_m, rank_n = divmod(member, cluster_n)
        place = {"rank": rank, "part": part, "rank_m": rank_m, "rank_n": rank_n}
        step = {"to_left": 0, "to_right": names["LEFT_BYTES"], "k_first": 100_000, "row": 0, "column": 0}
        for to, matrix, x, y, blocks in boxes(text, {**names, **place, **step}):
            assert to % 1024 == 0, "pieces change places within eight rows"
            for block in blocks:
                for row in range(maps[matrix]["box_rows"]):
                    assert to + row * 128 not in stages[block], "loaded twice"
                    stages[block][to + row * 128] = (matrix, x, y + row)
    return stages


def drawn(name: str, of: Problem) -> list[Configuration]:
    """Draw configurations with clusters."""
    [space] = SearchSpace.from_kernel(GEMM, of, HOPPER, [name]).variants
    rows = random.Random(f"{name} {of}").sample(range(len(space)), min(len(space), 20 * SAMPLES))
    some = map(space.configuration, rows)
    clusters = [one for one in some if one.values.get("cluster_m", 1) * one.values["cluster_n"] > 1]
    assert len(clusters) >= SAMPLES
    return clusters[:SAMPLES]


@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("name", ["wgmma", "wgmma_padded", "wgmma_split_k", "wgmma_skinny_m"])
def test_alone_as_together(name: str, layout: str) -> None:
    sizes = (1001, 1047, 4103) if name == "wgmma_padded" else (100, 1048, 4104)
    of = GEMM.problem(dict(zip("mnk", sizes, strict=True)), {"": "bfloat16"}, {"layout": layout})
    for configuration in drawn(name, of):
        source = rendered(GEMM, of, HOPPER, configuration)
        launch = make_plan(GEMM, of, HOPPER, configuration).launches[-1]
        maps: dict[str, Any] = {}
        for kind, matrix, text in launch.arguments:
            if kind == "map":
                maps.setdefault(matrix.removesuffix("_padded"), json.loads(str(text)))
        names = constants(source)
        alone, together = (
            received(text, configuration, names, maps)
            for text in loads_of(source, one_tile=name in ("wgmma_split_k", "wgmma_skinny_m"))
        )
        assert alone == together
        assert {len(rows) * 128 for rows in alone.values()} == {names["STAGE_BYTES"]}
