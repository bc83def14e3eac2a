"""A ladder's figures: names, ceilings, and what the axes say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.studies.ladder_figures import Series, plot_roofline, plot_sizes

MEMORY = ("memory: 4 TB/s, measured", 4e12)
PEAKS = {"float32: 60 TFLOP/s, measured": 6e13, "tensor cores: 800 TFLOP/s": 8e14}


def words_of(path: Path) -> str:
    return re.sub(r"\s+", " ", " ".join(re.findall(r">([^<>]+)</t", path.read_text())))


def test_roofline(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = [
        Series("naive", [20.0, 40.0], [1e12, 2e12]),
        Series("weird $x^", [20.0, 40.0], [1e13, 4e13]),
        Series("torch", [40.0], [5e13], baseline=True),
    ]
    path = tmp_path / "roofline.svg"
    plot_roofline(shown, MEMORY, PEAKS, "gemm $m", path)
    text = words_of(path)
    for word in ("naive", "weird $x^", "torch", "gemm $m", MEMORY[0], *PEAKS):
        assert word in text, word
    first = path.read_bytes()
    plot_roofline(shown, MEMORY, PEAKS, "gemm $m", path)
    assert path.read_bytes() == first


def test_a_roofline_of_one_size_has_plain_numbers(tmp_path: Path) -> None:
    """Its axis spans about a decade, where matplotlib itself would write powers of ten between the lines.

    The point, which is above every ceiling, is drawn all the same.
    """
    pytest.importorskip("matplotlib")
    path = tmp_path / "roofline.svg"
    plot_roofline([Series("one", [1365.0], [1e16])], MEMORY, PEAKS, "", path)
    text = words_of(path)
    assert "mathdefault" not in text
    assert {"one", "500", "1000", "2000"} <= set(text.split())


def test_unknown_ceilings(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "roofline.svg"
    for bandwidth, peaks in ((None, PEAKS), (None, {})):
        plot_roofline([Series("one", [0.1], [1e9])], bandwidth, peaks, "", path)
        assert "one" in words_of(path)


def test_sizes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    sizes = [2**e for e in range(4, 29)]
    shown = [
        Series("scalar", sizes, [1e3 + n for n in sizes], [n / (1e3 + n) for n in sizes]),
        Series("torch", sizes[3:], [2e3 + n for n in sizes[3:]], [1.0 for _ in sizes[3:]], baseline=True),
    ]
    limits = [Series(f"limit {i}", sizes[:5], [500.0] * 5, [1.0] * 5) for i in range(6)]
    plot_sizes(shown, limits, "GB/s", "m = n", "gemm $m", tmp_path / "sizes.svg")
    text = words_of(tmp_path / "sizes.svg")
    for word in ("scalar", "torch", "limit 5", "GB/s", "m = n, logarithmic", "2^28", "10 us", "gemm $m"):
        assert word in text, word
    assert "2^15 " not in text  # of 25 sizes not all have a number
