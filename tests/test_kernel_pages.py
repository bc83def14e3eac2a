"""The tables of docs/kernels/ say what the evidence says: what is measured again must be written again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import kernel_tables

from tuner.kernel_file import load_kernel
from tuner.model import Configuration
from tuner.roofline import ARCHITECTURES
from tuner.seeds import settle
from tuner.space import SearchSpace

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "results" / "evidence"
PAGES = ROOT / "docs" / "kernels"

pytestmark = pytest.mark.skipif(not EVIDENCE.is_dir(), reason="needs the evidence of a checkout")

Table = list[list[str]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables(page: Path) -> Iterator[tuple[str, Table]]:
    """Give each table with what stands between it and the heading above it."""
    above, table = "", []
    for line in [*page.read_text().splitlines(), ""]:
        if line.startswith("|"):
            table.append(cells(line))
            continue
        if table:
            yield above, [table[0], *table[2:]]
        table = []
        above = "" if line.startswith("#") else f"{above}\n{line}"


def measured(page: str) -> list[Table]:
    """Give the tables under headings that name a file of the evidence."""
    return [table for above, table in tables(PAGES / f"{page}.md") if "results/evidence/" in above]


# -- what the evidence says, as a table


def raced() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((EVIDENCE / "teaching.json").read_text())
    return rows


def beside(kernel: str, dtype: str, problem: str, *options: str) -> dict[str, dict[str, Any]]:
    """Give what one winner was timed in turn with, by the rival's name; none is there twice."""
    wanted = (kernel, dtype, problem, list(options))
    rows = [row for row in raced() if (row["kernel"], row["dtype"], row["problem"], row["options"]) == wanted]
    found = {row["rival"]: row for row in rows}
    assert found and len(found) == len(rows)
    return found


def layout(configuration: dict[str, Any]) -> str:
    name = f"`{configuration['variant']}`"
    if "stream_warps" in configuration:
        tile = f"{configuration['block_m']} x {configuration['block_n']}"
        return f"{name}, {configuration['stream_warps']} streaming warps, tiles of {tile}"
    if "tile_bytes" in configuration:
        stages, size = configuration["stages"], configuration["tile_bytes"]
        ring = f"{stages} stages of {size} bytes" if stages > 1 else f"one tile of {size} bytes"
        return f"{name}, {ring}{', and a bulk store' if configuration['bulk_store'] else ''}"
    side = ", side by side" if configuration.get("arrangement") == "blocked" else ""
    return f"{name}, {configuration['items_per_thread']} x {configuration['vector_width']}{side}"


def rival(row: dict[str, Any] | None) -> str:
    if row is None:
        return "it is the default"
    return f"{row['rival_ns'] / 1e3:.2f} ({row['ratio']:.3f}, {row['verdict']})"


def line(found: dict[str, dict[str, Any]], *names: str) -> list[str]:
    best = next(iter(found.values()))
    figures = [f"{best['ours_ns'] / 1e3:.2f}", f"{best['gbytes_per_s']:.0f}"]
    return [*figures, *(rival(found.get(name)) for name in names), layout(best["configuration"])]


def compared(kernel: str, rivals: dict[str, str], dtypes: tuple[str, ...], *exponents: int) -> Table:
    """Winners beside what they raced, from teaching.json; rivals by their names in the table's head."""
    several = len(dtypes) > 1
    head = ["n", "mode", "best, us", "GB/s", *rivals, "what is best"]
    found: Table = [["dtype", *head] if several else head]
    for dtype in dtypes:
        for exponent in exponents:
            rows = beside(kernel, dtype, f"n=2**{exponent}")
            mode = next(iter(rows.values()))["mode"]
            found.append(
                [*([dtype] if several else []), f"2^{exponent}", mode, *line(rows, *rivals.values())]
            )
    return found


def mean_matvec() -> Table:
    found: Table = [
        [
            "product",
            "best, us",
            "GB/s",
            "read pass",
            "times the read pass",
            "default",
            "torch",
            "what is best",
        ]
    ]
    for product in ("float32", "tf32"):
        rows = beside("mean_matvec", "float32", CUBE, f"product={product}")
        assert rows["read pass"]["mode"] == "cold"
        ours, rate, read, *others = line(rows, "read pass", "default", "torch")
        found.append([product, ours, rate, read, f"{1 / rows['read pass']['ratio']:.3f}", *others])
    return found


# -- what `tune ladder` printed


