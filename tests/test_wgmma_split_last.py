"""gemm on Hopper with a last round that is divided along k, and with a prefetch to the L2, without a GPU."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.sources import between, definition, pieces, rendered
from tests.test_wgmma import SERIALISED
from tests.test_wgmma_boxes import boxes, constants, loads_of, value_of
from tuner.compile.nvrtc import compile_source
from tuner.emulator.host import COMPILER, HostArray, HostKernel, Schedule
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.model import Configuration, Problem, Value
from tuner.space.space import SearchSpace
from tuner.space.validity import invalid_reason
from tuner.tools.small import small_problems

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
DIVIDED: dict[str, Value] = {"stream_k": True, "block_k": 64, "sm_margin": 0, "raster_group": 4}
BEHIND: dict[str, Value] = {**DIVIDED, "epilogue": "overlapped"}
AT_ONCE: dict[str, Value] = {**DIVIDED, "epilogue": "serial"}
TURNS: dict[str, Value] = {**AT_ONCE, "schedule": "pingpong", "block_m": 128, "block_n": 128, "stages": 5}


def problem(m: int, n: int, k: int, layout: str = "nn", dtype: str = "bfloat16") -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": dtype}, {"layout": layout})


def name_of(of: Problem) -> str:
    return "wgmma" if of.sizes["n"] % 8 == of.sizes["k"] % 8 == 0 else "wgmma_padded"


def chosen(name: str, values: dict[str, Value]) -> Configuration:
    return Configuration.of(name, {**GEMM.variants[name].defaults, **values})


def drawn(of: Problem, parameter: str, count: int) -> list[Configuration]:
    """Draw configurations with the parameter on."""
    fixed = {parameter: [True]}
    [space] = SearchSpace.from_kernel(GEMM, of, HOPPER, [name_of(of)], fixed).variants
    rows = random.Random(f"{parameter} {of}").sample(range(len(space)), count)
    return [space.configuration(row) for row in rows]


def source_of(of: Problem, configuration: Configuration) -> str:
    return rendered(GEMM, of, HOPPER, configuration)


def tiles_of(of: Problem, names: dict[str, int]) -> tuple[int, int]:
    m, n = of.sizes["m"], of.sizes["n"]
    return (
        -(-m // names["BLOCK_M"] // names["CLUSTER_M"]),
        -(-n // names["BLOCK_N"] // names["CLUSTER_N"]),
    )


def test_blocks_that_wait_for_each_other_are_in_clusters_that_find_every_sm() -> None:
    of, values = (
        problem(4096, 11008, 4096),
        {**BEHIND, "block_m": 256, "block_n": 128, "swap_ab": True, "stages": 3},
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
    assert clusters(1024, 1024, 1024) == clusters(4104, 4104, 4104) == two  # rows are lines; too many tiles


# -- which block computes what

SHARES = """
extern "C" __global__ void shares(int* out, int tiles, int workers, int steps, int PARTS) {
    @WORK@
    out[0] = items;
    out[1] = parts;
    int* row = out + 2;
    for (int item = 0; item < items; ++item, row += 6) {
        const Work work = work_of(item);
        @MINE@
        const int found[6] = {work.tile, work.part, work.begin, work.end, mine, mine_end};
        for (int i = 0; i < 6; ++i) row[i] = found[i];
    }
}
"""


def divided(rng: random.Random) -> tuple[int, int, int, int]:
    """Draw tiles, workers, steps, and parts of C: as the constraints allow, and beyond."""
    workers = rng.choice([1, 2, 3, 7, 16, 66, 131, 132])
    rounds, last = rng.randint(0, 3), rng.randint(0, workers // 2 if rng.random() < 0.8 else workers - 1)
    return (
        max(rounds * workers + last, 1),
        workers,
        rng.choice([1, 2, 5, 16, 17, 64, 1000]),
        rng.randint(1, 8),
    )


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_every_step_of_every_tile_is_somebodys(tmp_path: Path) -> None:
    """The template's own lines, for far more shapes than a launch could be made for."""
    of = problem(3000, 3000, 3000)
    source = source_of(of, drawn(of, "stream_k", 1)[0])
    work = between(source, "    const int last_round =", "    int ahead = 0;")
    [mine] = re.findall(r"const int mine = .*;", source)
    host = HostKernel(SHARES.replace("@WORK@", work).replace("@MINE@", mine), "shares", tmp_path)
    rng = random.Random(0)
    for _ in range(400):
        tiles, workers, steps, most = divided(rng)
        out = HostArray(2 + 6 * (tiles + most * workers), "int32")
        host(1, 1, 0, Schedule(), out, *(np.int32(number) for number in (tiles, workers, steps, most)))
        items, parts = map(int, out.elements[:2])
        rows = out.elements[2 : 2 + 6 * items].reshape(items, 6).tolist()
        where = (tiles, workers, steps, most)
        last = tiles % workers
        assert items == tiles + last * (parts - 1) and last * parts <= workers and parts <= steps, where
        assert items - (tiles - last) <= workers, "no worker has two parts"
        done = np.zeros((tiles, steps), int)
        owned = np.zeros((tiles, most), int)
        for item, (tile, _, begin, end, first, behind) in enumerate(rows):
            assert begin < end, where
            done[tile, begin:end] += 1
            if item >= tiles - last:
                assert first < behind, "a part of k without a part of C"
                owned[tile, first:behind] += 1
            else:
                assert (begin, end) == (0, steps), where
        assert (done == 1).all(), where
        assert (owned[tiles - last :] == 1).all() and not owned[: tiles - last].any(), where
        assert len({(tile, part) for tile, part, *_ in rows}) == items, "a slot that two write to"


