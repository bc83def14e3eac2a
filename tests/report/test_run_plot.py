"""``tune run --plot``: one figure of the search and the race, before which everything that could fail is refused."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tests.faults.stub_device import Watcher
from tests.sessions import request_of
from tuner.database.database import Database
from tuner.devices.replay import ReplayDevice
from tuner.kernel.load import load_kernel
from tuner.report.run_plot import plot_run, run_svg
from tuner.report.tables import duration
from tuner.tuning.session import tune

REPLAY = ("--kernel", "vector_add", "--device", "replay", "--trials", "25", "--json", "-q")


def test_the_figure_shows_the_search_and_the_race(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "run.svg"
    said = said_by(capsys, *REPLAY, "--db", str(tmp_path / "t.db"), "--plot", str(path))
    assert said.code == 0
    drawn = path.read_text()
    (result,) = json.loads(said.out)
    times = [result[name]["time_ns"] for name in ("winner", "default") if name in result]
    for text in ("vector_add", "best so far", "speed of light", "winner", "replayed", *map(duration, times)):
        assert text in drawn


def test_runs_without_a_winner_and_of_far_slower_trials_are_drawn_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    kernel = load_kernel("vector_add")
    request = request_of(kernel, kernel.problem(preset="small"), trials=5, from_scratch=True)
    with Database.open(tmp_path / "t.db") as database:
        recording = Path(__file__).parents[2] / "results/recorded/vector_add-H200.json.gz"
        result = tune(request, ReplayDevice(recording), database, Watcher())
    plot_run(replace(result, finish=None), tmp_path / "run.svg")
    drawn = (tmp_path / "run.svg").read_text()
    assert "final race" not in drawn and ">&gt; " not in drawn
    assert ">3</text>" in drawn and ">2.5</text>" not in drawn  # trials are whole numbers
    first, *others = result.state.trials
    result.state.trials = [replace(first, time_ns=1e8), *others]
    plot_run(result, tmp_path / "far.svg")
    drawn = (tmp_path / "far.svg").read_text()
    assert ">&gt; " in drawn and "100 ms</text>" not in drawn and ">50 ms</text>" not in drawn  # at the edge
    plot_run(result, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.delitem(sys.modules, "matplotlib")
    (tmp_path / "matplotlib.py").write_text("raise ValueError('Key backend: no such')")
    monkeypatch.syspath_prepend(tmp_path)
    assert run_svg(result) == b""  # a notebook shows the summary alone


def test_what_cannot_be_drawn_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = (*REPLAY, "--db", str(tmp_path / "t.db"), "--plot")
    assert_refused(said_by(capsys, *run, str(tmp_path / "run.jpg")), 2, ".png or .svg")
    os.mkfifo(tmp_path / "pipe.svg")
    assert_refused(said_by(capsys, *run, str(tmp_path / "pipe.svg")), 2, "it is not a plain file")
    with sqlite3.connect(tmp_path / "db.png") as connection:
        connection.execute("CREATE TABLE t(x)")
    assert_refused(said_by(capsys, *run, str(tmp_path / "db.png")), 2, "it is a database")
    problems = ("--problem", "n=2**20", "--problem", "n=2**26")
    assert_refused(said_by(capsys, *run, str(tmp_path / "run.png"), *problems), 2, "one problem")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert_refused(said_by(capsys, *run, str(tmp_path / "run.png")), 1, "matplotlib", "[plot]")
    monkeypatch.delitem(sys.modules, "matplotlib")
    (tmp_path / "matplotlib.py").write_text("raise ValueError('Key backend: no such')")
    monkeypatch.syspath_prepend(tmp_path)
    assert_refused(
        said_by(capsys, *run, str(tmp_path / "run.png")), 1, "Key backend: no such; see MPLBACKEND"
    )
    assert not (tmp_path / "t.db").exists()
