"""scripts/search: a small recording is replayed in each way, and winners are judged by rounds that chose nothing."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from scripts.search import benchmark, winners
from scripts.search.tables import score
from tuner.core import paths

HEADINGS = {
    "--batch 4 --taught 0": "batches of 4",
    "--compilers 4 --seconds 0.3,0.1 --taught 0": "4 compilers",
    "--first default --taught 1 --warm 20": "taught by 20 trials",
}


@pytest.fixture(scope="module")
def recorded() -> list[Any]:
    return benchmark.read_cases([paths.recordings()], ["saxpy"])


@pytest.mark.parametrize("how", HEADINGS)
def test_a_recording_is_replayed(
    how: str, recorded: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "CASES", [])
    monkeypatch.setattr(benchmark, "read_cases", lambda *_: recorded)
    monkeypatch.setattr(benchmark, "run_all", lambda work, jobs, _: list(map(work, jobs)))
    words = ["recorded", "--samplers", "gp-ei", "--seeds", "1", "--trials", "12", *how.split()]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words])
    benchmark.main()
    said = capsys.readouterr().out
    assert HEADINGS[how] in said.partition("\n")[0]
    runs = [line.split() for line in said.splitlines() if line.startswith(("saxpy", "all runs"))]
    assert all("100%" in words for words in runs)  # all come near the best
    assert len(runs) == (6 if "--taught 1" in how else 3)
    assert ("taught by 1\n" in said) == ("--taught 1" in how)


def test_the_score_of_random_order_is_0_and_that_of_the_best_at_once_1() -> None:
    rng = np.random.default_rng(0)
    times = np.append(rng.lognormal(size=99), np.nan)
    tried = np.where(np.isnan(times), np.inf, times)
    random = [np.minimum.accumulate(rng.permutation(tried)).tolist() for _ in range(2000)]
    assert score(times, random, 100) == pytest.approx(0.0, abs=0.05)
    assert score(times, [[float(np.nanmin(times))]], 100) == 1.0


def test_the_best_is_not_chosen_by_the_rounds_that_judge_it() -> None:
    """Among equal contestants each process has a lucky one; that is no regret. A slower winner is one."""
    draw = np.random.default_rng(1)
    equal = [1.0 + draw.normal(0, 0.01, (30, 9)) + draw.normal(0, 0.003, 9) for _ in range(40)]
    assert np.mean(winners.behind(equal, 0)) == pytest.approx(1.0, abs=0.002)
    naive = np.mean([np.median(own[:, [0]] / own, axis=0).max() for own in equal])
    assert naive > 1.004
    slower = [own * np.where(np.arange(9) == 0, 1.02, 1.0) for own in equal]
    assert np.mean(winners.behind(slower, 0)) == pytest.approx(1.02, abs=0.003)
    assert winners.behind(slower, 0, best=0) == [1.0] * 40
