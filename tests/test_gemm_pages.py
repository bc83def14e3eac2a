"""The pages of gemm, and what the README says of it: tables and sentences are those of the evidence."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from tests.pages import EVIDENCE, PAGES, ROOT, Table, contests, ladder, measured, prose, seconds, tables
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.model import Configuration
from tuner.search.kernel_initial import settle
from tuner.space.space import SearchSpace

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import kernel_tables

pytestmark = pytest.mark.skipif(not EVIDENCE.is_dir(), reason="needs the evidence of a checkout")

IN_THE_README = (
    *((8192, 8192, 8192), (4096, 4096, 4096), (512, 512, 512), (4096, 11008, 4096)),
    *((1, 8192, 8192), (512, 512, 65536), (4095, 4097, 4093)),
)


def test_gemm() -> None:
    assert measured("gemm") == [ladder("gemm")]


def test_gemm_on_hopper() -> None:
    """Where it fails: scripts/run python scripts/kernel_tables.py writes the tables anew."""
    assert kernel_tables.filled(kernel_tables.PAGE.read_text()) == kernel_tables.PAGE.read_text()


def test_gemm_on_hopper_names_every_parameter() -> None:
    page = kernel_tables.PAGE.read_text()
    variants = [v for v in load_kernel("gemm").variants.values() if v.name.startswith("wgmma")]
    assert variants
    named = {name for variant in variants for name in variant.parameters} - {"block_m", "block_n"}
    assert {name for name in named if f"`{name}`" not in page} == set()
    known = {name for v in load_kernel("gemm").variants.values() for name in (v.name, *v.parameters)}
    assert set(re.findall(r"`([a-z0-9]+_[a-z0-9_]+)`", page)) <= known  # none that is gone


def test_tables_of_gemm_are_made_of_the_evidence(tmp_path: Path) -> None:
    text = "".join(
        f"<!-- measured: {name} -->\nold\n<!-- end -->\n"
        for name in ("shapes bfloat16", "shapes float16", "ablation wgmma")
    )
    unmeasured = kernel_tables.filled(text, tmp_path)
    assert unmeasured.count("Not measured yet") == 3 and "old" not in unmeasured
    rivals = {
        "torch": {"ratio": 1.10, "verdict": "faster"},
        "cublaslt": {"ratio": 1.002, "verdict": "same"},
    }
    race = {
        "ours": {"time_ns": 1.7e5, "tflops": 801.26},
        "rivals": rivals,
        "mode": "cold",
        "variant": "wgmma",
    }
    shape = {
        "dtype": "bfloat16",
        "layout": "nn",
        "m": 8,
        "n": 16,
        "k": 24,
        "race": race,
        "search": {"seconds": 18.4},
    }
    odd = {**shape, "k": 23, "race": {**race, "rivals": {"torch": {"ratio": 4.0, "verdict": "faster"}}}}
    problems = [{**shape, "sustained": {"rivals": rivals}}, {**odd, "sustained": {}}]
    (tmp_path / "gemm-shapes.json").write_text(json.dumps({"gpu": "NVIDIA H200", "problems": problems}))
    others = [
        {"value": 3, "besides": {}, "unsearched": "", "ratio": 1.03, "verdict": "faster"},
        {"value": 2, "besides": {}, "unsearched": "", "ratio": 1.2, "verdict": "faster"},
        {"value": 5, "besides": {}, "ratio": None, "verdict": None},
    ]
    stages = {"parameter": "stages", "value": 4, "worth": 1.03, "alternatives": others}
    group = {
        "parameter": "group",
        "value": 8,
        "worth": 1.001,
        "alternatives": [{**others[0], "unsearched": "small", "verdict": "same"}],
    }
    deeper = {"value": 128, "besides": {"stages": 2}, "unsearched": "", "ratio": 0.98, "verdict": "slower"}
    pair = {"parameter": "block_n", "value": 256, "worth": 0.98, "alternatives": [deeper]}
    alone = {"parameter": "block_k", "value": 64, "worth": None, "alternatives": [others[2]]}
    found = {
        **{"variant": "wgmma", "gpu": "NVIDIA H200", "mode": "cold", "regime": "rested"},
        "problem": {"sizes": {"m": 8, "n": 16, "k": 24}, "dtypes": {"input": "bfloat16"}},
        "choices": [alone, pair, group, stages],
    }
    (tmp_path / "gemm-ablation.json").write_text(json.dumps([found]))
    measured = kernel_tables.filled(text, tmp_path)
    assert (
        "| 8 x 16 x 24 | cold | 170.00 | 801.3 | 1.100, faster | 1.002, same | 1.100 | 18 s | `wgmma` |"
        in measured
    )
    assert "| 8 x 16 x 23 | cold | 170.00 | 801.3 | 4.000, faster | - | - | 18 s | `wgmma` |" in measured
    assert "over the 1 shapes with whole rows, against torch.mm: **1.100**" in measured
    lines = [line for line in measured.splitlines() if line.startswith("| `")]
    assert lines == [
        "| `stages` | 4; 3: 1.030 |",
        "| `group` | 8; 3 *: same |",
        "| `block_n` | 256; 128 with stages 2: 0.980, better |",
        "| `block_k` | 64; no other is valid |",
    ]
    assert measured.count("Not measured yet") == 1  # float16


def problems_of(file: str) -> list[dict[str, Any]]:
    problems: list[dict[str, Any]] = json.loads((EVIDENCE / file).read_text())["problems"]
    return problems


def whole_rows(dtype: str) -> list[dict[str, dict[str, Any]]]:
    """Return the rivals of each of the fifteen products whose rows are whole 16 bytes."""
    found = [
        one["race"]["rivals"]
        for one in problems_of("gemm-shapes.json")
        if one["dtype"] == dtype and one["n"] % 8 == one["k"] % 8 == 0
    ]
    assert len(found) == 15
    return found


def mean(dtype: str, *rivals: str) -> str:
    """Return the geometric mean of the time of torch.mm over ours, or of the faster of several rivals."""
    ratios = (min(beside[rival]["ratio"] for rival in rivals or ("torch",)) for beside in whole_rows(dtype))
    return f"{geometric_mean(ratios):.3f}"


def count(dtype: str, rival: str) -> str:
    """Say how many of the fifteen are faster than a rival."""
    return WORDS[[beside[rival]["verdict"] for beside in whole_rows(dtype)].count("faster")]


DTYPES = ("bfloat16", "float16")
WORDS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
)


def of_products() -> Iterator[str]:
    """Return what docs/kernels/gemm-hopper.md says about its tables."""
    raced_ones = problems_of("gemm-shapes.json")
    half = [one for one in raced_ones if one["dtype"] == "bfloat16"]
    (ahead,) = {count(dtype, "torch") for dtype in DTYPES}
    yield (
        f"All {ahead} whose rows are whole 16 bytes are faster than `torch.mm` beyond the noise in each dtype, "
        "and none is slower than the best of cuBLASLt's list"
    )
    assert all(rival["verdict"] != "slower" for one in raced_ones for rival in one["race"]["rivals"].values())
    yield f"{WORDS[winners_that_are_seeds()].capitalize()} of the sixteen bfloat16 winners are"
    blocks, under_way = {}, {}
    for one in raced_ones:
        if one["m"] == 16:
            chosen = one["search"]["parameters"]
            tiles = -(-16 // chosen["block_m"]) * -(-one["n"] // chosen["block_n"])
            blocks[one["dtype"]] = tiles * chosen["split_k"]
            bytes_of_step = 2 * chosen["block_k"] * (chosen["block_m"] + chosen["block_n"])
            under_way[one["dtype"]] = chosen["stages"] * bytes_of_step // 1024
    yield (
        f"winners for 16 rows are {blocks['bfloat16']} blocks with {under_way['bfloat16']} KiB under way on each in "
        f"bfloat16, and {blocks['float16']} blocks with {under_way['float16']} KiB in float16"
    )
    (few, largest), (more, next_one), *others = sorted(
        (one["search"]["stats"]["trials"], one["k"]) for one in half
    )
    yield (
        f"{largest} and {next_one} cubed get {few} and {more} trials in bfloat16, "
        f"the others {others[0][0]} to {others[-1][0]}"
    )
    (beaten,) = {count(dtype, "cublaslt") for dtype in DTYPES}
    yield f"best of cuBLASLt's list: {beaten} are faster in each dtype"
    without = [
        geometric_mean(
            one["race"]["rivals"]["torch"]["ratio"]
            for one in raced_ones
            if one["dtype"] == dtype and one["n"] % 8 == one["k"] % 8 == 0 and one["k"] != 128
        )
        for dtype in DTYPES
    ]
    yield f"without 4096 x 4096 x 128 it is {without[0]:.3f} in bfloat16 and {without[1]:.3f} in float16"
    means = [mean(dtype, "torch", "cublaslt") for dtype in DTYPES]
    yield f"To the faster of both the mean is {means[0]} in bfloat16 and {means[1]} in float16"
    under_load = [one for one in raced_ones if one["sustained"]]
    assert len(under_load) == 12
    work = {one["m"] * one["n"] * one["k"] for one in raced_ones}
    assert {one["m"] * one["n"] * one["k"] for one in under_load} == set(sorted(work)[-6:])
    loaded = [one["sustained"]["rivals"]["torch"] for one in under_load]
    large = [rival["ratio"] for rival in loaded]
    yield f"the six largest products are {min(large):.3f} to {max(large):.3f} of `torch.mm` in both dtypes"
    verdicts = {rival["verdict"] for one in under_load for rival in one["sustained"]["rivals"].values()}
    assert verdicts == {"faster"}
    yield "each is faster than both rivals beyond the noise"


def of_choices() -> Iterator[str]:
    """Return what the same page says about the ablation."""
    others_of = {
        (tuple(one["problem"]["sizes"].values()), choice["parameter"], other["value"]): other
        for one in json.loads((EVIDENCE / "gemm-ablation.json").read_text())
        for choice in one["choices"]
        for other in choice["alternatives"]
    }
    worth = {key: other["ratio"] for key, other in others_of.items()}
    verdict = {key: other["verdict"] for key, other in others_of.items()}
    deep, beside_lines = (512, 512, 65536), (4104, 4104, 4104)
    for parameter, value, words in (
        ("gathered", False, "Without `gathered` the same takes"),
        ("grid_k", 6, "`grid_k` = 6 takes"),
    ):
        yield f"{words} {100 * (worth[deep, parameter, value] - 1):.0f} % longer"
    share = 100 * (worth[beside_lines, "gathered", False] - 1)
    yield f"Where the L2 limits (4104 cubed) that is worth {share:.0f} %"
    uneven = (4096, 11008, 4096)
    for shape, parameter, value, words in (
        (uneven, "gathered", False, "at 4096 x 11008 x 4096 with pairs of tiles {:.0f} %"),
        (uneven, "split_last", False, "without it the product takes {:.0f} % longer"),
        ((1024,) * 3, "prefetch", False, "by one of the blocks that will need it: {:.0f} % at 1024 cubed"),
        ((4096, 4096, 128), "store_buffers", 1, "a second buffer (`store_buffers` = 2), {:.0f} %"),
    ):
        yield words.format(100 * (worth[shape, parameter, value] - 1))
    turns = 100 * (worth[(2048,) * 3, "schedule", "cooperative"] - 1)
    yield f"Taking turns is worth {turns:.1f} % at 2048 cubed"
    assert {
        verdict[shape, "promotion", value] for shape, value in (((2048,) * 3, 256), ((1024,) * 3, 128))
    } <= {"same", "ambiguous"}
    ((missed, gain),) = [(key, worth[key]) for key, one in verdict.items() if one == "slower"]
    assert missed[0] == (1024,) * 3
    yield (
        f"`better`, of which there is one here (`{missed[1]}` at 1024 cubed, {100 * (1 - gain):.1f} %), "
        "is something that the search missed"
    )
    curve = [100 * (worth[shape, "raster", "hilbert"] - 1) for shape in ((8192,) * 3, uneven)]
    yield f"that is {curve[0]:.1f} % and {curve[1]:.1f} % slower than the winner's lines"
    lines = [
        100 * (worth[shape, "raster", way] - 1)
        for shape, way in (((8192,) * 3, "along_n"), (uneven, "along_m"))
    ]
    yield f"lines along the other side are {lines[0]:.1f} % and {lines[1]:.1f} % slower"
    told = [100 * (worth[(8192,) * 3, "kept", operand] - 1) for operand in "ab"]
    yield f"at 8192 cubed telling it costs {told[0]:.1f} % or {told[1]:.1f} %"
    narrow = [worth[shape, "block_k", 64] for shape in ((8192,) * 3, uneven)]
    yield f"`block_k` = 64 at {narrow[0]:.2f} and {narrow[1]:.2f} is half the bytes under way"
    deeper = max(worth[shape, "stages", count] for shape in ((8192,) * 3, uneven) for count in (3, 4))
    yield f"with 3 or 4 `stages` it costs {100 * (deeper - 1):.1f} % at most"


def of_longer_searches() -> Iterator[str]:
    """Return what the same page says about searches that go on."""
    found = {(one["m"], one["n"], one["k"]): one["longer"] for one in problems_of("gemm-longer.json")}
    short = found.pop((4096, 4096, 128))
    most = 100 * (max(one["ratio"] for one in found.values()) - 1)
    yield (
        f"found next to nothing for {WORDS[len(found)]} of {WORDS[len(found) + 1]} shapes: {most:.1f} % at most. "
        f"At 4096 x 4096 x 128 the first winner was {100 * (short['ratio'] - 1):.1f} % "
        f"({100 * (short['low'] - 1):.1f} to {100 * (short['high'] - 1):.1f}) behind"
    )
    (shown,) = (
        one["race"]["parameters"]
        for one in problems_of("gemm-shapes.json")
        if one["k"] == 128 and one["dtype"] == "bfloat16"
    )
    assert short["parameters"] == shown


def of_deep_k() -> Iterator[str]:
    """Return what the same page says about where the time of a deep product goes."""
    now = (EVIDENCE / "deep-k.txt").read_text().split("Earlier")[0]
    begin = {
        name: float(median)
        for name, median in re.findall(r"^(\w[\w ']*?)  +[\d.]+ +([\d.]+) +[\d.]+$", now, re.MULTILINE)
    }
    (ghz,) = re.findall(r"SMs at ([\d.]+) GHz", now)
    cycles = 65536 // 8 * 128 * 128 // 2048  # an SM multiplies and adds 2048 pairs in each
    yield f"The first bytes are there after {begin['first bytes']:.1f} us"
    products = begin["products over"] - begin["first bytes"]
    yield (
        f"A block's products take {cycles} cycles, {cycles / float(ghz) / 1e3:.1f} us at the {ghz} GHz at which the "
        f"SMs ran meanwhile, and are over after another {products:.1f}"
    )
    left = begin["sums written"] - begin["products over"]
    there = begin["others' sums there"] - begin["sums written"]
    written = begin["end"] - begin["others' sums there"]
    yield (
        f"{left:.1f} us later the sums have left, the others' are there after {there:.1f} more, "
        f"and {written:.1f} later the last stores are on their way"
    )
    ((ours, theirs),) = re.findall(r"^tensor cores busy, % +([\d.]+) +([\d.]+) ", now, re.MULTILINE)
    yield f"the tensor cores are busy for {float(ours):.0f} %"
    yield f"keeps them busy for {float(theirs):.0f} %"
    ((ours, theirs),) = re.findall(r"^sectors SMs read of the L2 +([\d,]+) +([\d,]+) ", now, re.MULTILINE)
    read = [f"{int(number.replace(',', '')) / 1e6:.1f} million" for number in (ours, theirs)]
    yield f"tiles of 128 x 128 read {read[0]}"
    yield f"cuBLAS's first kernel reads {read[1]}"


def of_more_products() -> Iterator[str]:
    """Return what docs/kernels/gemm-hopper.md says about shapes that are not in the list."""
    transposed, more, unchanged = (
        {
            (one["m"], one["n"], one["k"]): one["race"]["rivals"]
            for one in problems_of(file)
            if one["race"] and one["dtype"] == dtype
        }
        for file, dtype in (
            ("gemm-nt.json", "bfloat16"),
            ("gemm-more.json", "bfloat16"),
            ("gemm-more.json", "float16"),
        )
    )
    verdicts = [rival["verdict"] for rivals in transposed.values() for rival in rivals.values()]
    assert "slower" not in verdicts
    yield f"none of {WORDS[len(transposed)]} products is slower than either rival"
    assert {rival["verdict"] for rivals in unchanged.values() for rival in rivals.values()} == {"faster"}
    yield f"all {WORDS[len(unchanged)]} are faster than both rivals"
    behind = {
        rival: {
            shape: rivals[rival]["ratio"]
            for shape, rivals in more.items()
            if rivals[rival]["verdict"] == "slower"
        }
        for rival in kernel_tables.RIVALS
    }
    thousand, five, few, wide = (1000,) * 3, (5000,) * 3, (300, 5000, 4096), (512, 4096, 14336)
    three, more_rows = (3000,) * 3, (700, 2000, 5000)
    assert set(behind["cublaslt"]) == {thousand, five, few, wide, three, more_rows}
    assert set(behind["torch"]) == {wide}
    best = {shape: 100 * (1 - ratio) for shape, ratio in behind["cublaslt"].items()}
    torch = {shape: 100 * (1 - ratio) for shape, ratio in behind["torch"].items()}
    yield (
        f"at 1000, 3000 and 5000 cubed it is faster by {best[thousand]:.0f} %, {best[three]:.1f} % and "
        f"{best[five]:.1f} %, at 300 x 5000 x 4096 by {best[few]:.0f} %, and at 700 x 2000 x 5000 by "
        f"{best[more_rows]:.0f} %"
    )
    yield (
        f"At 512 x 4096 x 14336, one tile for each SM, it is faster by {best[wide]:.1f} %, "
        f"and so is `torch.mm`, by {torch[wide]:.1f} %"
    )


@cache
def winners_that_are_seeds() -> int:
    """Count the bfloat16 winners that gemm's file would have tried first."""
    gemm, gpu, count = load_kernel("gemm"), ARCHITECTURES[90], 0
    for one in problems_of("gemm-shapes.json"):
        if one["dtype"] == "bfloat16":
            sizes = {name: one[name] for name in "mnk"}
            problem = gemm.problem(sizes, {"": one["dtype"]}, {"layout": one["layout"]})
            winner = Configuration.of(one["search"]["variant"], one["search"]["parameters"])
            seeds = settle(gemm, problem, gpu, SearchSpace.from_kernel(gemm, problem, gpu))
            count += winner in [seed.configuration for seed in seeds]
    return count


