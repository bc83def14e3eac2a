"""Edge-case sizes: every configuration has some, around its tile."""

from __future__ import annotations

import json
import math
import random
from itertools import chain, islice
from pathlib import Path

import pytest

from scripts.calling.cases import of_today
from tuner.core.model import Configuration, Problem, Value
from tuner.kernel.edge_sizes import (
    ALIGNED,
    MAX_ELEMENTS,
    MAX_ELEMENTS_BETWEEN,
    VERIFIED_PROBLEMS,
    edge_case_problems,
    intermediate_problems,
    larger_problems,
    near_problems,
    no_larger,
    tile_edge_problems,
    tile_product_problems,
    whole_problems,
    with_other_scalars,
)
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]
EVIDENCE = Path(__file__).resolve().parents[2] / "results" / "evidence"


def product(m: int, n: int, k: int, layout: str = "nn") -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": "float16"}, {"layout": layout})


def both(of: Problem, configuration: Configuration) -> list[Problem]:
    return [*tile_edge_problems(of, configuration), *tile_product_problems(of, configuration)]


@pytest.mark.parametrize("values", [{}, {"cached": True}])
def test_a_configuration_without_a_length_has_some_too(values: dict[str, Value]) -> None:
    one = Configuration("plain", tuple(values.items()))
    for cases in (
        tile_edge_problems(product(64, 64, 64), one),
        tile_product_problems(product(64, 64, 64), one),
    ):
        assert len({tuple(p.sizes.values()) for p in cases}) == len(cases) >= VERIFIED_PROBLEMS


def test_products_of_two_parameters_are_lengths_too() -> None:
    parts = Configuration("split", (("block_k", 64), ("parts", 16), ("stages", 3)))
    near, wide = (
        set(chain(*(p.sizes.values() for p in make(product(100, 100, 100), parts))))
        for make in (tile_edge_problems, tile_product_problems)
    )
    assert not {1023, 1025} & near and {1023, 1025, 191, 193, 47, 49} <= wide
    of = Problem("sum", {"n": 100}, {})
    verified = edge_case_problems(of, parts, lambda case, _: case.sizes["n"] > 200)
    assert {1023, 1025} <= {case.sizes["n"] for case in islice(verified, VERIFIED_PROBLEMS)}


@pytest.mark.parametrize(
    ("variant", "layout", "fewest"), [("gemv_columns", "nn", 1), ("wgmma_skinny_m", "nn", 8)]
)
def test_what_is_for_one_row_is_verified_with_one_row(variant: str, layout: str, fewest: int) -> None:
    of = product(1, 8192, 8192, layout)
    (space,) = SearchSpace.from_kernel(GEMM, of, HOPPER, [variant]).variants
    for row in random.Random(1).sample(range(len(space)), 8):
        one = space.configuration(row)
        fitting = [p for p in both(of, one) if not invalid_reason(GEMM, p, HOPPER, one)]
        assert len(fitting) >= fewest, one
        assert any(p.sizes["m"] == 1 for p in fitting), one


@pytest.mark.parametrize(
    ("sizes", "epilogue"), [((4096, 11008, 4096), "overlapped"), ((3000, 3000, 3000), "serial")]
)
def test_what_needs_many_tiles_is_verified_beside_its_own_size(
    sizes: tuple[int, int, int], epilogue: str
) -> None:
    of = product(*sizes)
    fixed = {"stream_k": [True], "epilogue": [epilogue]}
    (space,) = SearchSpace.from_kernel(GEMM, of, HOPPER, ["wgmma"], fixed).variants
    for row in random.Random(1).sample(range(len(space)), 10):
        one = space.configuration(row)
        assert any(not invalid_reason(GEMM, p, HOPPER, one) for p in near_problems(of)), one


