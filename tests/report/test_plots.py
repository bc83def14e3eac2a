"""Time against error as a figure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.report.plots import ParetoPoint, plot_pareto


def test_pareto_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    points = [
        ParetoPoint("float32", 2e6, 3e-7, front=True, winner=True),
        ParetoPoint("float32", 3e6, 4e-7),
        ParetoPoint("bfloat16", 5e5, 2e-3, front=True),
        ParetoPoint("weird $x^", 6e5, 0.0, front=True),
    ]
    plot_pareto(points, tmp_path / "front.svg", "gemm $m", 1e-3)
    text = " ".join(re.findall(r">([^<>]+)</t", (tmp_path / "front.svg").read_text()))
    for word in (
        "float32",
        "bfloat16",
        "weird $x^",
        "winner",
        "Pareto front",
        "error allowed: 0.001",
        "gemm $m",
    ):
        assert word in text, word
