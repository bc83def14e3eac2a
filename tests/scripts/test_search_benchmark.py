"""``scripts/search/benchmark.py`` replays a small recording in each of its ways, in this process."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from scripts.search import benchmark
from tuner.core import paths

HEADINGS = {
    "--batch 4": "batches of 4",
    "--compilers 4 --seconds 0.3,0.1": "4 compilers",
    "--first default --taught 1 --warm 20": "taught by 20 trials",
}


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    return benchmark.read_cases([paths.recordings()], ["mean_matvec"])


@pytest.mark.parametrize("how", HEADINGS)
def test_a_recording_is_replayed(
    how: str, cases: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "CASES", [])
    monkeypatch.setattr(benchmark, "read_cases", lambda *_: cases)
    monkeypatch.setattr(benchmark, "run_all", lambda work, jobs, _: list(map(work, jobs)))
    words = ["recorded", "--samplers", "gp-ei", "--seeds", "1", "--trials", "12", *how.split()]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *words])
    benchmark.main()
    said = capsys.readouterr().out
    assert HEADINGS[how] in said.partition("\n")[0]
    runs = [line.split() for line in said.splitlines() if line.startswith(("mean_matvec", "all runs"))]
    assert len(runs) == 3 and all(words[-2] == "100%" for words in runs)  # all come near the best
