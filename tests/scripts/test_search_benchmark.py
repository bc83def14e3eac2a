"""``scripts/search/benchmark.py`` replays a small recording in each of its ways."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = {
    "--batch 4": "batches of 4",
    "--ahead 6": "results 6 questions late",
    "--compilers 4 --seconds 0.3,0.1": "4 compilers",
    "--first default --warm 20": "taught by 20 trials",
}


@pytest.mark.parametrize("how", HEADINGS)
def test_a_recording_is_replayed(how: str) -> None:
    words = ["results/recorded", "--spaces", "mean_matvec", "--samplers", "gp-ei", "--seeds", "1"]
    done = subprocess.run(
        [sys.executable, "scripts/search/benchmark.py", *words, "--trials", "12", "--jobs", "1", *how.split()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert HEADINGS[how] in done.stdout.partition("\n")[0]
    runs = [line.split() for line in done.stdout.splitlines() if line.startswith(("mean_matvec", "all runs"))]
    assert len(runs) == 3 and all(words[-2] == "100%" for words in runs)  # all come near the best