def tiles_of(of: Problem, one: Configuration) -> int:
    rows, columns = (
        -(-of.sizes[size] // int(one.values[block])) for size, block in (("m", "block_m"), ("n", "block_n"))
    )
    return rows * columns


@pytest.mark.parametrize(("layout", "count"), [("nn", 16), ("nt", 16), ("tn", 3), ("tt", 3)])
def test_published_winners_have_all_their_edge_case_sizes(layout: str, count: int) -> None:
    """None is verified at its own size only, however many tiles it is for."""
    raced = json.loads((EVIDENCE / "gemm-shapes.json").read_text())["problems"]
    chosen = [one for one in raced if one["layout"] == layout]
    assert len(chosen) == count
    for winner in chosen:
        sizes, dtypes = {name: winner[name] for name in "mnk"}, {"": winner["dtype"]}
        of = GEMM.problem(sizes, dtypes, {"layout": layout})
        one = of_today(GEMM, winner["search"]["variant"], winner["search"]["parameters"])
        assert one is not None
        fitting = edge_case_problems(of, one, lambda p, one: not invalid_reason(GEMM, p, HOPPER, one))
        cases = list(islice(fitting, VERIFIED_PROBLEMS))
        assert len(set(map(str, cases))) == len(cases) == VERIFIED_PROBLEMS, str(of)
        if "block_n" in one.values and tiles_of(of, one) > HOPPER.sm_count:  # blocks have several
            assert sum(tiles_of(p, one) > HOPPER.sm_count for p in cases) >= 4, str(of)


def test_intermediate_problems_are_off_round_sizes_and_not_too_large() -> None:
    of = product(16384, 16384, 16384)
    cases = intermediate_problems(of)
    works = [math.prod(p.sizes.values()) for p in cases]
    assert len(set(map(str, cases))) == len(cases) > 100
    for half in (works[: len(works) // 2], works[len(works) // 2 :]):
        assert half == sorted(half, reverse=True)
        assert MAX_ELEMENTS_BETWEEN / 4 < half[0] <= MAX_ELEMENTS_BETWEEN and half[-1] > MAX_ELEMENTS
    assert {size % 16 for p in cases for size in p.sizes.values()} == {0, 1, 2, 8, 14, 15}
    assert any(all(size % 64 == 0 for size in p.sizes.values()) for p in cases)
    assert intermediate_problems(of) == cases and not intermediate_problems(product(3, 1, 7))
    few = intermediate_problems(product(1, 8192, 8192))
    assert len(few) > 50 and {p.sizes["m"] for p in few} == {1}
    assert all(max(p.sizes.values()) <= 8192 for p in few)
    huge = intermediate_problems(product(65536, 65536, 65536))
    assert len(huge) > 50 and all(math.prod(p.sizes.values()) <= MAX_ELEMENTS_BETWEEN for p in huge)


def test_half_vectors_and_larger_sizes_are_among_those_of_a_winner() -> None:
    """What is right at odd lengths and at whole vectors may be wrong between; or has room for its own size alone."""
    of, tile = Problem("sum", {"n": 1 << 20}, {}), Configuration("tiled", (("block_size", 256),))
    sizes = [
        one.sizes["n"] for one in islice(edge_case_problems(of, tile, lambda *_: True), VERIFIED_PROBLEMS)
    ]
    assert {n % 4 for n in sizes} == {0, 1, 2, 3} and max(sizes) == (1 << 21) - ALIGNED
    assert max(p.sizes["m"] for p in larger_problems(product(400, 300, 7))) == 800 - ALIGNED
    assert not larger_problems(product(4096, 4096, 4096)), "references would take long"


TILED = """\
kernel = { name = "tiled" }
problem.sizes = { rows = 4096, columns = @COLUMNS@ }
problem.dtypes = { input = "float32" }
problem.presets.p = { rows = 99, columns = 77 }
tensors.x = { shape = ["rows", "columns"], dtype = "input", role = "inout" }
reference = { numpy = "2 * x" }
work = { bytes = "8 * rows * columns" }
variants.v.parameters = { tile = { values = [48] }, depth = { values = [7] }, parts = { values = [4] } }
variants.v.constraints."the sizes" = "@SIZES@"
[[variants.v.launches]]
template = "tiled.cu"
entry = "tiled"
arguments = ["x"]
grid = ["ceil_div(rows, tile)"]
block = [32]
"""


@pytest.mark.parametrize(
    ("sizes", "columns", "fewest"),
    [
        ("rows % 256 == 0 and columns % tile == 0", 4080, 12),
        ("rows % 256 == 0 and columns % (tile * depth * parts) == 0", 48 * 7 * 4 * 3, 12),
        ("is_pow2(rows) and is_pow2(columns)", 4096, 12),
        ("rows == columns and rows % 1024 == 0", 4096, 2),
        ("columns == rows // 8 and rows % 512 == 0", 512, 1),
        ("rows == 4096 and (columns == 4096 or columns == 500 or columns == 12345)", 4096, 2),
        ("rows == 4096 and columns == 4096", 4096, 0),
    ],
)
def test_sizes_are_found_that_constraints_admit(
    sizes: str, columns: int, fewest: int, tmp_path: Path
) -> None:
    (tmp_path / "tiled.cu").write_text("")
    (tmp_path / "tiled.toml").write_text(TILED.replace("@SIZES@", sizes).replace("@COLUMNS@", str(columns)))
    kernel = read_kernel(tmp_path / "tiled.toml")
    of, one = kernel.problem(), Configuration.of("v", kernel.variants["v"].defaults)
    assert not invalid_reason(kernel, of, HOPPER, one)
    cases = edge_case_problems(of, one, lambda p, one: not invalid_reason(kernel, p, HOPPER, one), kernel)
    found = [case.sizes for case in islice(cases, VERIFIED_PROBLEMS)]
    assert of.sizes not in found
    assert len(found) >= fewest and bool(found) == bool(fewest)
    if fewest == VERIFIED_PROBLEMS:
        assert min(math.prod(case.values()) for case in found) < math.prod(of.sizes.values()) / 8


def test_of_what_leaves_no_rest_there_is_each_kind() -> None:
    """Whole tiles that are not square, powers of two, and each length of 1 beside longer ones."""
    tile = next(
        c for c in SearchSpace.from_kernel(GEMM, product(100, 100, 100), HOPPER, ["tiled"]).configurations()
    )
    cases = whole_problems(product(100, 100, 100), tile, lambda _: True, GEMM)
    sizes = [tuple(case.sizes.values()) for case in cases]
    assert len(set(sizes)) == len(sizes)
    lengths = [value for _, value in tile.parameters if isinstance(value, int) and value > 1]
    assert any(len(set(one)) > 1 and not any(side % n for side in one for n in lengths) for one in sizes)
    assert any(min(one) > 1 and all(side & side - 1 == 0 for side in one) for one in sizes)
    assert all(any(one[i] == 1 < min(one[:i] + one[i + 1 :]) for one in sizes) for i in range(3))


def test_a_slow_reference_gets_no_size_with_more_elements() -> None:
    """The longest side around a tile would be that of a matrix of 64 times as many elements."""
    of, tile = product(512, 512, 512), Configuration.of("tiled", {"block": 4096})
    fits = no_larger(of, GEMM, HOPPER, lambda case, configuration: True)
    cases = list(islice(edge_case_problems(of, tile, fits, GEMM), VERIFIED_PROBLEMS))
    assert len(cases) == VERIFIED_PROBLEMS
    most = 2 * 3 * 512 * 512
    assert all(m * k + k * n + m * n <= most for m, n, k in (case.sizes.values() for case in cases))
    assert not fits(product(1024, 1024, 1024), tile) and fits(product(4095, 7, 9), tile)


@pytest.mark.parametrize(
    ("scalars", "reference", "others"),
    [
        ("a = 2.0, b = -8.0", "numpy = 'a * x + b'", {"a": 1.5, "b": -5.0}),
        ("a = 2.0, zero = 0.0", "numpy = 'a * x + zero'", {"a": 1.5}),
        ("a = 2.0, inverse = 0.5", "numpy = 'a * x'", {}),
        ("a = 2.0", "python = 'of.py:scaled'", {"a": 1.5}),
        ("a = 2.0", "python = 'of.py:doubled'", {}),
    ],
)
def test_scalars_are_others_where_the_reference_takes_all_of_them(
    scalars: str, reference: str, others: dict[str, float], tmp_path: Path
) -> None:
    (tmp_path / "of.py").write_text("def scaled(x, *, a): return a * x\ndef doubled(x): return 2 * x\n")
    (tmp_path / "k.cu").write_text("// nothing is compiled\n")
    named = [one.split(" = ") for one in scalars.split(", ")]
    given = "".join(f"scalars.{name} = {{ dtype = 'float32', value = '{value}' }}\n" for name, value in named)
    (tmp_path / "k.toml").write_text(f"""kernel = {{ name = 'k' }}
problem = {{ sizes = {{ n = 64 }}, dtypes = {{ input = 'float32' }} }}
tensors.x = {{ shape = ['n'], dtype = 'input' }}
tensors.y = {{ shape = ['n'], dtype = 'input', role = 'output' }}
{given}reference = {{ {reference} }}
[[variants.plain.launches]]
template = 'k.cu'
entry = 'k'
arguments = ['x', 'y', {", ".join(repr(name) for name, _ in named)}]
grid = [1]
block = [64]
""")
    kernel = read_kernel(tmp_path / "k.toml")
    problem = with_other_scalars(kernel, kernel.problem(), HOPPER)
    assert problem.scalars == others
    plan = make_plan(kernel, problem, HOPPER, Configuration.of("plain", {}))
    passed = [value for kind, _, value in plan.launches[0].arguments if kind == "scalar"]
    assert passed == [others.get(name, float(value)) for name, value in named]
    assert all(f"{name}={value}" in str(problem) for name, value in others.items())