def of_steps() -> Iterator[str]:
    """Return what docs/kernels/gemm.md says about its ladder, and about runs beside it."""
    variants = (EVIDENCE / "gemm-variants.txt").read_text()
    plain, transposed = re.findall(r"faster: ([\d.]+)x \(1.*yes$", variants, re.MULTILINE)
    yield f"{plain} times with B row-major, {transposed} times with B transposed"
    (mma_sync,) = re.findall(r"^tensor cores .* slower: ([\d.]+)x", variants, re.MULTILINE)
    tensor = contests("gemm")[-1].rungs["tensor cores", ""]
    against = tensor.against.partition(",")[0]
    yield (
        f"`mma_sync` reaches {against} of cuBLAS at 4096 cubed here, and reached {mma_sync} on another day"
    )
    for size, behind in ((0, "19 % where they are few"), (1, "2 % where blocks are many")):
        before, after = seconds("gemm", size, "register tiles", "double buffered")
        assert behind.startswith(f"{100 * (before / after - 1):.0f} %")
        yield behind


def test_what_the_text_around_the_tables_says() -> None:
    for page, said in (
        (
            "gemm-hopper",
            [*of_products(), *of_more_products(), *of_choices(), *of_deep_k(), *of_longer_searches()],
        ),
        ("gemm", list(of_steps())),
    ):
        text = prose(PAGES / f"{page}.md")
        assert [words for words in said if words not in text] == []


