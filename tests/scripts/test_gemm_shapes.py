"""scripts/gemm_shapes.py: what is done once, and on which GPU; with a `tune` of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from scripts import gemm_shapes, harness, shape_notes
from scripts.shape_notes import Notes, Problem, Shape
from tests.scripts.shape_command import Command, problems, study

CUBE, FEW, ODD = Shape(4096, 4096, 4096), Shape(16, 8192, 8192), Shape(4095, 4097, 4093)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command()
    monkeypatch.setattr(gemm_shapes, "tune", command)
    return command


def test_shapes_are_those_of_the_table() -> None:
    assert len(shape_notes.SHAPES) == 16 and len(set(shape_notes.SHAPES)) == 16
    assert [one.shape for one in problems(*shape_notes.SHAPES) if one.odd] == [ODD]
    assert Shape.parse("4096") == CUBE and Shape.parse("16x8192x8192") == FEW
    for text in ("4x4", "0x1x1"):
        with pytest.raises(argparse.ArgumentTypeError):
            Shape.parse(text)


def test_nothing_is_measured_twice(tmp_path: Path, command: Command) -> None:
    study(tmp_path, CUBE)
    before = len(command.calls)
    _, rows = study(tmp_path, CUBE)
    assert len(command.calls) == before
    assert rows[0]["race"]["rivals"]["torch"]["ratio"] == 1.1
    study(tmp_path, CUBE, FEW)
    assert "m=16,n=8192,k=8192" in command.calls[-1] and "m=4096,n=4096,k=4096" not in command.calls[-1]


def test_what_was_found_before_an_end_is_kept(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 100.0, 200.0, 300.0])
    monkeypatch.setattr(harness.time, "monotonic", lambda: next(clock))
    notes, rows = study(tmp_path, CUBE, FEW, steps="search", seconds=50.0)
    assert [row["m"] for row in rows] == [4096]
    assert not Notes(tmp_path).has(problems(CUBE)[0], "search")  # its winner is not there
    notes.winners.touch()
    assert Notes(tmp_path).has(problems(CUBE)[0], "search")
    assert not notes.has(problems(FEW)[0], "search")


def test_no_more_races_are_begun_than_there_is_time_for(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [Shape(64 * i, 64, 64) for i in range(1, 5)]
    notes, _ = study(tmp_path, *shapes, steps="search")
    notes.winners.touch()
    monkeypatch.setattr(harness.time, "monotonic", lambda: 0.0)
    notes, _ = study(tmp_path, *shapes, steps="race", seconds=2.5 * gemm_shapes.RACE_S)
    assert [notes.has(problem, "warm") for problem in problems(*shapes)] == [True, True, False, False]
    study(tmp_path, *shapes, steps="race", seconds=100.0)
    assert command.calls[-1].count("--problem") == 2


def test_problems_are_drawn_by_a_seed() -> None:
    found = shape_notes.drawn(60, 7, ["bfloat16", "float16"])
    assert found == shape_notes.drawn(60, 7, ["bfloat16", "float16"])
    assert found != shape_notes.drawn(60, 8, ["bfloat16", "float16"])
    assert found[:20] == shape_notes.drawn(20, 7, ["bfloat16", "float16"])
    assert len(set(found)) == 60 and sum(problem.odd for problem in found) == 20
    assert {problem.layout for problem in found} == set(shape_notes.LAYOUTS)
    sizes = [size for problem in found for size in vars(problem.shape).values()]
    assert 16 <= min(sizes) < 32 and 8192 < max(sizes) <= 16384
    assert sum(size < 512 for size in sizes) == pytest.approx(90, abs=25)  # the middle of the logarithms


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