# -- the exchange

# Items as the kernel goes through them. Instead of products the number of steps, times one for each element of C.
EXCHANGE = """
extern "C" __global__ void last_round(T* c, float4* partials, unsigned int* counters, int* seen, int* corners, int m, int n, int k) {
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const int group_first = PINGPONG ? 0 : group * GROUP_ROWS;
    const int rank = blockIdx.x % MEMBERS, rank_m = rank / CLUSTER_N, rank_n = rank % CLUSTER_N;
    @WORK@
    auto place = [&](int left, int right, int row, int column) {
        return @SWAP@ ? static_cast<long long>(row + right) * n + column + left : static_cast<long long>(row + left) * n + column + right;
    };
    auto inside = [&](int left, int right, int row, int column) {
        return @SWAP@ ? row + right < m && column + left < n : row + left < m && column + right < n;
    };
    [[maybe_unused]] auto store = [&](const unsigned int* pairs, int width, int column, int row) {
        for (int j = 0; j < width / 2; ++j) {
            const int left = 16 * warp + lane / 4 + j / 2 % 2 * 8, right = j / 4 * 8 + lane % 4 * 2 + j % 2;
            if (inside(left, right, row, column)) c[place(left, right, row, column)].bits = pairs[j / 2] >> j % 2 * 16;
        }
    };
    [[maybe_unused]] auto store_part = [&](const unsigned int* pairs, int x, int y) { store(pairs, 64, x, y); };
    [[maybe_unused]] auto store_rest = [&](const unsigned int* pairs, int x, int y) { store(pairs, RIGHT % 64, x, y); };
    int number = 0;
    for (int item = worker; item < items; item += workers) {
        if (PINGPONG && number++ % 2 != group) continue;
        @ITEM@
        if (threadIdx.x % 128 == 0 && group_first == 0) {
            if (rank == 0) for (int step = begin; step < end; ++step) ++seen[work.tile * steps + step];
            corners[(work.tile * MEMBERS + rank) * 2] = row;
            corners[(work.tile * MEMBERS + rank) * 2 + 1] = column;
        }
        if (item < whole) continue;
        float sums[MMAS][RIGHT / 2];
        for (int i = 0; i < MMAS; ++i) {
            for (int j = 0; j < RIGHT / 2; ++j) {
                const int left = group_first + i * 64 + 16 * warp + lane / 4 + j / 2 % 2 * 8, right = j / 4 * 8 + lane % 4 * 2 + j % 2;
                const int y = row + (@SWAP@ ? right : left), x = column + (@SWAP@ ? left : right);
                sums[i][j] = (end - begin) * ((y * 3 + x * 5) % 8 + 1);
            }
        }
        @SHARED@
    }
}
"""  # noqa: E501
PIECES = """
{% include "common/types.cuh.j2" %}
@CONSTANTS@
@FUNCTIONS@
{% set swap = @SWAP@ %}
{% if not swap %}
{% include "gemm/store_sums.cuh.j2" %}
{% endif %}
{% include "gemm/exchange.cuh.j2" %}
@WALK@
"""
EXCHANGES: dict[str, dict[str, Value]] = {
    "overlapped": {**BEHIND, "block_m": 128, "block_n": 256, "stages": 3},
    "behind, B on the left": {**BEHIND, "swap_ab": True, "block_m": 208, "block_n": 128, "stages": 4},
    "three multiply": {**BEHIND, "block_m": 192, "block_n": 128, "stages": 4, "consumers": 3},
    "pairs along m": {**AT_ONCE, "block_m": 128, "block_n": 208, "stages": 4, "cluster_m": 2},
    "pairs along n": {**AT_ONCE, "swap_ab": True, "block_m": 176, "block_n": 128, "stages": 4, "cluster_n": 2},
    "two instructions wide": {**AT_ONCE, "block_m": 64, "block_n": 320, "stages": 3, "consumers": 1},
    "taking turns": TURNS,
    "taking turns, pairs": {**TURNS, "swap_ab": True, "block_m": 160, "cluster_n": 2, "raster": "along_n"},
}  # fmt: skip


