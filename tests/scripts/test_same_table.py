"""The study of whether the table of winners is the same twice: its cards, and what it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]

COUNTED = """
import json, sys
from pathlib import Path

from scripts.same_table import Study, compared, run, totals
from tuner.core import paths
from tuner.formats.recording import read_recording
path = paths.recordings() / "vector_add-H200.json.gz"
problem = read_recording(path).problems[0].problem
runs = [run(Study(cards=2, trials=12), path, problem, card) for card in (0, 1, 0)]
print(json.dumps([totals([compared(problem, pair)]) for pair in (runs[:2], runs[::2])]))
"""


def said_by(code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *arguments]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_two_runs_on_one_card_with_one_seed_are_the_same_and_others_are_compared() -> None:
    apart, alike = json.loads(said_by(COUNTED))
    assert {"fastest", "decision", "initial"} == apart.keys()
    for rule in alike.values():
        assert (rule["same"], rule["within"], rule["apart_max"]) == (1.0, 1.0, 0.0)
    assert 0 <= apart["decision"]["behind"] <= apart["decision"]["behind_max"] < 1
