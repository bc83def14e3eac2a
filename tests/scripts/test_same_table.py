"""The study of whether the table of winners is the same twice: its cards, and what it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.database.database import Database

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]

COUNTED = """
import json, sys
from pathlib import Path

from scripts.reproducing.simulated import Study, compared, run, totals
from tuner.core import paths
from tuner.formats.recording import read_recording
path = paths.recordings() / "vector_add-H200.json.gz"
problem = read_recording(path).problems[0].problem
runs = [run(Study(cards=2, trials=12), path, problem, card) for card in (0, 1, 0)]
print(json.dumps([totals([compared(problem, pair)]) for pair in (runs[:2], runs[::2])]))
"""

MEASURED = """
import sys
from argparse import Namespace
from pathlib import Path

from scripts.reproducing import measured
measured.PRODUCTS, measured.OTHERS = (), {"vector_add": ["n=2**20"]}
work = Path(sys.argv[1])
for seconds, again in ((0.0, 8), (100.0, 0), (100.0, 8)):
    given = Namespace(seconds=seconds, device=["replay"] * 2, work=work, out=work, problems=1, jobs=None)
    given.trials, given.again = 8, again
    print(measured.measure(given))
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


def test_what_is_left_to_measure_is_measured_when_it_is_started_again(tmp_path: Path) -> None:
    lines = said_by(MEASURED, str(tmp_path)).splitlines()
    assert "0 of 1 races" in lines
    assert lines.count("1 of 1 races") == 2 and lines[-1] == "0", "both searches are on one device"
    written = json.loads((tmp_path / "same-table-gpu.json").read_text())
    (race,) = written["races"]
    assert not race["same"]["tuned"], "so it was tuned again"
    assert race["means_ns"].keys() == {"tuned", "again", "initial"}
    assert all(time_ns > 0 for pair in race["means_ns"].values() for time_ns in pair)
    assert any("NVIDIA H200" in line for line in written["about"])
    with Database.open(tmp_path / "0-again.db", write=False) as database:
        seeds = [database.run(run_id).options.seed for run_id in database.run_ids()]
    assert len(seeds) == len(set(seeds)) == 3, "its own run, after those of both"
