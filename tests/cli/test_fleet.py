"""``tune run`` with several problems and several GPUs, which are simulated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.test_run_max_error import Rounding
from tests.faults.command_line import runs_in
from tests.fleets import OPENER, hold, simulate, sound
from tuner.children.measuring import GpuList
from tuner.cli import cli
from tuner.core.errors import TunerError
from tuner.database.database import Database
from tuner.fleet.messages import OpenDevice

Tune = Callable[..., Result]
THREE = ("--problem", "n=2**20", "--problem", "n=2**21", "--problem", "n=2**22")


@pytest.fixture
def tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tune:
    """Return what runs a command on a machine with two GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    simulate(monkeypatch, trial_s=0.02)
    monkeypatch.setattr("tuner.cli.fleet.OPENER", OPENER)
    monkeypatch.setattr("tuner.cli.fleet.has_gpu", lambda: True)
    listed = GpuList(("NVIDIA H200",) * 2, ("00", "01"))
    monkeypatch.setattr("tuner.cli.fleet.visible_gpus", lambda: listed)

    def run(*arguments: str, kernel: str = "vector_add") -> Result:
        words = ["run", "-k", kernel, "-n", "6", "--sampler", "random", "--db", "t.db", *arguments]
        return CliRunner().invoke(cli, words)

    return run


def test_all_gpus_share_the_problems(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hold(tmp_path)
    simulate(monkeypatch, hold=str(held))

    def go_on() -> None:  # once both have one, however long the second GPU's process takes to start
        deadline = time.monotonic() + 100
        while runs_in(tmp_path / "t.db") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        held.unlink()

    threading.Thread(target=go_on).start()
    result = tune("--device", "cuda:all", *THREE)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("  search     ") == 3
    with Database.open(tmp_path / "t.db") as database:
        sound(database, runs=3, trials=6)
        devices = {row["device"] for row in database.select("SELECT device FROM runs")}
    assert devices == {"cuda:0", "cuda:1"}


def test_a_list_of_problems_overlaps_on_one_gpu(tune: Tune) -> None:
    result = tune("--device", "cuda:1", *THREE, "--json")
    assert result.exit_code == 0, result.output
    records: list[dict[str, Any]] = json.loads(result.stdout)
    assert [record["problem"]["sizes"]["n"] for record in records] == [2**20, 2**21, 2**22]
    assert {record["device"] for record in records} == {"cuda:1"}


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cuda:0,cuda:0", "names a GPU twice"),
        ("cuda:0,cuda:2", "there is no GPU cuda:2; this machine has 2: cuda:0 to cuda:1"),
        ("cuda:0,replay", "replay is no GPU"),
        ("cuda:0,1", "1 is no GPU"),
    ],
)
def test_a_wrong_list_of_gpus_is_refused(tune: Tune, device: str, said: str, tmp_path: Path) -> None:
    result = tune("--device", device, *THREE)
    assert isinstance(result.exception, TunerError) and said in str(result.exception)
    assert not (tmp_path / "t.db").exists()


def open_rounding(message: OpenDevice, say: Callable[[str], None]) -> Rounding:
    """Open a device of which narrow dtypes are fast, and far from the truth; bfloat16 too far for anything."""
    device = Rounding()
    device.name, device.least = message.device, {"bfloat16": 2e-3}
    return device


def test_dtypes_are_compared_and_those_of_a_problem_stay_on_one_gpu(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.cli.fleet.OPENER", "tests.cli.test_fleet:open_rounding")
    words = ("--device", "cuda:all", *THREE[:4], "--max-error", "1e-3", "--json")
    result = tune(*words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [record["winner"]["dtype"] for record in found] == ["float16", "float16"]
    assert [[skipped["dtype"] for skipped in record["skipped"]] for record in found] == [["bfloat16"]] * 2
    runs = [
        [(run["device"], run["problem"]["dtypes"]["input"]) for run in record["runs"]] for record in found
    ]
    assert [{dtype for _, dtype in each} for each in runs] == [{"float32", "float16"}] * 2
    assert {len({device for device, _ in each}) for each in runs} == {1}
    with Database.open(tmp_path / "t.db") as database:
        (run,) = database.select("SELECT id FROM runs WHERE dtype = 'float32' LIMIT 1")
        with database.transaction():
            database.update_run(run["id"], state="interrupted")
            database.tables["winners"].delete_where("run_id = ?", [run["id"]])
    again = tune(*words, "--resume")
    assert again.exit_code == 0, again.output
    resumed = [record for record in json.loads(again.stdout) if record["runs"]]
    assert [record["winner"]["dtype"] for record in resumed] == ["float16"] * len(resumed)
    assert {"float32", "float16"} <= {point["dtype"] for point in resumed[0]["front"]}


def test_a_figure_is_of_a_run_on_one_gpu(tune: Tune, tmp_path: Path) -> None:
    result = tune("--device", "cuda:all", "--plot", "run.svg")
    assert "name one GPU" in str(result.exception)
    assert not (tmp_path / "t.db").exists()


def test_interrupted_problems_go_on_on_any_of_the_gpus(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tune("--device", "cuda:0,cuda:1", *THREE[:4]).exit_code == 0
    with Database.open(tmp_path / "t.db") as database:
        runs = database.select("SELECT id FROM runs")
        with database.transaction():
            database.update_run(runs[0]["id"], state="interrupted")
            database.tables["winners"].delete_where("run_id = ?", [runs[0]["id"]])
            database.tables["trials"].delete_where("run_id = ? AND number > 2", [runs[0]["id"]])
    result = tune("--device", "cuda:all", *THREE, "--resume")
    assert result.exit_code == 0, result.output
    with Database.open(tmp_path / "t.db") as database:
        sound(database, runs=3, trials=6)  # the interrupted one, and the one that never began
    again = tune("--device", "cuda:all", *THREE, "--resume")
    assert "there is no interrupted run of any of the 3 problems" in str(again.exception)


def test_a_problem_that_fails_leaves_the_others(tune: Tune, tmp_path: Path) -> None:
    result = tune("--device", "cuda:all", "--problem", "n=2**20,dtype=bfloat16", *THREE)
    assert result.exit_code == 1
    assert "vector_add n=1048576 bfloat16: cuda" in result.stderr.replace("replay:", "")
    assert result.stdout.count("  search     ") == 3


def test_a_time_that_is_over_leaves_problems_out(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch, trial_s=0.2, opening_s=0.5)
    result = tune("--device", "cuda:0", *THREE, "--total-time", "0.4")
    assert result.exit_code == 0  # as asked
    assert "left out, the time is over; go on with --resume" in result.stderr