@dataclass(frozen=True)
class Rung:
    """One line of a contest."""

    name: str
    kind: str
    """Its dtype or option, where rungs differ in it."""
    time: str
    peak: str
    over: str
    against: str
    launch: bool
    """Whether most of the time is the launch."""

    @property
    def seconds(self) -> float:
        number, unit = self.time.split()
        return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


@dataclass(frozen=True)
class Contest:
    """One size."""

    label: str
    mode: str
    first: str
    """The rung that all others are compared with."""
    library: str
    rungs: dict[tuple[str, str], Rung]
    own: list[str]
    """The names of the kernel's own rungs, in order."""


RUNG = re.compile(
    r"(?P<name>\S+(?: \S+)*)\s+(?:(?P<kind>float32|float16|product=\w+)\s+)?"
    r"(?P<time>[\d.]+ [um]?s|-)(?=\s|$)(?:\s+[\d.]+ (?:[GTM]B|[GT]FLOP)/s)?(?:\s+(?P<peak>[\d.]+)%)?"
    r"(?:\s+(?P<over>[\d.e+]+)x(?P<star> \*)?)?"
    r"(?:\s+(?:(?P<verdict>slower|faster|launch latency): (?P<ratio>[\d.]+)x \("
    r"|(?P<unsure>(?:same|ambiguous) \(.*?\))))?"
)


def ladder_text(kernel: str) -> str:
    return (EVIDENCE / f"ladder-{kernel}.txt").read_text()


def contests(kernel: str) -> list[Contest]:
    text = ladder_text(kernel)
    own = re.findall(r"^  (\S+(?: \S+)*?)  ", text.split("\n\n")[0], re.MULTILINE)
    launched = set(
        re.findall(r"^(\S+(?: \S+)*?) {2,}(\S+ \S+) !", text.partition("time, by n")[2], re.MULTILINE)
    )
    found = []
    blocks = re.findall(
        rf"^{kernel} \S*?=?(2\^\d+|\d+) on .*\n((?:  timed .*\n)+)rung (.*)\n((?:\S.*\n)+)",
        text,
        re.MULTILINE,
    )
    for label, timed, head, lines in blocks:
        (mode,) = set(re.findall(r"(rotating|cold), rested", timed))
        rungs = {}
        for text_ in lines.splitlines():
            row = RUNG.match(text_)
            assert row, text_
            kind = (row["kind"] or "").removeprefix("product=")
            against = f"{row['ratio']}, {row['verdict']}" if row["verdict"] else row["unsure"] or "-"
            rungs[row["name"], kind] = Rung(
                name=row["name"],
                kind=kind,
                time=row["time"],
                peak=f"{row['peak']} %" if row["peak"] else "-",
                over=f"{row['over']}{row['star'] or ''}" if row["over"] else "-",
                against=against,
                launch=(row["name"], row["time"]) in launched,
            )
        names = re.search(r"over (\S+(?: \S+)*?) {2,}against (\w+)", head)
        assert names
        found.append(Contest(label, mode, names[1], names[2], rungs, own))
    assert found
    return found


def worth(before: Rung | None, rung: Rung) -> str:
    """Say how many times as fast as the step before, of the same contest; nothing where the launch decides both."""
    if before is None or before.kind != rung.kind or (before.launch and rung.launch):
        return ""
    ratio = before.seconds / rung.seconds
    return f" ({ratio:.{0 if ratio >= 100 else 1 if ratio >= 10 else 2}f})"


def cell(contest: Contest, key: tuple[str, str]) -> str:
    rung = contest.rungs[key]
    if rung.time == "-" or rung.name not in contest.own:
        return rung.time
    before = [one for one in contest.rungs.values() if one.name in contest.own and one.time != "-"]
    place = before.index(rung)
    return f"{rung.time}{worth(before[place - 1] if place else None, rung)}"


def ladder(kernel: str, kind: str = "") -> Table:
    """Every rung at every size, and the largest one's shares and verdicts."""
    sizes = contests(kernel)
    last = sizes[-1]
    kinds = [kind] if kind else []
    head = ["rung", *kinds, *(f"{one.label}, {one.mode}" for one in sizes)]
    ends = (
        f"of peak, {last.label}",
        f"over {last.first}, {last.label}",
        f"against {last.library}, {last.label}",
    )
    found: Table = [[*head, *ends]]
    for key, rung in last.rungs.items():
        assert bool(rung.kind) == bool(kind)
        times = [cell(contest, key) for contest in sizes]
        found.append([rung.name, *([rung.kind] if kind else []), *times, rung.peak, rung.over, rung.against])
    return found


