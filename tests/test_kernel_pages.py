"""The tables of docs/kernels/ say what the evidence says: what is measured again must be written again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.pages import (
    EVIDENCE,
    PAGES,
    ROOT,
    Table,
    beside,
    contests,
    ladder,
    ladder_text,
    line,
    measured,
    prose,
    raced,
    seconds,
    tables,
)

pytestmark = pytest.mark.skipif(not EVIDENCE.is_dir(), reason="needs the evidence of a checkout")

# -- the pages

CUBE = "groups=1024,vectors=1024,length=1024"
LIBRARIES = {"default": "default", "torch": "torch"}
BOTH = ("float32", "float16")


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


def least(kernel: str) -> str:
    """Return what the least kernel takes, in us, as the first footnote has it."""
    found = re.search(r"512 bytes takes ([\d.]+) us", ladder_text(kernel))
    assert found
    return found[1]


def rest_us(product: str) -> str:
    read = beside("mean_matvec", "float32", CUBE, f"product={product}")["read pass"]
    return f"{(read['ours_ns'] - read['rival_ns']) / 1e3:.0f}"


def claims() -> Iterator[tuple[str, str]]:
    """Return each page's sentences whose figures are worked out from those of the evidence."""
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
    assert (len(said), single) == (16, 5)


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
    assert overview() in shown
    text = prose(ROOT / "README.md")
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
