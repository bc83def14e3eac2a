"""Lists of problems on one GPU and on several, and one problem over several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fleets import searchers
from tests.gpu.several import several
from tuner.database.database import Database

TRIALS = 12
SIZES = (2**23, 2**25, 2**24)
LIST = ("-k", "vector_add", *(word for n in SIZES for word in ("--problem", f"n={n}")))
"""A kernel that is compiled in a moment, and whose winners are confirmed in a second."""


def tune(folder: Path, *arguments: str, trials: int = TRIALS) -> list[dict[str, Any]]:
    """Tune, check what is kept, and return the results."""
    words = ["-n", str(trials), "--db", str(folder / "tuning.db"), "--json", *arguments]
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "run", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records: list[dict[str, Any]] = json.loads(done.stdout)
    assert all(record["winner"]["exportable"] for record in records), done.stderr
    assert not any("waiting for the GPU" in line for line in done.stderr.splitlines())
    assert not any("another process has a context" in line for line in done.stderr.splitlines())
    with Database.open(folder / "tuning.db") as database:
        assert database.check().problems == []
    return records


def complete(database: Database, runs: int, trials: int) -> None:
    """Check that so many runs are finished, each trial there once; a GPU that drifts has some timed again."""
    assert database.check().problems == []
    assert [row["state"] for row in database.select("SELECT state FROM runs")] == ["finished"] * runs
    counts = database.select(
        "SELECT count(*) AS rows, count(DISTINCT number) AS numbers FROM trials GROUP BY run_id"
    )
    assert all(row["rows"] == row["numbers"] >= trials for row in counts)


@pytest.mark.parametrize("overlap", [(), ("--no-overlap",)])
def test_a_list_on_one_gpu(tmp_path: Path, overlap: tuple[str, ...]) -> None:
    records = tune(tmp_path, *LIST, "--device", "cuda:0", *overlap)
    assert [record["problem"]["sizes"]["n"] for record in records] == list(SIZES)
    with Database.open(tmp_path / "tuning.db") as database:
        complete(database, runs=3, trials=TRIALS)


def test_a_killed_searcher_costs_its_trials_under_way(tmp_path: Path) -> None:
    words = ["-n", "60", "--db", "tuning.db", *LIST, "--device", "cuda:0"]
    tuner = subprocess.Popen(
        [sys.executable, "-m", "tuner", "run", *words],
        cwd=tmp_path,
        env={**os.environ, "RUN_OF_A_TEST": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(6.0)
    for pid in searchers(f"RUN_OF_A_TEST={tmp_path}")[:1]:
        os.kill(pid, signal.SIGKILL)
    try:
        output, _ = tuner.communicate(timeout=120)
    finally:
        tuner.kill()
    assert tuner.returncode == 0, output
    with Database.open(tmp_path / "tuning.db") as database:
        complete(database, runs=3, trials=60)


@several
def test_a_list_on_all_gpus(tmp_path: Path) -> None:
    records = tune(tmp_path, *LIST, "--device", "cuda:all")
    assert len({record["device"] for record in records}) > 1
