"""Another tool's file in the place of a kernel: its trials are replayed, and rank nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.formats.foreign_files import cache, close_times, t1, t4, time_of, trajectory, written
from tuner.devices.foreign_replay import NOT_RECORDED
from tuner.formats.foreign import read_foreign
from tuner.kernel.space import SearchSpace

pytestmark = pytest.mark.usefixtures("forked_children")


Tune = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("name", "cut", "with_space"), [("a.json", 2, False), ("a.json.gz", 0, True), ("a_T4.json.gz", 0, False)]
)
def test_the_whole_file_is_searched(
    tune: Tune, tmp_path: Path, name: str, cut: int, with_space: bool
) -> None:
    recorded = cache()
    path = written(tmp_path / name, t4(recorded) if "T4" in name else recorded, cut)
    space = ("--space", written(tmp_path / "a.T1.json", t1())) if with_space else ()
    steps = trajectory(tune(*space, "--device", f"replay:{path}", "--trials", 100, "--seed", 3, "--json"))
    assert [step["evaluation"] for step in steps] == list(range(1, 15))
    best = float("inf")
    for step in steps:
        values = step["configuration"]
        time = time_of(values["bx"], values["by"])
        if isinstance(time, str):
            assert (step["status"], step["time_ns"]) == (
                "compile_error" if values["bx"] == 256 else "launch_error",
                None,
            )
        else:
            assert (step["status"], step["time_ns"]) == ("ok", time * 1e6)
            best = min(best, time * 1e6)
        assert step["best_ns"] == (None if best == float("inf") else best)
    assert best == 1e6
    if with_space:
        assert steps[0]["configuration"] == {"bx": 32, "by": 1, "fast": 1}


def test_the_same_seed_gives_the_same_run_whatever_is_known(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", cache())
    first, second, other = (
        trajectory(tune("--device", f"replay:{path}", "--trials", 8, "--seed", seed, "--json", "-q"))
        for seed in (3, 3, 4)
    )
    assert first == second != other


def test_files_teach_the_search_of_another_and_the_best_of_each_is_tried_first(
    tune: Tune, tmp_path: Path
) -> None:
    recorded = cache()
    path = written(tmp_path / "a.json", recorded)
    taught, files = [], list[str]()
    for name, (bx, by) in [("x.json", (16, 4)), ("y_T4.json.gz", (128, 1))]:
        for row in recorded["cache"].values():
            row["time"] = 0.5 if (row["bx"], row["by"]) == (bx, by) else 1.0
            row["times"] = [row["time"]]
        files += ["--learn-from", str(written(tmp_path / name, t4(recorded) if "T4" in name else recorded))]
        taught.append({"bx": bx, "by": by, "fast": 1})
    code, out, said = tune("--device", f"replay:{path}", "--trials", 3, "--json", *files)
    assert code == 0 and "28 results of other tools guide the search" in said
    assert [step["configuration"] for step in trajectory((code, out, said))[1:]] == taught


def test_what_is_not_recorded_is_a_failure_and_said(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", cache(without=((16, 1), (64, 2))))
    space = written(tmp_path / "a.T1.json", t1(("bx * by <= 512", "bx > 16 or by == 1")))
    said = tune("--space", space, "--device", f"replay:{path}", "--json")
    missing = [step for step in trajectory(said) if step["error"] == NOT_RECORDED]
    assert {(s["configuration"]["bx"], s["configuration"]["by"]) for s in missing} == {(16, 1), (64, 2)}
    assert {(step["status"], step["time_ns"]) for step in missing} == {("invalid_config", None)}
    assert "2 of 12 valid configurations are not recorded, and count as failures" in said[2]
    assert "2 of 12 recorded configurations are outside of this space" in said[2]


def test_a_parameter_that_the_recording_lacks(tmp_path: Path) -> None:
    data = t1(("bx <= 64 or use_pad == 0",))
    data["ConfigurationSpace"]["TuningParameters"].append(
        {"Name": "use_pad", "Type": "int", "Values": "[0, 1]", "Default": 1}
    )
    foreign = read_foreign(written(tmp_path / "a.json", cache()), written(tmp_path / "a.T1.json", data))
    assert foreign.problem.options == {"n": 15, "use_pad": 1}
    assert "use_pad=1" in foreign.notes[0]
    space = SearchSpace.from_kernel(foreign.kernel, foreign.problem, foreign.recording.gpu)
    assert {c.values["bx"] for c in space.configurations()} == {16, 32, 64}


@pytest.mark.parametrize(("runtimes", "jitter"), [(0, 0.0), (3, 0.01), (16, 0.0)])
def test_without_noise_data_nothing_is_faster(
    tune: Tune, tmp_path: Path, runtimes: int, jitter: float
) -> None:
    path = written(tmp_path / "a.json", close_times(runtimes, jitter))
    code, out, _ = tune("--device", f"replay:{path}", "-q", "--full")
    assert code == 0
    assert "1.200x over the default, not compared: the file has no noise data" in out
    assert "faster" not in out and "tied" not in out and "noise floor not known" in out
    (run,) = json.loads(tune("--device", f"replay:{path}", "-q", "--json")[1])
    assert run["winner"]["configuration"] == {"block": 32}
    assert run["winner"]["time_ns"] == 1e6 and run["winner"]["tied"] == 1
    assert run["versus_default"]["verdict"] == "ambiguous"
    assert run["versus_default"]["low"] is run["versus_default"]["high"] is run["race"]["noise_floor"] is None
    assert " inf" not in tune("best", "--replayed")[1]


def test_runtimes_are_noise_data(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", close_times(16, 0.02))
    code, out, _ = tune("--device", f"replay:{path}", "-q", "--fix", "block=32,64")
    assert (
        code == 0
        and "over the default (95 %: " in out
        and "not compared" not in out
        and "not known" not in out
    )
    (run,) = json.loads(tune("--device", f"replay:{path}", "-q", "--json", "--fix", "block=32,64")[1])
    assert run["winner"]["configuration"] == {"block": 32}
    assert run["winner"]["time_ns"] == pytest.approx(1e6)  # as the file ranks it
    assert run["versus_default"]["verdict"] == "faster"
    assert run["versus_default"]["ratio"] == pytest.approx(1.2, rel=0.02)
    assert 0.0005 < run["race"]["noise_floor"] < 0.02
    # 0.5 % is within the noise.
    (run,) = json.loads(tune("--device", f"replay:{path}", "-q", "--json", "--fix", "block=32,128")[1])
    assert run["race"]["verdict"] != "faster" and run["winner"]["tied"] == 2


def with_objective(name: str, *, timed: bool = True) -> dict[str, Any]:
    data = close_times(1, 0.0)
    for result in data["results"]:
        rate = {"name": name, "value": float(result["configuration"]["block"])}
        result["objectives"] = [name]
        result["measurements"] = [*(result["measurements"] if timed else ()), rate]
    return data


@pytest.mark.parametrize(
    ("objective", "kind"),
    [("Time", "cache"), (["Time"], "T4"), (["GFLOP/s", "TIME"], "T4"), (["time"], "cache")],
)
def test_the_time_is_the_objective_in_any_writing(
    objective: object, kind: str, tune: Tune, tmp_path: Path
) -> None:
    data = close_times(1, 0.0) if kind == "T4" else cache()
    for result in data["results"] if kind == "T4" else [data]:
        result["objectives" if kind == "T4" else "objective"] = objective
        for one in result.get("measurements", ()):
            one["name"] = one["name"].title() if "T" in str(objective) else one["name"]
    code, _, err = tune("import", written(tmp_path / "a.json", data))
    assert code == 0, err


@pytest.mark.parametrize(
    ("data", "tool"),
    [
        (
            {
                "kernel_family": "xgemm",
                "results": [{"kernel": "Xgemm", "time": 0.1, "parameters": {"KWG": 16}}],
            },
            "CLTune",
        ),
        ({"sections": [{"kernel_family": "xgemm", "results": []}]}, "CLBlast"),
        ({"Metadata": {"TimeUnit": "us"}, "Results": [{"KernelName": "a", "Status": "Ok"}]}, "KTT"),
    ],
)
def test_files_of_tools_that_are_not_read_are_named(
    data: dict[str, Any], tool: str, tune: Tune, tmp_path: Path
) -> None:
    path = written(tmp_path / "a.json", data)
    for arguments in (("--device", f"replay:{path}"), ("import", path)):
        code, out, err = tune(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"results of {tool}, which are not read" in err and "T4" in err


@pytest.mark.parametrize("timed", [True, False])
def test_an_objective_that_is_no_time_is_refused(tune: Tune, tmp_path: Path, timed: bool) -> None:
    path = written(tmp_path / "a.json", with_objective("score", timed=timed))
    for arguments in (("--device", f"replay:{path}"), ("import", path)):
        code, out, err = tune(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "its objective score is neither time nor a rate" in err


def test_a_rate_of_a_t4_file_is_what_counts(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", with_objective("GFLOP/s"))
    steps = trajectory(tune("--device", f"replay:{path}", "-q", "--json"))
    best = min(steps, key=lambda step: step["time_ns"])
    assert best["configuration"] == {"block": 128}
    assert best["time_ns"] == pytest.approx(1e9 / 128)


def test_it_is_stored_as_foreign_and_ranks_nowhere(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", cache())
    assert tune("--device", f"replay:{path}", "-q")[0] == 0
    rows = json.loads(tune("query", "--json")[1])
    assert {(row["replayed"], row["foreign"], row["kernel"]) for row in rows} == {
        (True, "Kernel Tuner cache", "stencil")
    }
    assert len(json.loads(tune("best", "--json", "--replayed")[1])) == 1
    status, _, err = tune("trial", "1", "--again")
    assert status == 1
    assert "another tool's file" in err
    status, _, err = tune("explain", "--trial", "1")
    assert (status, err.count("\n")) == (1, 1) and "another tool's file" in err
    status, _, err = tune("export", "--replayed", "--mode", "warm", "--regime", "sustained", "-o", "a.hpp")
    assert (status, err.count("\n")) == (1, 1)


def test_that_a_sample_was_tried_is_not_called_all(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.kernel.enumeration.MAX_ROWS", 8)
    path = written(tmp_path / "a.json", cache())
    space = written(tmp_path / "a.T1.json", t1())
    _, out, _ = tune("--space", space, "--device", f"replay:{path}", "--trials", 100, "--sampler", "random")
    assert "configurations of the sample were tried" in out