# -- the pages

IN_THE_README = (
    *((8192, 8192, 8192), (4096, 4096, 4096), (512, 512, 512), (4096, 11008, 4096)),
    *((1, 8192, 8192), (512, 512, 65536), (4095, 4097, 4093)),
)
CUBE = "groups=1024,vectors=1024,length=1024"
LIBRARIES = {"default": "default", "torch": "torch"}
BOTH = ("float32", "float16")


def test_vector_add() -> None:
    rivals = {**LIBRARIES, "Thrust": "thrust_vector_add"}
    assert measured("vector_add") == [
        ladder("vector_add", "dtype"),
        compared("vector_add", rivals, BOTH, 20, 24, 28),
        compared("vector_add", rivals, BOTH, 10, 16),
    ]


def test_saxpy() -> None:
    rivals = {**LIBRARIES, "Thrust": "thrust_saxpy"}
    assert measured("saxpy") == [compared("saxpy", rivals, BOTH, 10, 16, 20, 24, 28)]


def test_transform() -> None:
    rivals = {"default": "default", "Thrust": "thrust_transform", "CUB": "cub_transform"}
    assert measured("transform") == [
        ladder("transform"),
        compared("transform", rivals, ("float16",), 24, 28),
    ]


def test_reduce() -> None:
    rivals = {**LIBRARIES, "CUB": "cub_sum"}
    assert measured("reduce") == [
        compared("reduce", rivals, ("float32",), *range(16, 31, 2)),
        ladder("reduce"),
    ]


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
    assert measured("mean_matvec") == [mean_matvec(), ladder("mean_matvec", "product")]


def test_every_step_of_a_ladder_is_in_its_table() -> None:
    for kernel, rungs in (
        ("vector_add", 10),
        ("transform", 9),
        ("reduce", 7),
        ("mean_matvec", 6),
        ("gemm", 9),
    ):
        for contest in contests(kernel):
            assert [name for name, _ in contest.rungs if name in contest.own] == contest.own
            assert len(contest.own) == rungs


def prose(page: Path) -> str:
    return " ".join(page.read_text().split())


def least(kernel: str) -> str:
    """Give what the least kernel takes, in us, as the first footnote has it."""
    found = re.search(r"512 bytes takes ([\d.]+) us", ladder_text(kernel))
    assert found
    return found[1]


def rest_us(product: str) -> str:
    read = beside("mean_matvec", "float32", CUBE, f"product={product}")["read pass"]
    return f"{(read['ours_ns'] - read['rival_ns']) / 1e3:.0f}"


def seconds(kernel: str, contest: int, *names: str) -> list[float]:
    rungs = {name: rung for (name, _), rung in contests(kernel)[contest].rungs.items() if name in names}
    return [rungs[name].seconds for name in names]


def mean_of_products(problems: list[dict[str, Any]]) -> float:
    """Give the geometric mean of torch.mm's time over ours in bfloat16, where rows are whole 16 bytes."""
    ratios = [
        one["race"]["rivals"]["torch"]["ratio"]
        for one in problems
        if one["dtype"] == "bfloat16" and one["n"] % 8 == one["k"] % 8 == 0
    ]
    assert len(ratios) == 15
    return geometric_mean(ratios)


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


