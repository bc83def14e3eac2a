"""Tables of gemm's shapes: what is asked of the figures, and what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts import gemm_shapes
from scripts.shape_notes import Problem, Shape
from tests.scripts.shape_command import Command

CUBE, FEW, ODD = Shape(4096, 4096, 4096), Shape(16, 8192, 8192), Shape(4095, 4097, 4093)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command()
    monkeypatch.setattr(gemm_shapes, "tune", command)
    return command


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
            "--work", str(tmp_path / "work"), "--out", str(tmp_path), "--dtypes", dtype, "--shapes",
            str(shape),
        ]  # fmt: skip
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