def few_sms(of: Problem, configuration: Configuration) -> int:
    """Find a number of SMs, few enough to run on the CPU, that leaves a last round to be divided."""
    for count in range(7, 40):
        if holds(of, configuration, count):
            return count
    raise AssertionError(f"no last round of {configuration} is short")


def holds(of: Problem, configuration: Configuration, sm_count: int) -> bool:
    variant = GEMM.variants[configuration.variant]
    names = {**GEMM.environment(of, replace(HOPPER, sm_count=sm_count)), **configuration.values}
    return all(condition.holds(names) for _, condition in variant.constraints_before)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(
    ("name", "padded"),
    [
        (name, padded)
        for name in EXCHANGES
        for padded in (False, True)
        if (name, padded) != ("overlapped", True)
    ],
)
def test_parts_are_added_up_once(name: str, padded: bool, tmp_path: Path) -> None:
    """The exchange of sums, in orders drawn from a seed: C is whole, and the counters are zero again.

    Scratch memory has the size that the launch gives it, ends where its pages end, and starts as NaNs.
    """
    m, n, k = (999, 1405, 1030) if padded else (999, 1400, 1024)
    of = problem(m, n, k)
    configuration = chosen(name_of(of), EXCHANGES[name])
    gpu = replace(HOPPER, sm_count=few_sms(of, configuration))
    source = source_of(of, configuration)
    kernel = source[source.index('extern "C"') :]
    work = between(kernel, "    const int tiles_m", "    int ahead = 0;")
    # The loading thread and those that multiply ask alike what an item is.
    first, *others = re.findall(r"const Work work = work_of\(\w+\);.*?BLOCK_N;\n", kernel, re.DOTALL)
    assert [" ".join(one.replace("item", "worker").split()) for one in others] == [
        " ".join(first.split())
    ] * 2
    swap = "true" if configuration.values["swap_ab"] else "false"
    shared = between(kernel, "constexpr int PIECES", "break;")
    parts = {"WORK": work, "ITEM": others[-1], "SHARED": shared, "SWAP": swap}
    text = EXCHANGE
    for key, part in parts.items():
        text = text.replace(f"@{key}@", part)
    parts = {
        "SWAP": swap,
        "CONSTANTS": between(source, "using T =", "__device__"),
        "FUNCTIONS": "".join(definition(source, name) for name in ("sync_groups", "round_part")),
        "WALK": definition(source, "Tile") + definition(source, "tile_of"),
    }
    before = PIECES
    for key, part in parts.items():
        before = before.replace(f"@{key}@", part)
    host = HostKernel(
        pieces(GEMM, of, HOPPER, configuration, before, tmp_path) + text, "last_round", tmp_path
    )
    plan = make_plan(GEMM, of, gpu, configuration)
    launch = plan.launches[-1]
    memory = {
        b.name: HostArray(b.count, b.dtype, 256) for b in plan.scratch if b.name in ("partials", "counters")
    }
    memory["counters"].elements[:] = 0
    names = constants(source)
    members, tile = names["MEMBERS"], (names["BLOCK_M"], names["BLOCK_N"])
    tiles_m, tiles_n = tiles_of(of, names)
    steps, tiles, workers = -(-k // 64), tiles_m * tiles_n, launch.grid[0] // members
    last = tiles % workers
    shares = min(workers // last, names["PARTS"])
    assert shares > 1
    for seed in range(2):  # the second launch finds what the first has left
        c = HostArray(m * n, "bfloat16", 16)
        seen, corners = HostArray(tiles * steps, "int32", 4), HostArray(tiles * members * 2, "int32", 4)
        seen.elements[:] = 0
        scratch = memory["partials"], memory["counters"]
        scratch[0].elements[:] = np.nan
        threads = 128 * names["CONSUMERS"]
        numbers = (np.int32(m), np.int32(n), np.int32(k))
        schedule = Schedule(seed, shuffled=True)
        host(launch.grid[0], threads, 0, schedule, c, *scratch, seen, corners, *numbers)
        assert (seen.elements == 1).all(), "a step of a tile more than once, or never"
        assert not scratch[1].elements.any(), "the next launch finds counts"
        # Each writes all but its own share of the tile: slots that overlapped would hold fewer numbers.
        written = np.count_nonzero(~np.isnan(scratch[0].elements))
        assert written == (shares - 1) * last * members * tile[0] * tile[1]
        expected = np.full((m, n), np.nan, np.float32)
        y, x = np.mgrid[0:m, 0:n]
        right = steps * ((y * 3 + x * 5) % 8 + 1)
        for row, column in (
            corners.elements.reshape(tiles, members, 2)[tiles - last :].reshape(-1, 2).tolist()
        ):
            here = slice(row, row + tile[0]), slice(column, column + tile[1])
            expected[here] = right[here]
        assert np.array_equal(c.numbers.reshape(m, n), expected, equal_nan=True)


# -- what is asked of the L2

SMALL = {"nn": (600, 1000, 1544), "nt": (700, 1288, 1160)}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("layout", SMALL)
def test_each_box_is_asked_for_by_one(layout: str, padded: bool) -> None:
    """Of all blocks together: what the ring has no room for yet, nothing twice, and nothing else."""
    m, n, k = (size + padded for size in SMALL[layout])
    of = problem(m, n, k, layout)
    for configuration in drawn(of, "prefetch", 8):
        source = source_of(of, configuration)
        alone, _ = loads_of(source, one_tile=False)
        loading, begins, fetching = alone.partition("for (int step = begin + ahead; step < end;")
        asked_a, asked_b = turns(fetching)
        names = constants(source)
        tiles_m, tiles_n = tiles_of(of, names)
        steps = -(-of.sizes["k"] // names["BLOCK_K"])
        members = names["MEMBERS"]
        assert tiles_m * tiles_n * members <= HOPPER.sm_count, "one tile a block"
        ahead = min(steps, 2 if members > 1 else names["STAGES"])
        assert begins
        asked: Counter[tuple[str, int, int]] = Counter()
        needed: set[tuple[str, int, int]] = set()
        for block in range(tiles_m * tiles_n * members):
            tile, rank = divmod(block, members)
            tile_m, tile_n = divmod(tile, tiles_n)
            rank_m, rank_n = divmod(rank, names["CLUSTER_N"])
            here = {**names, "tiles_m": tiles_m, "tiles_n": tiles_n, "rank": rank, "rank_m": rank_m}
            here |= {"rank_n": rank_n, "tile_m": tile_m, "tile_n": tile_n, "to_left": 0, "to_right": 0}
            here |= {"row": (tile_m * names["CLUSTER_M"] + rank_m) * names["BLOCK_M"]}
            here |= {"column": (tile_n * names["CLUSTER_N"] + rank_n) * names["BLOCK_N"]}
            for step in range(ahead, steps):
                here |= {"step": step, "k_first": step * names["BLOCK_K"]}
                needed |= {box[1:4] for box in boxes(loading, here)}
                for turn, text in (asked_a, asked_b):
                    if eval(turn.replace("tile.", "tile_"), {}, here):  # noqa: S307 - our own source
                        asked.update(fetched(text, here))
        assert set(asked) == needed and set(asked.values()) == {1}, configuration


def turns(text: str) -> Iterator[tuple[str, str]]:
    """Return when a block asks for a tile of A, and how; then the same of B."""
    parts = re.split(r"if \((step % .*)\) \{\n", text)
    assert len(parts) == 5
    yield from zip(parts[1::2], parts[2::2], strict=True)


def fetched(text: str, names: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """Return matrix and corner of each box that is asked for."""
    [slabs] = re.findall(r"slab < (\d+);", text)
    [count] = re.findall(r"box < (\d+);", text)
    [(matrix, x, y)] = re.findall(r"fetch_box\(&map_([ab]), (.*?), (.*?)\);", text)
    for slab in range(int(slabs)):
        for box in range(int(count)):
            here = {**names, "slab": slab, "box": box}
            yield matrix, value_of(x, here), value_of(y, here)


def test_only_where_a_block_has_one_tile() -> None:
    of = problem(600, 1000, 1544)
    [one, *_] = drawn(of, "prefetch", 1)
    assert holds(of, one, HOPPER.sm_count)
    assert not holds(of, one, 4), "there are more tiles than SMs"
    assert not holds(problem(600, 1000, 64), one, HOPPER.sm_count), "there is no more than the stages hold"


# -- turns, constraints, and what the compiler says


@pytest.mark.parametrize("stream_k", [False, True])
@pytest.mark.parametrize("inflight", [0, 1])
def test_hands_change_while_the_last_products_are_made(inflight: int, stream_k: bool) -> None:
    """Behind the products' commit, so that the other's are queued behind them, and before they are waited for."""
    of = problem(3000, 3000, 3000)
    values = {**TURNS, "mma_inflight": inflight, "stream_k": stream_k}
    source = source_of(of, chosen("wgmma", values))
    loop = source[source.index("begin_multiplying();\n") :]
    assert loop.count("let_go(8 + (group ^ 1), 256);") == 1
    assert (
        loop.index("commit_products();")
        < loop.index("let_go(8 + (group ^ 1), 256);")
        < loop.index("wait_products<0>();")
    )


@pytest.mark.parametrize(
    ("tiles", "allowed"),
    [(132 + 1, True), (132 + 66, True), (132 + 67, False), (2 * 132, False), (66, False)],
)
def test_refused_where_the_last_round_is_long_or_none(tiles: int, allowed: bool) -> None:
    """Of 132 SMs: with work for half of them each tile can have two."""
    configuration = chosen("wgmma", {**BEHIND, "block_m": 128, "block_n": 256, "stages": 3})
    of = problem(128, 256 * tiles, 4096)
    assert holds(of, configuration, 132) == allowed
    assert not holds(problem(128, 256 * tiles, 192), configuration, 132), "parts of a few steps"
    pairs = chosen("wgmma", {**configuration.values, "cluster_n": 2})
    assert holds(problem(128, 512 * tiles, 4096), pairs, 264) == allowed


@pytest.mark.parametrize("sizes", [(1024, 1024, 4096), (3000, 3000, 3000)])
def test_two_parts_of_c_at_least(sizes: tuple[int, int, int]) -> None:
    """A part of k that has no part of C to write would never be added up.

    A product of steps and parts is an int: of steps, the deepest matrix that sizes of 32 bits allow has 2^25.
    """
    of = problem(*sizes)
    for configuration in drawn(of, "stream_k", 40):
        assert 2 <= constants(source_of(of, configuration))["PARTS"] < 64, configuration


SHAPES = {
    "wgmma": [(4096, 11008, 4096), (3000, 3000, 3000), (1536, 2304, 4096)],
    "wgmma_padded": [(4095, 4097, 4093), (5000, 3001, 4096), (4096, 4102, 2050)],
}
LAYOUTS = (("bfloat16", "nn"), ("float16", "nt"))


@pytest.mark.parametrize(("dtype", "layout"), LAYOUTS)
@pytest.mark.parametrize("name", SHAPES)
def test_no_spills_and_no_serialised_instructions(name: str, dtype: str, layout: str) -> None:
    """Of random ones fewer than one in fifty spills; of these, which are always the same, none does."""
    spilled: list[Configuration] = []
    for sizes in SHAPES[name]:
        of = problem(*sizes, layout, dtype)
        for configuration in drawn(of, "stream_k", 2):
            spilled += compiled(of, configuration)
    odd = int(name == "wgmma_padded")
    of = problem(1024, 1000 + odd, 1544 + odd, layout, dtype)
    for configuration in drawn(of, "prefetch", 2):
        spilled += compiled(of, configuration)
    assert not spilled


def compiled(of: Problem, configuration: Configuration) -> list[Configuration]:
    *_, (source, entry) = render(GEMM, of, HOPPER, configuration)
    result = compile_source(source, entry, HOPPER.arch)
    assert not any(code in result.log for code in SERIALISED), (configuration, result.log)
    return [configuration] if result.resources.spill_bytes or result.resources.stack_bytes else []


# -- where a tool that is a hundred times slower looks at it


def test_a_sanitizer_sees_a_divided_round_of_a_short_product() -> None:
    """No size around its tile has a last round to divide; its own size would take a sanitizer minutes."""
    own = problem(4096, 11008, 4096)
    winner = chosen("wgmma", {**BEHIND, "block_m": 256, "block_n": 128, "swap_ab": True, "block_k": 128})
    found = small_problems(own, winner, lambda one: not invalid_reason(GEMM, one, HOPPER, winner), 2)
    assert len(found) == 2
    for one in found:
        m, n, k = (one.sizes[name] for name in "mnk")
        assert not invalid_reason(GEMM, one, HOPPER, winner) and m * n * k < 4096 * 11008 * 4096 / 50
        assert (m % 256 or n % 128) and -(-m // 256) * -(-n // 128) % HOPPER.sm_count > 0
