"""The tables of docs/kernels/ say what the evidence says: what is measured again must be written again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import kernel_tables

from tuner.kernel_file import load_kernel

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "results" / "evidence"
PAGES = ROOT / "docs" / "kernels"

pytestmark = pytest.mark.skipif(not EVIDENCE.is_dir(), reason="needs the evidence of a checkout")

Table = list[list[str]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables(page: str) -> Iterator[tuple[str, Table]]:
    """Give each table with what stands between it and the heading above it."""
    above, table = "", []
    for line in [*(PAGES / f"{page}.md").read_text().splitlines(), ""]:
        if line.startswith("|"):
            table.append(cells(line))
            continue
        if table:
            yield above, [table[0], *table[2:]]
        table = []
        above = "" if line.startswith("#") else f"{above}\n{line}"


def measured(page: str) -> list[Table]:
    """Give the tables under headings that name a file of the evidence."""
    return [table for above, table in tables(page) if "results/evidence/" in above]


# -- what the evidence says, as a table


def layout(configuration: dict[str, Any]) -> str:
    if configuration["variant"] == "bulk":
        return f"`bulk`, {configuration['stages']} stages of {configuration['tile_bytes']} bytes"
    shape = f"{configuration['items_per_thread']} x {configuration['vector_width']}"
    beside = ", side by side" if configuration.get("arrangement") == "blocked" else ""
    return f"`{configuration['variant']}`, {shape}{beside}"


def compared(kernel: str, *exponents: int) -> Table:
    """Winners beside what they raced, from teaching.json."""
    found: Table = [["dtype", "n", "mode", "best, us", "GB/s", "default", "torch", "Thrust", "what is best"]]
    rows = [row for row in json.loads((EVIDENCE / "teaching.json").read_text()) if row["kernel"] == kernel]
    for dtype in ("float32", "float16"):
        for exponent in exponents:
            beside = {
                row["rival"]: row
                for row in rows
                if (row["dtype"], row["problem"]) == (dtype, f"n=2**{exponent}")
            }
            best = next(iter(beside.values()))
            line = [dtype, f"2^{exponent}", best["mode"], f"{best['ours_ns'] / 1e3:.2f}"]
            line.append(f"{best['gbytes_per_s']:.0f}")
            for rival in ("default", "torch", f"thrust_{kernel}"):
                row = beside.get(rival)
                line.append(
                    f"{row['rival_ns'] / 1e3:.2f} ({row['ratio']:.3f}, {row['verdict']})"
                    if row
                    else "it is the default"
                )
            found.append([*line, layout(best["configuration"])])
    return found


def ladder(kernel: str) -> Table:
    """The rungs at three sizes, from what `tune ladder` printed."""
    text = (EVIDENCE / f"ladder-{kernel}.txt").read_text()
    contests = re.findall(
        rf"^{kernel} n=2\^(\d+) on .*\n  timed  (\w+),.*\n(rung .*\n(?:\S.*\n)+)", text, re.MULTILINE
    )
    assert len(contests) == 3
    head = ["rung", *(f"2^{exponent}, {mode}" for exponent, mode, _ in contests)]
    last = f"2^{contests[-1][0]}"
    found: Table = [[*head, f"of peak, {last}", f"over one block, {last}", f"against torch, {last}"]]
    columns = [
        {cells_[0]: cells_ for cells_ in (re.split(r"\s{2,}", line) for line in lines.splitlines()[1:])}
        for _, _, lines in contests
    ]
    for line in contests[-1][2].splitlines()[1:]:
        name = re.split(r"\s{2,}", line)[0]
        row = [name, *(column[name][1] for column in columns)]
        peak = re.search(r" ([\d.]+)% ", line)
        over = re.search(r" ([\d.]+)x ", line)
        slower = re.search(r" (slower|faster): ([\d.]+)x ", line)
        unsure = re.search(r" (same|ambiguous) \([^)]*\)", line)
        against = f"{slower[2]}, {slower[1]}" if slower else unsure[0].strip() if unsure else "-"
        found.append([*row, f"{peak[1]} %" if peak else "-", over[1] if over else "-", against])
    return found


def searched(problem: str) -> dict[str, re.Match[str]]:
    """Give the best of each variant in the searches of one problem, and under "" the line that names it."""
    text = (EVIDENCE / "teaching-search.txt").read_text()
    (block,) = (part for part in text.split("\n\n") if part.startswith(f"{problem} "))
    best = r"^  (?P<variant>\w+) +(?P<trials>\d+) trials  best +(?P<us>[\d.]+) us +(?P<rate>\d+) GB/s"
    named = re.match(r".*\((?P<mode>\w+)\)$", block.splitlines()[0])
    assert named
    return {"": named, **{row["variant"]: row for row in re.finditer(best, block, re.MULTILINE)}}


def transform_searches() -> Table:
    small, large = (searched(f"transform n={1 << exponent} float16") for exponent in (24, 28))
    found: Table = [
        [
            "variant",
            "trials, 2^24",
            f"us, {small['']['mode']}",
            "trials, 2^28",
            f"us, {large['']['mode']}",
        ]
    ]
    for name in ("vectorized", "staged", "bulk", "grid_stride"):
        found.append(
            [f"`{name}`", *(column[name][what] for column in (small, large) for what in ("trials", "us"))]
        )
    return found


def reduce_searches() -> Table:
    exponents = range(16, 31, 2)
    columns = [searched(f"reduce n={1 << exponent} float32 sum") for exponent in exponents]
    found: Table = [["us", *(f"2^{exponent}" for exponent in exponents)]]
    found.append(["mode", *(column[""]["mode"] for column in columns)])
    for name in ("one_block", "two_pass", "ticket", "mailbox", "cluster", "bulk"):
        found.append([f"`{name}`", *(column[name]["us"] if name in column else "-" for column in columns)])
    rates = [max(int(row["rate"]) for name, row in column.items() if name) for column in columns]
    return [*found, ["GB/s of the fastest", *map(str, rates)]]


def mean_matvec_searches() -> Table:
    sizes = "mean_matvec groups=1024 vectors=1024 length=1024 float32"
    columns = [searched(f"{sizes} {product}") for product in ("float32", "tf32")]
    found: Table = [["variant", "float32, us", "GB/s", "tf32, us", "GB/s"]]
    for name in ("first", "coalesced", "mean_then_product", "fused", "fused_bulk"):
        found.append([f"`{name}`", *(column[name][what] for column in columns for what in ("us", "rate"))])
    return found


# -- the pages


def test_vector_add() -> None:
    assert measured("vector_add") == [compared("vector_add", 20, 24, 28), compared("vector_add", 10, 16)]


def test_saxpy() -> None:
    assert measured("saxpy") == [compared("saxpy", 10, 16, 20, 24, 28)]


def test_transform() -> None:
    assert measured("transform") == [ladder("transform"), transform_searches()]


def test_reduce() -> None:
    assert measured("reduce") == [reduce_searches()]


def test_gemm_on_hopper() -> None:
    """Where it fails: scripts/run python scripts/kernel_tables.py writes the tables anew."""
    assert kernel_tables.filled(kernel_tables.PAGE.read_text()) == kernel_tables.PAGE.read_text()


def test_gemm_on_hopper_names_every_parameter() -> None:
    page = kernel_tables.PAGE.read_text()
    variants = [v for v in load_kernel("gemm").variants.values() if v.name.startswith("wgmma")]
    assert variants
    named = {name for variant in variants for name in variant.parameters} - {"block_m", "block_n"}
    assert {name for name in named if f"`{name}`" not in page} == set()


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
        {"value": 3, "besides": {}, "ratio": 1.03, "verdict": "faster"},
        {"value": 2, "besides": {}, "ratio": 1.2, "verdict": "faster"},
        {"value": 5, "besides": {}, "ratio": None, "verdict": None},
    ]
    stages = {"parameter": "stages", "value": 4, "worth": 1.03, "alternatives": others}
    group = {
        "parameter": "group",
        "value": 8,
        "worth": 1.001,
        "alternatives": [{**others[0], "verdict": "same"}],
    }
    deeper = {"value": 128, "besides": {"stages": 2}, "ratio": 0.98, "verdict": "slower"}
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
        "| `group` | 8; 3: same |",
        "| `block_n` | 256; 128 with stages 2: 0.980, better |",
        "| `block_k` | 64; no other is valid |",
    ]
    assert measured.count("Not measured yet") == 1  # float16


def test_mean_matvec() -> None:
    assert measured("mean_matvec") == [mean_matvec_searches()]


@pytest.mark.parametrize("page", ["reduce", "mean_matvec"])
def test_what_was_timed_alone_is_said_to_be(page: str) -> None:
    text = " ".join((PAGES / f"{page}.md").read_text().split())
    assert "timed alone, not in turn with the others" in text
    assert "is still to be made" in text


def test_the_readme_has_the_measured_figures() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    rows = {
        (row["dtype"], row["rival"]): row
        for row in json.loads((EVIDENCE / "teaching.json").read_text())
        if (row["kernel"], row["problem"]) == ("vector_add", "n=2**28")
    }
    single, half = rows["float32", "torch"], rows["float16", "torch"]
    assert single["verdict"] == "faster" and half["verdict"] == "same"
    assert f"takes {single['ours_ns'] / 1e3:.2f} us ({single['gbytes_per_s']:.0f} GB/s)" in readme
    for thrust in (rows["float32", "thrust_vector_add"], rows["float16", "thrust_vector_add"]):
        assert f"Thrust's {thrust['ratio']:.3f} times" in readme
    assert f"torch's kernel {single['ratio']:.3f} and" in readme
    rungs = {row[0]: row for row in ladder("transform")[1:]}
    for rung, words in (
        ("one block", "with one block"),
        ("one element a thread", "with one element a thread"),
        ("vectorized", "with vectors"),
    ):
        assert re.search(rf"{re.escape(rungs[rung][4])} (of the speed of light )?{words}", readme), rung
    assert f"torch's {rungs['torch'][4]} cannot be told" in readme and rungs["vectorized"][6].startswith(
        "ambig"
    )