def of_products() -> Iterator[tuple[str, str]]:
    """Give what docs/kernels/gemm-hopper.md says about its tables."""
    raced_ones = json.loads((EVIDENCE / "gemm-shapes.json").read_text())["problems"]
    half = [one for one in raced_ones if one["dtype"] == "bfloat16"]
    even = [one["race"]["rivals"]["torch"] for one in half if one["n"] % 8 == one["k"] % 8 == 0]
    assert not any(one["race"]["rivals"]["torch"]["verdict"] == "slower" for one in raced_ones)
    faster = [one for one in even if one["verdict"] == "faster"]
    faster_in_float16 = [
        one["race"]["rivals"]["torch"]["verdict"] == "faster"
        for one in raced_ones
        if one["dtype"] == "float16" and one["n"] % 8 == one["k"] % 8 == 0
    ]
    yield (
        "gemm-hopper",
        "No shape is slower than `torch.mm` beyond the noise, and of the fifteen whose rows are whole 16 bytes "
        f"{WORDS[len(faster)]} are faster in bfloat16, {WORDS[sum(faster_in_float16)]} in float16",
    )
    yield "gemm-hopper", f"{WORDS[winners_that_are_seeds()].capitalize()} of the sixteen bfloat16 winners are"
    (few, largest), (more, next_one), *others = sorted(
        (one["search"]["stats"]["trials"], one["k"]) for one in half
    )
    yield (
        "gemm-hopper",
        f"{largest} and {next_one} cubed get {few} and {more} trials in bfloat16, "
        f"the others {others[0][0]} to {others[-1][0]}",
    )
    listed = {
        dtype: [
            one["race"]["rivals"]["cublaslt"]["verdict"]
            for one in raced_ones
            if one["dtype"] == dtype and one["n"] % 8 == one["k"] % 8 == 0
        ]
        for dtype in ("bfloat16", "float16")
    }
    assert not any("slower" in verdicts for verdicts in listed.values())
    [beaten] = {verdicts.count("faster") for verdicts in listed.values()}
    yield "gemm-hopper", f"best of cuBLASLt's list either: {WORDS[beaten]} are faster in each dtype"
    without = [
        geometric_mean(
            one["race"]["rivals"]["torch"]["ratio"]
            for one in raced_ones
            if one["dtype"] == dtype and one["n"] % 8 == one["k"] % 8 == 0 and one["k"] != 128
        )
        for dtype in ("bfloat16", "float16")
    ]
    yield (
        "gemm-hopper",
        f"without 4096 x 4096 x 128 it is {without[0]:.3f} in bfloat16 and {without[1]:.3f} in float16",
    )
    faster_of_both = [
        geometric_mean(
            min(rival["ratio"] for rival in one["race"]["rivals"].values())
            for one in raced_ones
            if one["dtype"] == dtype and one["n"] % 8 == one["k"] % 8 == 0
        )
        for dtype in ("bfloat16", "float16")
    ]
    (both,) = {f"{mean:.3f}" for mean in faster_of_both}
    yield "gemm-hopper", f"To the faster of both the mean is {both} in each dtype"
    yield from of_more_products()
    under_load = [one for one in raced_ones if one["sustained"]]
    assert len(under_load) == 12
    work = {one["m"] * one["n"] * one["k"] for one in raced_ones}
    assert {one["m"] * one["n"] * one["k"] for one in under_load} == set(sorted(work)[-6:])
    loaded = [one["sustained"]["rivals"]["torch"] for one in under_load]
    large = [rival["ratio"] for rival in loaded]
    yield (
        "gemm-hopper",
        f"the six largest products are {min(large):.3f} to {max(large):.3f} of `torch.mm` in both dtypes",
    )
    (unsure,) = [one for one, rival in zip(under_load, loaded, strict=True) if rival["verdict"] != "faster"]
    assert {one["sustained"]["rivals"]["cublaslt"]["verdict"] for one in under_load} == {"faster"}
    yield (
        "gemm-hopper",
        f"{unsure['m']} cubed in {unsure['dtype']} is within the noise of `torch.mm`, all else is faster",
    )
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
        ("gathered", False, "without `gathered`, the same takes"),
        ("grid_k", 6, "`grid_k` = 6 takes"),
    ):
        yield "gemm-hopper", f"{words} {100 * (worth[deep, parameter, value] - 1):.0f} % longer"
    share = 100 * (worth[beside_lines, "gathered", False] - 1)
    yield "gemm-hopper", f"Where the L2 limits (4104 cubed) that is worth {share:.0f} %"
    uneven = (4096, 11008, 4096)
    for shape, parameter, value, words in (
        (uneven, "gathered", False, "at 4096 x 11008 x 4096 with pairs of tiles {:.0f} %"),
        (uneven, "split_last", False, "without it the product takes {:.0f} % longer"),
        ((1024,) * 3, "prefetch", False, "by one of the blocks that will need it: {:.0f} % at 1024 cubed"),
        ((4096, 4096, 128), "store_buffers", 1, "a second buffer (`store_buffers` = 2), {:.0f} %"),
    ):
        yield "gemm-hopper", words.format(100 * (worth[shape, parameter, value] - 1))
    turns = 100 * (worth[(2048,) * 3, "schedule", "cooperative"] - 1)
    yield "gemm-hopper", f"Taking turns is worth {turns:.1f} % at 2048 cubed"
    assert {
        verdict[shape, "promotion", value] for shape, value in (((2048,) * 3, 256), ((1024,) * 3, 128))
    } == {"same"}
    assert "slower" not in verdict.values()
    yield "gemm-hopper", "`better`, of which there is none here"
    curve = [100 * (worth[shape, "raster", "hilbert"] - 1) for shape in ((8192,) * 3, uneven)]
    yield "gemm-hopper", f"that is {curve[0]:.1f} % and {curve[1]:.1f} % slower than the winner's lines"
    lines = [
        100 * (worth[shape, "raster", way] - 1)
        for shape, way in (((8192,) * 3, "along_n"), (uneven, "along_m"))
    ]
    yield "gemm-hopper", f"lines along the other side are {lines[0]:.1f} % and {lines[1]:.1f} % slower"
    told = [100 * (worth[(8192,) * 3, "kept", operand] - 1) for operand in "ab"]
    yield "gemm-hopper", f"at 8192 cubed telling it costs {told[0]:.1f} % or {told[1]:.1f} %"
    narrow = [worth[shape, "block_k", 64] for shape in ((8192,) * 3, uneven)]
    yield "gemm-hopper", f"`block_k` = 64 at {narrow[0]:.2f} and {narrow[1]:.2f} is half the bytes under way"
    deeper = max(worth[shape, "stages", count] for shape in ((8192,) * 3, uneven) for count in (3, 4))
    yield "gemm-hopper", f"with 3 or 4 `stages` it costs {100 * (deeper - 1):.1f} % at most"


