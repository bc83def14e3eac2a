"""A list of problems in shards on hosts of their own, and the databases joined: no scheduler, no network."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.commands import said_by
from tests.faults.command_line import trials_in
from tests.stored import CALIBRATION, GPU, filled, make_run
from tuner.cli.commands.results import db
from tuner.cli.jobs import TuningJob, shard_of
from tuner.core.errors import DatabaseError, UsageError
from tuner.core.model import Problem
from tuner.database.database import Database
from tuner.kernel.load import load_kernel

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs/examples/slurm/tune.sbatch"
GEMM = load_kernel("gemm")
PROBLEMS = "n,dtype\n2**26,float32\n2**26,float16\n"


# -- shards


def jobs_of(sizes: Sequence[int]) -> list[TuningJob]:
    return [TuningJob([GEMM.problem({"m": n, "n": n, "k": n})]) for n in sizes]


def problems(jobs: Sequence[TuningJob]) -> list[Problem]:
    return [job.choices[0] for job in jobs]


@pytest.mark.parametrize("count", [1, 3, 7, 40])
def test_the_shards_together_are_the_list_and_no_problem_is_twice(count: int) -> None:
    jobs = jobs_of([64 * i for i in range(1, 31)])
    shards = [shard_of(jobs, GEMM, f"{i}/{count}", 100) for i in range(1, count + 1)]
    assert sorted(p.key for shard in shards for p in problems(shard)) == sorted(p.key for p in problems(jobs))
    again = [shard_of(jobs[::-1], GEMM, f"{i}/{count}", 100) for i in range(1, count + 1)]
    assert [{p.key for p in problems(shard)} for shard in again] == [
        {p.key for p in problems(shard)} for shard in shards
    ], "the order of the rows does not matter"
    order = problems(jobs)
    assert all(
        order.index(a) < order.index(b)
        for s in shards
        for a, b in zip(problems(s), problems(s)[1:], strict=False)
    )


def test_large_problems_are_dealt_out_first() -> None:
    """One that takes as long as all others together is alone."""
    jobs = jobs_of([32768, *range(256, 1024, 64)])
    first, second = (shard_of(jobs, GEMM, f"{i}/2", 200) for i in (1, 2))
    assert problems(first) == problems(jobs)[:1]
    assert len(second) == len(jobs) - 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", "", "1/1000000"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write I/N"):
        shard_of(jobs_of([256]), GEMM, text, 10)


def test_a_shard_without_problems_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(
        capsys, "--kernel", "vector_add", "--size", "n=2**20", "--trials", "2", "--shard", "2/2", "--db",
        str(tmp_path / "x.db"),
    )  # fmt: skip
    assert (said.code, said.out) == (0, "")
    assert "fewer problems than shards" in said.err
    assert not (tmp_path / "x.db").exists()


# -- merging


def call(*arguments: str, code: int = 0) -> list[str]:
    result = CliRunner().invoke(db, arguments)
    assert result.exit_code == code, result.output
    return result.output.splitlines()


def test_merging_says_what_does_not_fit_together(tmp_path: Path) -> None:
    """Another card that is 2 % slower, another driver and NVRTC, and a kernel whose text has changed."""
    first = make_run("a" * 32)
    first = replace(first, calibration=replace(CALIBRATION, reference_ns=100e3))
    other_card = replace(GPU, uuid="GPU-2", driver="575.57")
    second = replace(
        first, id="b" * 32, gpu=other_card, versions={"nvrtc": "12.9"}, kernel_digest="f" * 32,
        calibration=replace(CALIBRATION, reference_ns=102e3),
    )  # fmt: skip
    third = replace(first, id="c" * 32)
    paths = [tmp_path / f"{name}.db" for name in "abc"]
    for path, run in zip(paths, (first, second, third), strict=True):
        filled(path, run)
    lines = call("merge", *map(str, paths), "--into", str(tmp_path / "all.db"))
    assert [line.split("added ")[1] for line in lines[:3]] == ["1 run, 3 trials, 1 winner, 0 benchmarks"] * 3
    said = "\n".join(lines[3:])
    assert "NVIDIA H200: 2 GPUs" in said
    assert "GPU-2 (1 run) 1.020, beyond the noise" in said
    assert "driver 575.57, NVRTC 12.9 on GPU-2" in said and "driver 580.95, NVRTC 13.5 on GPU-1" in said
    assert "gemm: 2 texts" in said and "ffffffff in 1 run" in said and "its text was changed" in said
    again = call("merge", *map(str, paths), "--into", str(tmp_path / "all.db"))
    assert [line.split("added ")[1] for line in again[:3]] == [
        "0 runs, 0 trials, 0 winners, 0 benchmarks"
    ] * 3
    assert again[3:] == lines[3:]
    assert call("check", "--db", str(tmp_path / "all.db"))[-1] == "no problems"


def test_of_many_rows_that_cannot_be_merged_some_are_named(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    filled(path, count=40)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE trials SET time_ns = 2 * time_ns")
    result = CliRunner().invoke(db, ["merge", str(path), "--into", str(tmp_path / "all.db")])
    assert isinstance(result.exception, DatabaseError)
    lines = [line for line in result.stderr.splitlines() if line.startswith("not taken:")]
    refused = int(str(result.exception).split()[0])
    assert refused >= 40 and len(lines) == 11
    assert lines[-1] == f"not taken: {refused - 10} more rows of {path}"


def test_merging_what_fits_together_says_nothing_of_cards(tmp_path: Path) -> None:
    """One card, or two that are equal within the noise: these are named, and nothing else."""
    run = replace(make_run("a" * 32), calibration=replace(CALIBRATION, reference_ns=100e3, notes=()))
    filled(tmp_path / "a.db", run)
    filled(tmp_path / "b.db", replace(run, id="b" * 32))
    into = ("--into", str(tmp_path / "all.db"))
    assert len(call("merge", str(tmp_path / "a.db"), str(tmp_path / "b.db"), *into)) == 2
    near = replace(run, id="c" * 32, gpu=replace(GPU, uuid="GPU-2"))
    near = replace(near, calibration=replace(CALIBRATION, reference_ns=100.2e3, notes=()))
    filled(tmp_path / "c.db", near)
    lines = call("merge", str(tmp_path / "c.db"), *into)
    assert len(lines) == 2
    assert "GPU-2 (1 run) 1.002" in lines[1] and "beyond" not in lines[1]


def test_several_that_are_missing_leave_no_database(tmp_path: Path) -> None:
    filled(tmp_path / "a.db")
    result = CliRunner().invoke(
        db,
        ["merge", str(tmp_path / "a.db"), str(tmp_path / "missing.db"), "--into", str(tmp_path / "all.db")],
    )
    assert "there is no database" in str(result.exception)
    assert not (tmp_path / "all.db").exists()


# -- SLURM's script, without SLURM


def job(folder: Path, number: int, count: int, *options: str, first: str = "") -> subprocess.Popen[str]:
    """Start one job of an array, with the variables that SLURM sets; it runs some statements first."""
    tool = folder / "bin" / "tune"
    tool.parent.mkdir(exist_ok=True)
    code = f"{first}from tuner.cli import main; main()"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    tool.chmod(0o755)
    (folder / "problems.csv").write_text(PROBLEMS)
    array = {"SLURM_ARRAY_TASK_ID": number + 10, "SLURM_ARRAY_TASK_MIN": 11, "SLURM_ARRAY_TASK_COUNT": count}
    environment = {
        **os.environ,
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RESULTS": str(folder / "results"),
        "TMPDIR": str(folder),
        **{name: str(value) for name, value in array.items()},
    }
    command = [
        "bash",
        str(SCRIPT),
        "--kernel",
        "vector_add",
        "--problems",
        "problems.csv",
        "--quiet",
        *options,
    ]
    return subprocess.Popen(
        [*command, "--device", "replay"], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_the_jobs_of_an_array_tune_the_list_once_also_when_one_is_preempted_and_queued_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--trials", "12", "--sampler", "random")
    slowly = (
        "import time; from tuner.devices.replay import ReplayDevice as Device; collect = Device.collect; "
    )
    slowly += "Device.collect = lambda *given: (time.sleep(0.2), collect(*given))[1]; "
    first = job(tmp_path, 1, 2, *options, first=slowly)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and not any(map(trials_in, tmp_path.glob("tune.*/tuning.db"))):
        time.sleep(0.02)
    first.send_signal(signal.SIGTERM)
    output = first.communicate(timeout=200)[0]
    unfinished = tmp_path / "results/shard-1.db.unfinished"
    assert unfinished.exists() and first.returncode not in (0, None), output
    jobs = [job(tmp_path, number, 2, *options) for number in (1, 2)]
    said = [one.communicate(timeout=200)[0] for one in jobs]
    assert [one.returncode for one in jobs] == [0] * 2, said
    shards = sorted((tmp_path / "results").iterdir())
    assert len(shards) == 2, "and nothing unfinished"
    assert not list(tmp_path.glob("tune.*")), "nothing is left on the node"
    into = tmp_path / "results/tuning.db"
    call("merge", *map(str, shards), "--into", str(into))
    best = said_by(capsys, "best", "--replayed", "--db", str(into), "--json")
    winners = json.loads(best.out)
    assert len({(json.dumps(w["sizes"]), json.dumps(w["dtypes"])) for w in winners}) == len(winners) == 2
    with Database.open(into, write=False) as database:
        trials = [(t.run.id, t.trial.number) for t in database.query().rows]
        assert len(set(trials)) == len(trials) == 24