def products() -> Table:
    """The README's table of gemm."""
    shapes = problems_of("gemm-shapes.json")
    found: Table = [["m x n x k", "time, us", "TFLOP/s", "`torch.mm` takes, times as long (verdict on ours)"]]
    for one in shapes:
        if one["dtype"] == "bfloat16" and (one["m"], one["n"], one["k"]) in IN_THE_README:
            ours, torch = one["race"]["ours"], one["race"]["rivals"]["torch"]
            ratio = f"{torch['ratio']:.3f} ({torch['verdict']})"
            size = f"{one['m']} x {one['n']} x {one['k']}"
            found.append([size, f"{ours['time_ns'] / 1e3:.2f}", f"{ours['tflops']:.1f}", ratio])
    return found


def test_the_readme_has_the_measured_figures() -> None:
    assert products() in [table for _, table in tables(ROOT / "README.md")]
    shapes = problems_of("gemm-shapes.json")
    text = prose(ROOT / "README.md")
    assert f"that is {mean('bfloat16')} in the geometric mean, and {mean('float16')} in float16" in text
    means = [mean(dtype, "torch", "cublaslt") for dtype in DTYPES]
    assert f"the best that cuBLASLt's heuristic lists it is {means[0]} and {means[1]}" in text
    assert "all of them are faster in both, beyond the noise" in text
    assert all(beside["torch"]["verdict"] == "faster" for dtype in DTYPES for beside in whole_rows(dtype))
    taken = [one["search"]["seconds"] for one in shapes if one["dtype"] == "bfloat16"]
    assert f"searched for in {min(taken):.0f} to {max(taken):.0f} seconds" in text
    beside_torch = re.findall(
        r"^torch .* faster: ([\d.]+)x \(", (EVIDENCE / "figures.txt").read_text(), re.MULTILINE
    )
    assert f"this configuration was {beside_torch[0]} times as fast" in text
    assert f"it is {beside_torch[1]} times as fast as `torch.mm` at 4096 cubed" in text
