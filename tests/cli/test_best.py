"""``tune best`` and ``tune trial``: what won, how sure that is, and all that is known of one configuration."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.filled_database import (
    GEMM,
    HOT,
    SMALL,
    WARM,
    call,
    fails,
    fill,
)
from tests.stored import make_run
from tuner.cli.commands.results import best, trial, trials
from tuner.cli.commands.winners import export
from tuner.core.model import Problem, RunOptions, Trial
from tuner.database.database import Database
from tuner.database.records import StoredTrial
from tuner.kernel.load import load_kernel

pytestmark = pytest.mark.usefixtures("forked_children")


# -- best


def test_best_says_how_sure_it_is(path: Path) -> None:
    head, line = call(best, "--full").output.splitlines()
    for part in (
        "gemm",
        "190 us",
        "1.263x (1.250 .. 1.270)",
        "190.3 us in a fresh process, right at edge-case sizes",
    ):
        assert part in line
    head, line = call(best).output.splitlines()
    assert re.split("  +", head) == [
        "problem",
        "time",
        "of peak",
        "speedup",
        "configuration (else default)",
        "trial",
    ]
    assert re.split("  +", line)[1:] == [
        "190 us",
        "36.5 %",
        "1.263x",
        "split_k block_m=128 double_buffer=no",
        "#1",
    ]


def test_what_tells_winners_apart_is_shown(path: Path) -> None:
    """Measured and replayed; and that one was refused."""
    assert "source" in call(best, "--replayed").output.splitlines()[0]
    fill(path, "c", SMALL, exportable=False)
    head, *lines = call(best).output.splitlines()
    assert "confirmed" in head and any("no: a fresh process took 300 us" in line for line in lines)


def test_a_winners_rate_is_that_of_its_time(path: Path) -> None:
    """Its trial took 190.1 us in the search, at 500 GB/s; in the race it took 190 us."""
    (record,) = json.loads(call(best, "--json").output)
    assert record["time_ns"] == 190_000.0
    assert record["gbytes_per_s"] == pytest.approx(500 * 190.1 / 190)
    assert record["speed_of_light"] == pytest.approx(0.365 * 190.1 / 190)


def test_best_says_when_no_edge_case_size_suited_the_winner(path: Path) -> None:
    fill(path, "c", SMALL, edges_verified=False)
    said = call(best, "--size", "m=1", "--full").output
    assert "190.3 us in a fresh process, verified at no edge-case size" in said


def test_replayed_winners_are_shown_on_request(path: Path) -> None:
    assert [row["kernel"] for row in json.loads(call(best, "--json").output)] == ["gemm"]
    found = json.loads(call(best, "--json", "--replayed").output)
    assert [(row["kernel"], row["replayed"]) for row in found] == [("gemm", False), ("vector_add", True)]
    assert found[1]["exportable"] is True
    (line,) = [
        line for line in call(best, "--replayed", "--full").output.splitlines() if "vector_add" in line
    ]
    assert "recorded samples only, not confirmed" in line
    assert "fresh process" not in line


def test_replayed_winners_are_shown_where_nothing_was_measured(path: Path) -> None:
    for more in ([], ["--agreement"]):
        said = call(best, "--kernel", "vector_add", *more)
        assert "replayed times" in said.stderr
        assert "  replayed" in said.stdout.splitlines()[1]
        assert "replays" not in call(best, "--kernel", "vector_add", "--replayed", *more).stderr


def test_best_without_a_winner_says_what_to_run(path: Path) -> None:
    assert "tune saxpy" in str(fails(best, "--kernel", "saxpy"))
    result = call(best, "--kernel", "saxpy", "--json", code=1)
    assert json.loads(result.stdout) == []


def interrupt(path: Path, problem: Problem, device: str = "cuda:0") -> None:
    with Database.open(path) as database:
        run = replace(make_run("f" * 32, problem, device=device), options=RunOptions())
        database.start_run(replace(run, kernel_file=f"{problem.kernel}.toml"))
        database.finish_run(run.id, "interrupted")


def test_where_a_run_was_interrupted_the_command_that_finishes_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "my t.db"
    default = load_kernel("transform").problem()
    interrupt(path, default)
    db = f"--db '{path}'"
    for more in ([], ["--agreement"]):
        remedy = fails(best, "--db", str(path), *more).remedy
        assert remedy == f"finish the interrupted run: tune transform --resume {db}"
        assert fails(best, "--db", str(path), "--kernel", "saxpy", *more).remedy.endswith(f"tune saxpy {db}")


def test_the_command_that_finishes_a_run_names_its_problem_and_device(tmp_path: Path) -> None:
    problem = load_kernel("transform").problem({"n": 1 << 24}, {"input": "float32"})
    interrupt(tmp_path / "t.db", problem, "replay:transform-H200")
    remedy = fails(best, "--db", str(tmp_path / "t.db"), "--kernel", "transform").remedy
    options = "--size n=2**24 --dtype float32 --device replay:transform-H200"
    assert f": tune transform {options} --resume --db " in remedy


def test_best_of_a_kernel_that_is_there_or_of_none_says_what_is_wrong(path: Path) -> None:
    assert "leave out a filter" in str(fails(best, "--kernel", "gemm", "--gpu", "a100"))
    assert "leave out a filter" in str(fails(best, "--gpu", "a100"))
    wrong = str(fails(best, "--kernel", "gem"))
    assert "did you mean gemm?" in wrong and "tune --kernel" not in wrong
    fill(path, "c", replace(GEMM, kernel="mine"))
    assert "leave out a filter" in str(fails(best, "--kernel", "mine", "--gpu", "a100"))
    assert "did you mean mine?" in str(fails(best, "--kernel", "min"))
    softmax = str(Path(__file__).parents[2] / "docs/examples/softmax/softmax.toml")
    assert f"find one with: tune {softmax}" in str(fails(best, "--kernel", softmax))


def test_best_keeps_ways_of_timing_apart(path: Path) -> None:
    fill(path, "c", GEMM, conditions=WARM, time_ns=90_000.0)
    fill(path, "d", GEMM, conditions=HOT, time_ns=210_000.0)
    found = json.loads(call(best, "--json").output)
    assert [(row["mode"], row["regime"], row["time_ns"]) for row in found] == [
        ("cold", "rested", 190_000.0),
        ("cold", "sustained", 210_000.0),
        ("warm", "rested", 90_000.0),
    ]
    lines = call(best).output.splitlines()[1:]
    assert ["cold, rested" in line for line in lines] == [True, False, False]
    assert ["cold, sustained" in line for line in lines] == [False, True, False]
    for arguments, times in (
        (["--mode", "warm"], [90_000.0]),
        (["--mode", "cold"], [190_000.0, 210_000.0]),
        (["--regime", "sustained"], [210_000.0]),
    ):
        assert [row["time_ns"] for row in json.loads(call(best, "--json", *arguments).output)] == times
    assert "no winner" in str(fails(best, "--mode", "rotating"))


@pytest.mark.parametrize("command", [trials, best, export])
def test_only_known_modes_and_regimes_are_taken(path: Path, command: click.Command) -> None:
    more = ["-o", "x.hpp"] if command is export else []
    assert "'cold', 'rotating', 'warm'" in call(command, "--mode", "hot", *more, code=2).output
    assert "'rested', 'sustained'" in call(command, "--regime", "tired", *more, code=2).output


def test_records_say_how_a_time_was_taken(path: Path) -> None:
    found = json.loads(call(trials, "--json", "--run", "a", "--sort", "id").output)
    timing = ("mode", "regime", "sm_clock_hz", "capped_samples", "outliers")
    assert [tuple(row[name] for name in timing) for row in found] == [
        ("cold", "rested", 1.7554e9, 4, 1),
        ("cold", "rested", None, 0, 1),
        ("cold", "rested", None, 0, 0),
    ]
    (row,) = csv.DictReader(io.StringIO(call(best, "--csv").output))
    assert [row[name] for name in timing] == ["cold", "rested", "1755400000.0", "4", "1"]


def test_best_tells_the_bound_and_the_error(path: Path) -> None:
    fill(
        path,
        "c",
        replace(GEMM, dtypes={**GEMM.dtypes, "input": "bfloat16"}),
        options=RunOptions(max_error=1e-3),
    )
    found = json.loads(call(best, "--json", "--dtype", "bfloat16").output)
    assert [(row["max_error"], row["true_error"]) for row in found] == [(1e-3, 4.5e-4)]
    (row,) = csv.DictReader(io.StringIO(call(best, "--csv", "--dtype", "bfloat16").output))
    assert (row["max_error"], row["true_error"]) == ("0.001", "0.00045")
    unbounded = json.loads(call(best, "--json", "--kernel", "gemm").output)
    assert None in [row["max_error"] for row in unbounded]


# -- trial


def test_trial_shows_everything(path: Path) -> None:
    output = call(trial, "1").output
    for part in (
        "#1, number 1 of run aaaa", "gemm m=4096", "580.95", "block_m", "190.1 us", "361.4 TFLOP/s", "128",
        "noisy", "2 lines; --source prints it", "ptxas info", "yes: largest error 0.2", "--json lists them",
        "cold, rested", "1.755 GHz", "1 of 11", "4 of 11: the power limit", "0.00045 of the norm",
        "clocks are held at 1.2 GHz \\x1b[31m",
    ):  # fmt: skip
        assert part in output
    assert "// source of 0" not in output
    assert "replayed from a recording" not in output
    assert "cold, rested; replayed from a recording" in call(trial, "4").output


def test_a_trial_says_nothing_of_what_was_not_looked_at(path: Path) -> None:
    output = call(trial, "3").output
    assert not re.search("SM clock|capped|outliers", output)
    assert "capped" not in call(trial, "2").output


def test_a_replayed_trial_has_no_invented_figures(path: Path) -> None:
    output = call(trial, "4").output
    assert re.search(r"^verified +when it was recorded$", output, re.MULTILINE)
    assert "0.2 of the allowed" not in output
    record = json.loads(call(trial, "4", "--json").output)
    assert record["replayed"] is True
    assert record["verification"]["passed"] is True
    assert record["verification"]["worst_ratio"] is None


def test_an_empty_log_says_so(path: Path) -> None:
    fill(path, "c", SMALL, log="")
    result = call(trial, "7", "--log")
    assert result.stdout == ""
    assert "said nothing about trial 7" in result.stderr


def test_trial_parts(path: Path) -> None:
    assert call(trial, "1", "--source").output == "// source of 0\n\t__global__ void f();\n"
    assert call(trial, "1", "--log").output.startswith("ptxas info")
    record = json.loads(call(trial, "1", "--json").output)
    assert record["samples_ns"] == [*[190_000.0] * 9, 190_200.0, 290_000.0]
    assert record["verification"]["true_error"] == 4.5e-4
    assert record["calibration"]["noise"] == {"cold, rested": 0.002}
    assert record["sources"] == ["// source of 0\n\t__global__ void f();\n"]
    assert record["verification"]["worst_ratio"] == 0.2
    assert "exclude each other" in str(fails(trial, "1", "--json", "--log"))
    assert "exclude each other" in str(fails(trial, "1", "--again", "--log"))
    assert "add --again" in str(fails(trial, "1", "--device", "cuda"))
    assert "there is no trial 99" in str(fails(trial, "99"))
    call(trial, "0", code=2)


def test_trial_again_compares(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def timed_again(stored: StoredTrial, device: str) -> Trial:
        calls.append((stored.trial.id, device))
        return replace(stored.trial, time_ns=380_200.0)

    monkeypatch.setattr("tuner.cli.trial._timed_again", timed_again)
    output = call(trial, "1", "--again", "--device", "cuda:1").output
    assert "190.1 us" in output
    assert "380.2 us" in output
    assert "now takes 2.000 times as long as then" in output
    assert json.loads(call(trial, "1", "--again", "--json").output)["new_over_old"] == 2.0
    call(trial, "4", "--again")
    assert calls == [(1, "cuda:1"), (1, "cuda:0"), (4, "replay:h200")]