def of_more_products() -> Iterator[tuple[str, str]]:
    """Give what docs/kernels/gemm-hopper.md says about shapes that are not in the list."""
    transposed, more, unchanged = (
        {
            (one["m"], one["n"], one["k"]): one["race"]["rivals"]
            for one in json.loads((EVIDENCE / file).read_text())["problems"]
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
    yield "gemm-hopper", f"none of {WORDS[len(transposed)]} products is slower than either rival"
    assert {rival["verdict"] for rivals in unchanged.values() for rival in rivals.values()} == {"faster"}
    yield "gemm-hopper", f"all {WORDS[len(unchanged)]} are faster than both rivals"
    behind = {
        rival: {
            shape: rivals[rival]["ratio"]
            for shape, rivals in more.items()
            if rivals[rival]["verdict"] == "slower"
        }
        for rival in kernel_tables.RIVALS
    }
    thousand, five, few, wide = (1000,) * 3, (5000,) * 3, (300, 5000, 4096), (512, 4096, 14336)
    assert set(behind["cublaslt"]) == {thousand, five, few, wide} and set(behind["torch"]) == {five, wide}
    best = {shape: 100 * (1 - ratio) for shape, ratio in behind["cublaslt"].items()}
    torch = {shape: 100 * (1 - ratio) for shape, ratio in behind["torch"].items()}
    yield (
        "gemm-hopper",
        f"at 1000 and 5000 cubed it is faster by {best[thousand]:.0f} % and by {best[five]:.1f} %, "
        f"and at 300 x 5000 x 4096 by {best[few]:.0f} %",
    )
    yield "gemm-hopper", f"At 512 x 4096 x 14336, one tile for each SM, it is faster by {best[wide]:.1f} %"
    yield (
        "gemm-hopper",
        f"`torch.mm` is ahead by {torch[five]:.1f} % at 5000 cubed and by {torch[wide]:.1f} % at 512 x 4096 x 14336",
    )
    scattered = more[256, 4096, 4096]["cublaslt"]
    yield "gemm-hopper", f"may be {scattered['ratio_low']:.3f} or {scattered['ratio_high']:.3f}"


@cache
def winners_that_are_seeds() -> int:
    """Count the bfloat16 winners that gemm's file would have tried first."""
    gemm, gpu, count = load_kernel("gemm"), ARCHITECTURES[90], 0
    for one in json.loads((EVIDENCE / "gemm-shapes.json").read_text())["problems"]:
        if one["dtype"] == "bfloat16":
            sizes = {name: one[name] for name in "mnk"}
            problem = gemm.problem(sizes, {"": one["dtype"]}, {"layout": one["layout"]})
            winner = Configuration.of(one["search"]["variant"], one["search"]["parameters"])
            seeds = settle(gemm, problem, gpu, SearchSpace.from_kernel(gemm, problem, gpu))
            count += winner in [seed.configuration for seed in seeds]
    return count


def claims() -> Iterator[tuple[str, str]]:
    """Give each page's sentences whose figures are worked out from those of the evidence."""
    reads = {
        product: beside("mean_matvec", "float32", CUBE, f"product={product}")
        for product in ("tf32", "float32")
    }
    tf32, strict = (1 / reads[product]["read pass"]["ratio"] for product in ("tf32", "float32"))
    yield "mean_matvec", f"{tf32:.3f} times the time of the fastest read pass with tf32 products"
    yield (
        "mean_matvec",
        f"{strict:.3f} times with float32 ones: {rest_us('tf32')} and {rest_us('float32')} us",
    )
    torch, default = (
        [f"{reads[product][name]['ratio']:.3f}" for product in ("tf32", "float32")]
        for name in ("torch", "default")
    )
    yield (
        "mean_matvec",
        f"takes {torch[0]} times as long with tf32 products and {torch[1]} times with float32",
    )
    yield "mean_matvec", f"(the default) {default[0]} and {default[1]} times"
    rungs = ("first", "coalesced", "mean, then product", "fused", "fused, bulk copies")
    first, coalesced, two, fused, bulk = seconds("mean_matvec", 0, *rungs)
    yield "mean_matvec", f"first port is {first / fused:.0f} times as slow"
    yield "mean_matvec", f"only {100 * (coalesced / fused - 1):.0f} % slower than `fused`"
    yield "mean_matvec", f"{1e6 * (two - fused):.0f} us, where the product"
    yield "mean_matvec", f"{100 * (bulk / fused - 1):.1f} % behind `fused`"
    share = beside("reduce", "float32", "n=2**30")["data sheet"]["ratio"]
    yield "reduce", f"{100 * share:.1f} % of the data sheet's 4.8 TB/s"
    cluster, mailbox, bulk = seconds("reduce", 1, "one cluster", "one pass, mailbox", "one pass, bulk copies")
    yield "reduce", f"{cluster / mailbox:.1f} times as slow as the mailbox at 2^22"
    yield "reduce", f"and {100 * (1 - mailbox / bulk):.0f} % at 2^22"
    two, mailbox, bulk = seconds(
        "reduce", 2, "two passes, 16-byte loads", "one pass, mailbox", "one pass, bulk copies"
    )
    yield "reduce", f"by {100 * (mailbox / bulk - 1):.1f} % over the mailbox"
    yield "reduce", f"within {100 * (two / bulk - 1):.1f} % of each other"
    for exponent in (24, 28):
        rows = beside("transform", "float16", f"n=2**{exponent}")
        yield "transform", f"Thrust takes {rows['thrust_transform']['ratio']:.3f} times as long"
        yield "transform", f"CUB {rows['cub_transform']['ratio']:.3f} times"
    (loop,) = seconds("transform", 0, "one thread")
    yield "transform", f"takes [{1e9 * loop / 2**20:.0f} ns an element]"
    yield from of_products()
    variants = (EVIDENCE / "gemm-variants.txt").read_text()
    plain, transposed = re.findall(r"faster: ([\d.]+)x \(1.*yes$", variants, re.MULTILINE)
    yield "gemm", f"{plain} times with B row-major, {transposed} times with B transposed"
    (mma_sync,) = re.findall(r"^tensor cores .* slower: ([\d.]+)x", variants, re.MULTILINE)
    tensor = contests("gemm")[-1].rungs["tensor cores", ""]
    against = tensor.against.partition(",")[0]
    yield (
        "gemm",
        f"`mma_sync` reaches {against} of cuBLAS at 4096 cubed here, and reached {mma_sync} on another day",
    )
    for size, behind in ((0, "19 % where they are few"), (1, "3 % where blocks are many")):
        before, after = seconds("gemm", size, "register tiles", "double buffered")
        assert behind.startswith(f"{100 * (before / after - 1):.0f} %")
        yield "gemm", behind
    for kernel in ("transform", "vector_add"):
        yield kernel, f"copies 512 bytes takes {least(kernel)} us"


def test_what_the_text_around_the_tables_says() -> None:
    pages = {page.stem: prose(page) for page in PAGES.glob("*.md")}
    assert [(page, words) for page, words in claims() if words not in pages[page]] == []


KNOWN = {"4.8": "TB/s, the data sheet", "4.81": "the same, unrounded", "1.98": "GHz", "1.5": "s of search"}


@pytest.mark.parametrize("page", ["vector_add", "saxpy", "transform", "reduce", "mean_matvec"])
def test_no_figure_in_the_text_is_from_elsewhere(page: str) -> None:
    """Decimals beside the tables are theirs, the ladder's, or a difference of theirs in per cent."""
    shown = " ".join(" ".join(row) for table in measured(page) for row in table)
    printed = ladder_text(page) if (EVIDENCE / f"ladder-{page}.txt").is_file() else ""
    there = set(re.findall(r"\d+\.\d+", f"{shown} {printed}")) | set(KNOWN)
    there |= {f"{100 * abs(float(ratio) - 1):.1f}" for ratio in re.findall(r"\b[01]\.\d{3}\b", shown)}
    for rate in (row["gbytes_per_s"] for row in raced() if row["kernel"] == page):
        there |= {f"{rate / 48:.1f}", f"{rate / 1000:.1f}"}
    there |= set(re.findall(r"\d+\.\d+", " ".join(words for where, words in claims() if where == page)))
    for section in re.split(r"^## ", (PAGES / f"{page}.md").read_text(), flags=re.MULTILINE):
        if "results/evidence/" in section:
            text = re.sub(r"^\|.*$|`[^`]*`|\]\([^)]*\)", "", section, flags=re.MULTILINE)
            assert set(re.findall(r"(?<![\w.])\d+\.\d+(?!\w)", text)) <= there


def test_the_sanitizers_runs_are_those_of_the_evidence() -> None:
    said = (EVIDENCE / "sanitize.txt").read_text().strip().split("\n\n")
    text = prose(ROOT / "docs" / "tools.md")
    single = 0
    for block in said:
        found = re.match(r"\$ tune sanitize (\w+) (.*)\n(?:.*\n){2}configurations +(\d+) ", block)
        assert found
        runs = set(re.findall(r"^(?:memcheck|racecheck|synccheck) +clean: (\d+) runs$", block, re.MULTILINE))
        assert len(runs) == 1
        if "--config" in found[2]:
            single += 1
            continue
        dtype = re.search(r"--dtype (\w+)", found[2])
        name = f"`{found[1]}`{f' in {dtype[1]}' if dtype else ''}"
        counted = rf"{name} \({found[3]}( configurations)?, (and )?{runs.pop()}[ )]"
        assert re.search(counted, text), found[1]
    assert (len(said), single) == (12, 5)


def products() -> Table:
    """The README's table of gemm."""
    shapes = json.loads((EVIDENCE / "gemm-shapes.json").read_text())["problems"]
    found: Table = [["m x n x k", "time, us", "TFLOP/s", "`torch.mm` takes, times as long (verdict on ours)"]]
    for one in shapes:
        if one["dtype"] == "bfloat16" and (one["m"], one["n"], one["k"]) in IN_THE_README:
            ours, torch = one["race"]["ours"], one["race"]["rivals"]["torch"]
            ratio = f"{torch['ratio']:.3f} ({torch['verdict']})"
            size = f"{one['m']} x {one['n']} x {one['k']}"
            found.append([size, f"{ours['time_ns'] / 1e3:.2f}", f"{ours['tflops']:.1f}", ratio])
    return found


def overview() -> Table:
    """The README's table: each kernel at its largest problem that most of them share."""
    head = ["2^28 elements, or 1024 x 1024 x 1024", "time, us", "of 4.8 TB/s"]
    found: Table = [[*head, "others take, times as long (verdict on ours)"]]
    for kernel, dtype, names, options in (
        ("vector_add", "float32", {"torch": "torch", "Thrust": "thrust_vector_add"}, []),
        ("vector_add", "float16", {"torch": "torch", "Thrust": "thrust_vector_add"}, []),
        ("saxpy", "float32", {"torch": "torch", "Thrust": "thrust_saxpy"}, []),
        ("transform", "float16", {"CUB": "cub_transform", "Thrust": "thrust_transform"}, []),
        ("reduce", "float32", {"CUB": "cub_sum", "torch": "torch"}, []),
        (
            "mean_matvec",
            "float32",
            {"a pass that only reads": "read pass", "torch": "torch"},
            ["product=float32"],
        ),
    ):
        rows = beside(kernel, dtype, CUBE if options else "n=2**28", *options)
        best = next(iter(rows.values()))
        others = ", ".join(
            f"{name} {rows[key]['ratio']:.3f} ({rows[key]['verdict']})" for name, key in names.items()
        )
        share = f"{best['gbytes_per_s'] / 48:.1f} %"
        link = f"[`{kernel}`](docs/kernels/{kernel}.md), {dtype}"
        found.append([link, f"{best['ours_ns'] / 1e3:.2f}", share, others])
    return found


def test_the_readme_has_the_measured_figures() -> None:
    shown = [table for _, table in tables(ROOT / "README.md")]
    assert overview() in shown and products() in shown
    shapes = json.loads((EVIDENCE / "gemm-shapes.json").read_text())["problems"]
    text = prose(ROOT / "README.md")
    half = geometric_mean(
        one["race"]["rivals"]["torch"]["ratio"]
        for one in shapes
        if one["dtype"] == "float16" and one["n"] % 8 == one["k"] % 8 == 0
    )
    assert f"that is {mean_of_products(shapes):.3f} in the geometric mean, and {half:.3f} in float16" in text
    taken = [one["search"]["seconds"] for one in shapes if one["dtype"] == "bfloat16"]
    assert f"searched for in {min(taken):.0f} to {max(taken):.0f} seconds" in text
    beside_torch = re.findall(
        r"^torch .* faster: ([\d.]+)x \(", (EVIDENCE / "figures.txt").read_text(), re.MULTILINE
    )
    assert f"this configuration was {beside_torch[0]} times as fast" in text
    assert f"it is {beside_torch[1]} times as fast as `torch.mm` at 4096 cubed" in text
    rungs = {row[0]: row for row in ladder("transform")[1:]}
    for rung, words in (
        ("one block", "with one block"),
        ("one element a thread", "with one element a thread"),
        ("vectorized", "with vectors"),
    ):
        assert re.search(rf"{re.escape(rungs[rung][4])} (of the speed of light )?{words}", text), rung
    assert f"torch's kernel reaches {rungs['torch'][4]}" in text


def test_the_index_has_the_measured_figures() -> None:
    index = prose(ROOT / "docs" / "README.md")
    rungs = {row[0]: row for row in ladder("transform")[1:]}
    assert f"from {rungs['one block'][4]} of the speed of light with one block" in index
    assert f"{rungs['one element a thread'][4]} with one element a thread" in index
    assert f"{rungs['vectorized'][4]} with vectors" in index
    share = beside("reduce", "float32", "n=2**30")["data sheet"]["ratio"]
    assert f"{100 * share:.1f} % of the data sheet's bandwidth" in index
    read = beside("mean_matvec", "float32", CUBE, "product=tf32")["read pass"]["ratio"]
    assert f"{1 / read:.3f} times the time" in index


def test_pictures_are_those_of_the_ladders() -> None:
    for kernel, parts in (
        ("vector_add", ("roofline", "sizes")),
        ("transform", ("roofline", "sizes")),
        ("reduce", ("roofline", "sizes")),
        ("mean_matvec", ("roofline",)),
    ):
        page = (PAGES / f"{kernel}.md").read_text()
        for part in parts:
            name = f"images/ladder-{kernel}-{part}.svg"
            assert (ROOT / "docs" / name).is_file() and f"../{name}" in page


# -- docs/explaining.md shows what two commands print


@pytest.mark.parametrize("command", ["explain", "profile"])
def test_the_worked_example_is_what_was_printed(command: str) -> None:
    """Lines may be left out, none may be changed or moved."""
    text = (ROOT / "docs" / "explaining.md").read_text()
    blocks = [
        block.splitlines() for block in re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    (shown,) = (lines for lines in blocks if lines[0].startswith(f"$ tune {command} transform"))
    said = iter((EVIDENCE / f"{command}-transform.txt").read_text().splitlines())
    lines = [line for line in shown[1:] if line and line != "..."]
    assert len(lines) > 10
    for wanted in lines:
        assert wanted in said, wanted


def test_the_worked_example_concludes_from_what_was_printed() -> None:
    text = (ROOT / "docs" / "explaining.md").read_text()
    (section,) = re.findall(r"^## A winner, explained\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    words = re.sub(r"^```text\n.*?^```$|\]\([^)]*\)", "", section, flags=re.MULTILINE | re.DOTALL)
    printed = "".join(
        (EVIDENCE / f"{command}-transform.txt").read_text() for command in ("explain", "profile")
    )
    figures = set(re.findall(r"(?<![\w^.])(?:\d+\.\d+|\d{4})(?!\w)", words))
    assert {"88.3", "4191", "87.1", "61.8"} <= figures <= set(re.findall(r"\d+\.\d+|\d+", printed))
    intensity = re.search(r"arithmetic intensity +([\d.]+) FLOP/B; this GPU's ridge is at ([\d.]+)", printed)
    assert intensity
    assert f"by a factor of {float(intensity[2]) / float(intensity[1]):.0f} " in words
