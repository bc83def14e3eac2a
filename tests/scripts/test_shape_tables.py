"""Tables of gemm's shapes: what is asked of the figures, and what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts import gemm_shapes, pages, shape_tables
from scripts.gemm_shapes import Study
from scripts.page_figures import evidence
from scripts.shape_notes import Notes, Problem, Shape
from tests.scripts.shape_command import Command, given, problems, study

CUBE, FEW, ODD = Shape(4096, 4096, 4096), Shape(16, 8192, 8192), Shape(4095, 4097, 4093)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command()
    monkeypatch.setattr(gemm_shapes, "tune", command)
    monkeypatch.setattr(gemm_shapes, "keep_winners", lambda own, winners: command.kept.append(own.name))
    return command


def test_met(tmp_path: Path, command: Command) -> None:
    _, rows = study(tmp_path, CUBE, FEW, steps="search,race")
    assert dict(rows[0].asked()) == {
        "1.00 of torch, as tuned": True,
        "0.99 of torch, back to back": True,
        "faster than torch": True,
        "faster than cublaslt": True,
        "found in 90 s": True,
    }
    assert set(dict(rows[1].asked())) >= {"not slower than torch", "not slower than cublaslt"}
    assert shape_tables.means(rows) == pytest.approx({"torch": 1.1, "cublaslt": 1.08})
    text = shape_tables.table(rows, {"gpu": "NVIDIA H200", "driver": "13.0"})
    mean = "as tuned: geometric mean of 2 with whole 16-byte rows: 1.100 to torch, 1.080 to cublaslt; asked 1.05: met"
    assert mean in text
    assert "MISSED" not in text


@pytest.mark.parametrize(("shape", "asked"), [(CUBE, "faster than torch"), (ODD, "3.5 of torch")])
def test_missed(shape: Shape, asked: str, tmp_path: Path, command: Command) -> None:
    command.ratios = {"torch": 1.005}
    _, rows = study(tmp_path, shape)
    assert dict(rows[0].asked())[asked] is False
    assert f"MISSED: {asked}" in shape_tables.table(rows, {})


def test_most_need_only_be_as_fast(tmp_path: Path, command: Command) -> None:
    command.ratios = {"torch": 1.001, "cublaslt": 0.95}
    _, rows = study(tmp_path, FEW)
    said = dict(rows[0].asked())
    assert (said["not slower than torch"], said["not slower than cublaslt"]) == (True, False)


def test_odd_rows_are_no_part_of_the_mean(tmp_path: Path, command: Command) -> None:
    command.ratios = {"torch": 4.0}
    _, rows = study(tmp_path, ODD)
    assert shape_tables.means(rows) == {}
    assert dict(rows[0].asked())["3.5 of torch"]


def test_evidence(tmp_path: Path, command: Command) -> None:
    notes, _ = study(tmp_path / "work", CUBE, ODD)
    shape_tables.report(notes, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "gemm-shapes.json").read_text())
    assert (found["gpu"], found["driver"]) == ("NVIDIA H200", "13.0")
    assert [(one["m"], one["n"], one["k"], one["dtype"]) for one in found["problems"]] == [
        *((4096, 4096, 4096, "bfloat16"), (4095, 4097, 4093, "bfloat16")),
    ]
    assert notes.problems() == problems(CUBE, ODD)
    assert "| wgmma block_m=128 stages=4 |" in (tmp_path / "out" / "gemm-shapes.txt").read_text()


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
    notes = Notes(tmp_path / "work")
    everything = [Problem(shape, "bfloat16", layout) for layout in ("nn", "nt") for shape in (CUBE, FEW)]
    Study(notes, everything, given()).run(["search", "race"])
    shape_tables.report(notes, tmp_path)
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    assert "| mean to `torch.mm`, back to back | 1.020 | 1.020 |" in pages.FIGURES["gemm-summary"]()
    assert "| 1.100, faster | 1.080, faster | 1.020, faster |" in pages.FIGURES["gemm-shapes"](
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
    assert "9 problems drawn by seed 3" in text
    assert "as tuned: 0 of 9 intervals against torch.mm wholly below 0.98" in text
    assert "geometric mean of 6 with whole 16-byte rows: 1.030 to torch; asked 1.04: MISSED" in text
    assert not (tmp_path / "gemm-shapes.txt").exists()
    before = len(command.calls)
    gemm_shapes.main()
    assert len(command.calls) == before
    monkeypatch.setattr(sys, "argv", ["gemm_shapes.py", *words, "--random-seed", "4"])
    with pytest.raises(SystemExit):
        gemm_shapes.main()
