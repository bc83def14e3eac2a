"""Tables of gemm's shapes: what is asked of the figures, and what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts import gemm_shapes, pages, shape_notes
from scripts.gemm_shapes import Study
from scripts.page_figures import evidence
from scripts.shape_notes import Problem, Shape
from tests.scripts.shape_command import Command, given, problems, study

CUBE, FEW, ODD = Shape(4096, 4096, 4096), Shape(16, 8192, 8192), Shape(4095, 4097, 4093)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command()
    monkeypatch.setattr(gemm_shapes, "tune", command)
    return command


def test_pages_tables_are_printed(tmp_path: Path, command: Command) -> None:
    notes, rows = study(tmp_path, CUBE, FEW, ODD, steps="search,race")
    text = shape_notes.report(notes, None)
    assert len(rows) == 3 and "| 4096 x 4096 x 4096 | cold | 170.00 | 800.0 | 1.100, faster |" in text
    assert "over the 2 shapes with aligned rows: **1.100** to torch.mm, **1.080** to best of cuBLASLt" in text


def test_evidence(tmp_path: Path, command: Command) -> None:
    notes, _ = study(tmp_path / "work", CUBE, ODD)
    shape_notes.report(notes, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "gemm-shapes.json").read_text())
    assert (found["gpu"], found["driver"]) == ("NVIDIA H200", "13.0")
    assert [(one["m"], one["n"], one["k"], one["dtype"]) for one in found["problems"]] == [
        *((4096, 4096, 4096, "bfloat16"), (4095, 4097, 4093, "bfloat16")),
    ]
    assert notes.problems() == problems(CUBE, ODD)
    assert "| `wgmma` |" in (tmp_path / "out" / "gemm-shapes.txt").read_text()


def test_the_table_has_all_that_is_known(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever pieces it was measured in."""
    for dtype, layout, shape in (
        ("float16", "nn", ODD),
        ("bfloat16", "nn", FEW),
        ("bfloat16", "nt", CUBE),
        ("float16", "nn", CUBE),
    ):
        words = [
            "--work",
            str(tmp_path / "work"),
            "--out",
            str(tmp_path),
            "--dtypes",
            dtype,
            "--shapes",
            str(shape),
        ]
        monkeypatch.setattr(
            sys, "argv", ["gemm_shapes.py", *words, "--layout", layout, "--steps", "search,race"]
        )
        gemm_shapes.main()
    found = json.loads((tmp_path / "gemm-shapes.json").read_text())["problems"]
    assert [(one["dtype"], one["layout"], one["m"]) for one in found] == [
        ("float16", "nn", 4096),
        ("float16", "nn", 4095),
        ("bfloat16", "nn", 16),
        ("bfloat16", "nt", 4096),
    ]


def test_pages_have_both_timings(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Study(given(work=tmp_path / "work"))
    notes.wanted = [Problem(shape, "bfloat16", layout) for layout in ("nn", "nt") for shape in (CUBE, FEW)]
    notes.run(["search", "race"])
    shape_notes.report(notes, tmp_path)
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    assert "| mean to `torch.mm`, back to back | 1.020 | 1.020 |" in pages.FIGURES["gemm.summary"]()
    assert "| 1.100, faster | 1.080, faster | 1.020, faster |" in pages.FIGURES["gemm.shapes"](
        "bfloat16", "nt"
    )


@pytest.mark.parametrize(
    ("layout", "shape", "odd"),
    [
        *(("nn", "5x8x8", False), ("nn", "8x8x5", True), ("nt", "5x8x8", False), ("nt", "8x5x8", True)),
        *(("tn", "5x8x8", True), ("tn", "8x8x5", False), ("tt", "8x8x5", True), ("tt", "8x5x8", True)),
    ],
)
def test_rows_that_are_no_whole_16_bytes_are_odd(layout: str, shape: str, odd: bool) -> None:
    """Of A, B or C."""
    assert Problem(Shape.parse(shape), "float16", layout).odd == odd


def test_drawn_problems_have_a_table_of_their_own(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.ratios = {"torch": 1.03}
    words = ["--work", str(tmp_path / "work"), "--out", str(tmp_path), "--steps", "search,race"]
    words += ["--random", "9", "--random-seed", "3"]
    monkeypatch.setattr(sys, "argv", ["gemm_shapes.py", *words])
    gemm_shapes.main()
    data = json.loads((tmp_path / "gemm-random.json").read_text())
    assert data["drawn"] == {"count": 9, "seed": 3, "dtypes": ["bfloat16", "float16"]}
    assert len(data["problems"]) == 9
    text = (tmp_path / "gemm-random.txt").read_text()
    assert "NVIDIA H200, seed 3, rested" in text and "Geometric means: **1.030** and **1.020**" in text
    assert not (tmp_path / "gemm-shapes.txt").exists()
    before = len(command.calls)
    gemm_shapes.main()
    assert len(command.calls) == before
    monkeypatch.setattr(sys, "argv", ["gemm_shapes.py", *words, "--random-seed", "4"])
    with pytest.raises(SystemExit):
        gemm_shapes.main()
