"""The commands a user types, on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.kernel.load import load_kernel


def tune(folder: Path, *arguments: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert status in (None, done.returncode), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    done = tune(folder, "--kernel", "vector_add", "--trials", "40", "--size", "n=2**22", "--json")
    (folder / "result.json").write_text(done.stdout)
    return folder


def test_main_job_confirms_a_winner(tuned: Path) -> None:
    (result,) = json.loads((tuned / "result.json").read_text())
    winner = result["winner"]
    assert not result["replayed"] and result["device"] == "cuda:0"
    assert winner["exportable"] and winner["edge_sizes_verified"] >= 5
    assert abs(winner["confirmed_ns"] - winner["time_ns"]) <= max(
        0.03 * winner["time_ns"], 500.0
    )  # events resolve 0.5 us
    assert 0.3 < winner["speed_of_light"] < 1.0
    if "versus_default" in result:
        assert result["versus_default"]["ratio"] > 0.97
    else:  # it has nothing to be compared with but itself
        assert winner["configuration"] == load_kernel("vector_add").variants[winner["variant"]].defaults


def test_a_short_product_holds_cold_and_back_to_back(tmp_path: Path) -> None:
    """Chosen by both modes, which the result, the database and a header say; of a named mode alone if one is named."""
    product = ["--kernel", "gemm", "--size", "m=512,n=512,k=512", "--dtype", "bfloat16", "--json", "-q"]
    (result,) = json.loads(tune(tmp_path, *product, "--trials", "40", "--time", "5").stdout)
    assert result["mode"] == "rotating"
    winner, warm = result["winner"], result["winner"]["warm"]
    assert winner["exportable"], winner["reason"]
    assert 0.3 * winner["time_ns"] < warm["time_ns"] < 1.2 * winner["time_ns"]
    assert min(warm["behind"], warm["behind_in_mode"]) >= 0.99
    assert max(warm["behind"], warm["behind_in_mode"]) < 1.25
    assert result["race"]["warm"]["rounds"] >= 12
    (best,) = json.loads(tune(tmp_path, "best", "--json").stdout)
    assert best["warm_time_ns"] == warm["time_ns"]
    (alone,) = json.loads(tune(tmp_path, *product, "--trials", "10", "--mode", "rotating").stdout)
    assert alone["winner"]["warm"] is None
    (best,) = json.loads(tune(tmp_path, "best", "--json").stdout)
    assert best["warm_time_ns"] == warm["time_ns"]


def test_best_and_export_follow(tuned: Path) -> None:
    (best,) = json.loads(tune(tuned, "best", "--json").stdout)
    assert best["kernel"] == "vector_add"
    tune(tuned, "export", "-o", "best.hpp")
    assert "vector_add" in (tuned / "best.hpp").read_text()


def test_a_trial_measured_again_agrees(tuned: Path) -> None:
    (result,) = json.loads((tuned / "result.json").read_text())
    again = json.loads(tune(tuned, "trial", str(result["winner"]["trial"]), "--again", "--json").stdout)
    assert again, again


def test_tuning_again_adds(tuned: Path) -> None:
    done = tune(tuned, "--kernel", "vector_add", "--trials", "20", "--size", "n=2**22")
    assert "known from earlier runs" in done.stderr
    rows = json.loads(tune(tuned, "query", "--json", "--limit", "100").stdout)
    assert len(rows) == 60


def test_each_choice_of_the_winner_is_undone(tuned: Path) -> None:
    size = ["--size", "n=2**22", "--parameter", "block_size", "--rounds", "8"]
    found = json.loads(tune(tuned, "ablate", "vector_add", *size, "--json").stdout)
    assert found["source"].startswith("winner") and found["complete"] and not found["error"]
    assert [choice["parameter"] for choice in found["choices"]] == ["block_size"]
    timed = [one for choice in found["choices"] for one in choice["alternatives"] if one["ratio"]]
    assert timed and all(0.9 < one["ratio"] < 20 for one in timed)
    assert any(one["ratio_low"] <= one["ratio"] <= one["ratio_high"] for one in timed)
    rows = json.loads(tune(tuned, "bench", "--history", "--json").stdout)
    assert len(rows) == 1 + len(timed)


def test_two_problems_in_one_command(tuned: Path) -> None:
    text = tune(
        tuned, "--kernel", "gemm", "--trials", "12", "--variant", "mma_sync", "--problem", "m=512,n=512,k=512",
        "--problem", "m=100,n=300,k=77", "--quiet",
    ).stdout  # fmt: skip
    assert text.count("  winner  ") == 2


def test_doctor_finds_the_gpu(tuned: Path) -> None:
    findings = [(f["what"], f["state"]) for f in json.loads(tune(tuned, "doctor", "--json").stdout)]
    assert ("GPU", "ok") in findings and ("fit", "ok") in findings


def test_no_such_gpu_is_one_line(tuned: Path) -> None:
    done = tune(tuned, "--kernel", "vector_add", "--device", "cuda:99", status=1)
    assert done.stderr.strip().count("\n") == 0 and "99" in done.stderr


def test_problem_too_large_is_one_line(tuned: Path) -> None:
    done = tune(tuned, "--kernel", "gemm", "--size", "m=2**19,n=2**19,k=16", status=1)
    assert "fit" in done.stderr.splitlines()[-1]
