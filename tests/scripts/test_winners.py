"""``scripts/search/winners.py``: how far winners are behind, by rounds that chose nothing; on a simulated GPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scripts.search import winners as script
from tests.simulated_gpu import SimulatedGpu


def test_the_best_is_not_chosen_by_the_rounds_that_judge_it() -> None:
    """Among equal contestants each process has a lucky one; that is no regret. A slower winner is one."""
    draw = np.random.default_rng(1)
    equal = [1.0 + draw.normal(0, 0.01, (30, 9)) + draw.normal(0, 0.003, 9) for _ in range(40)]
    assert np.mean(script.behind(equal, 0)) == pytest.approx(1.0, abs=0.002)
    naive = np.mean([np.median(own[:, [0]] / own, axis=0).max() for own in equal])
    assert naive > 1.004
    slower = [own * np.where(np.arange(9) == 0, 1.02, 1.0) for own in equal]
    assert np.mean(script.behind(slower, 0)) == pytest.approx(1.02, abs=0.003)
    assert script.behind(slower, 0, best=0) == [1.0] * 40


def test_it_measures_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[SimulatedGpu] = []

    def open_device(*_: object) -> SimulatedGpu:
        opened.append(SimulatedGpu())
        return opened[-1]

    monkeypatch.setattr(script, "open_device", open_device)
    for name, value in {"TRIALS": 12, "FEW": 4, "MANY": 14, "ROUNDS": 6}.items():
        monkeypatch.setattr(script, name, value)
    words = ["--work", str(tmp_path / "w"), "--out", str(tmp_path / "o"), "--only", "gemm,m=2048"]
    assert script.main(words) == 0
    data = json.loads((tmp_path / "o" / "winners.json").read_text())
    for step in ("finalists", "budget"):
        (row,) = data[step].values()
        assert 0.9 < data["summary"][step]["geomean"] == data["summary"][step]["worst"]
        assert row["chosen"]
    (row,) = data["finalists"].values()
    assert len(row["behind"]) == len(row["times_ns"]) == script.PROCESSES
    assert row["chosen"] in row["contestants"]
    assert "finalists: 1 problems, geometric mean" in capsys.readouterr().out
    known = len(opened)
    assert script.main(words) == 0
    assert len(opened) == known  # nothing is measured again
