"""Calls of a bundle, captured in a stream, beside the tuner's own launches of the same cubins: right, and as fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RACE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from scripts.calling.bundles import write_bundles
from scripts.calling.cases import cases
from scripts.calling.bundles import build, compilers
from scripts.calling.races import Races, describe

gpu, work = describe(), Path(sys.argv[2])
chosen = [case for case in cases(gpu) if case.key.startswith(sys.argv[3])][:1]
compiler = compilers()["g++"]
libraries = {"g++": build("g++", compiler, "c_interface.cpp", work / "launcher.so", shared=True)}
races = Races(write_bundles(chosen, gpu, work / "bundles"), libraries, 12, 0)
for row in races.rows(chosen[0], ["own", "warm"]):
    print(json.dumps(row))
races.close()
"""


@pytest.mark.parametrize(
    "problem", ["gemm 512x512x512", "gemm 512x512x65536", "reduce 1048576", "saxpy 1048576", "sort"]
)
def test_calls_take_as_long_as_the_tuners_own_launches(problem: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACE, str(ROOT), str(tmp_path), problem]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row.get("error", "") for row in rows] == ["", ""]
    for row in rows:
        assert row["verified"]
        assert all(ratio["median"] < 1.05 + row["noise"] for ratio in row["ratios"].values()), row
