"""Another tool's file in the place of a kernel: replayed, imported, exported, and refused in one line."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import pytest

from tests.commands import said_by
from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.stored import t1_space
from tuner.database import database as database_module
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.foreign_replay import NOT_RECORDED
from tuner.errors import ExpressionError
from tuner.formats.as_kernel import read_foreign, read_results
from tuner.formats.importing import UNVERIFIED
from tuner.formats.t1 import t1_of
from tuner.formats.t1_values import parse_values
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.space.space import SearchSpace

pytestmark = pytest.mark.usefixtures("forked_children")

Tune = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tune(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tune:
    """Run a command line in an empty folder; give its exit status and streams."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        said = said_by(capsys, *map(str, arguments))
        return said.code, said.out, said.err

    return call


def time_of(bx: int, by: int) -> float | str:
    """Return milliseconds; wide blocks do not compile, and a large product does not run."""
    if bx == 256:
        return "CompilationFailedConfig"
    return "RuntimeFailedConfig" if bx * by > 256 else 1 + abs(bx - 64) / 64 + abs(by - 2)


def cache(without: tuple[tuple[int, int], ...] = ()) -> dict[str, Any]:
    rows = {}
    for bx in (16, 32, 64, 128, 256):
        for by in (1, 2, 4):
            if (bx, by) not in without and bx * by <= 512:
                time = time_of(bx, by)
                row = {
                    "bx": bx,
                    "by": by,
                    "fast": 1,
                    "time": time,
                    "compile_time": 100.0,
                    "benchmark_time": 5.0,
                }
                if not isinstance(time, str):
                    row["times"] = [time, time + 0.25, time - 0.25]
                rows[f"{bx},{by},1"] = row
    return {
        "device_name": "Some GPU",
        "kernel_name": "stencil",
        "problem_size": [512, 256],
        "tune_params_keys": ["bx", "by", "fast"],
        "tune_params": {"bx": [16, 32, 64, 128, 256], "by": [1, 2, 4], "fast": [1]},
        "objective": "time",
        "cache": rows,
    }


def t4(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the same as a T4 file of the hub, with its quirks."""
    results = []
    for row in recorded["cache"].values():
        failed = isinstance(row["time"], str)
        words = {"CompilationFailedConfig": "compile", "RuntimeFailedConfig": "runtime"}
        times: dict[str, Any] = {"compilation": row["compile_time"]}
        if not failed:
            times["runtimes"] = row["times"]
        results.append(
            {
                "timestamp": "",
                "configuration": {name: row[name] for name in recorded["tune_params_keys"]},
                "times": times,
                "invalidity": words.get(row["time"], "correct"),
                "correctness": 1,
                "measurements": [{"name": "time", "value": row["time"], "unit": ""}],
                "objectives": ["time"],
            }
        )
    return {"metadata": {"timeunit": "miliseconds"}, "results": results, "schema_version": "1.0.0"}


def t1(conditions: tuple[str, ...] = ("bx * by <= 512", "fast == 1 or bx < 32")) -> dict[str, Any]:
    parameters = [
        ("bx", "[16 * 2**i for i in range(5)]", 32),
        ("by", "[1, 2, 4]", 1),
        ("fast", "[1]", 1),
        ("n", "[15]", 15),
    ]
    return {
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": name, "Type": "int", "Values": values, "Default": default}
                for name, values, default in parameters
            ],
            "Conditions": [{"Parameters": [], "Expression": text} for text in conditions],
        },
        "KernelSpecification": {"KernelName": "stencil"},
    }


def written(path: Path, data: Any, cut: int = 0) -> Path:
    text = json.dumps(data)
    text = text[: len(text) - cut]
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def trajectory(said: tuple[int, str, str]) -> list[dict[str, Any]]:
    assert said[0] == 0, said
    trajectory: list[dict[str, Any]] = json.loads(said[1])[0]["trajectory"]
    return trajectory


@pytest.mark.parametrize(("name", "cut"), [("a.json", 2), ("a.json.gz", 0), ("a_T4.json.gz", 0)])
@pytest.mark.parametrize("with_space", [False, True])
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


def close_times(runtimes: int, jitter: float) -> dict[str, Any]:
    """Return a T4 file whose best two configurations are 0.5 % apart, and the default is 20 % slower."""
    results = []
    for block, time in ((32, 1.0), (64, 1.2), (128, 1.005)):
        chance = random.Random(block)
        times = [time * chance.uniform(1 - jitter, 1 + jitter) for _ in range(runtimes)]
        results.append(
            {
                "configuration": {"block": block},
                "times": {"runtimes": times} if runtimes else {},
                "invalidity": "correct",
                "measurements": [{"name": "time", "value": time, "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    return {"results": results, "schema_version": "1.0.0"}


@pytest.mark.parametrize(("runtimes", "jitter"), [(0, 0.0), (1, 0.0), (3, 0.01), (16, 0.0)])
def test_without_noise_data_nothing_is_faster(
    tune: Tune, tmp_path: Path, runtimes: int, jitter: float
) -> None:
    path = written(tmp_path / "a.json", close_times(runtimes, jitter))
    code, out, _ = tune("--device", f"replay:{path}", "-q")
    assert code == 0
    assert "1.200x as fast, not compared: the file has no noise data" in out
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
    assert code == 0 and "faster" in out and "not compared" not in out and "not known" not in out
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


@pytest.mark.parametrize("timed", [True, False])
def test_an_objective_that_is_no_time_is_refused(tune: Tune, tmp_path: Path, timed: bool) -> None:
    path = written(tmp_path / "a.json", with_objective("score", timed=timed))
    for arguments in (("--device", f"replay:{path}"), ("import", path)):
        code, out, err = tune(*arguments)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "its objective score is neither time nor a rate" in err


def test_a_t4_file_without_its_objective_is_refused(tune: Tune, tmp_path: Path) -> None:
    data = close_times(1, 0.0)
    for result in data["results"]:
        result["measurements"] = [{"name": "score", "value": 1.0}]
    code, out, err = tune("--device", f"replay:{written(tmp_path / 'a.json', data)}")
    assert (code, out, err.count("\n")) == (1, "", 1) and "no result has a measurement named time" in err


def test_a_rate_of_a_t4_file_is_what_counts(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", with_objective("GFLOP/s"))
    steps = trajectory(tune("--device", f"replay:{path}", "-q", "--json"))
    best = min(steps, key=lambda step: step["time_ns"])
    assert best["configuration"] == {"block": 128}
    assert best["time_ns"] == pytest.approx(1e9 / 128)


def test_narrowed(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", cache())
    steps = trajectory(tune("--device", f"replay:{path}", "--fix", "bx=64", "--fix", "by=1,2", "--json"))
    assert len(steps) == 2


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
    status, _, err = tune("export", "--replayed", "--format", "t1", "-o", "b.T1.json")
    assert (status, err.count("\n")) == (1, 1)


def test_import_once_and_again(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", cache())
    (first,) = json.loads(tune("import", path, "--json", "-q")[1])
    assert (first["added"], first["trials"], first["failures"], first["best_ns"]) == (True, 14, 3, 1e6)
    assert first["problem"]["sizes"] == {"x": 512, "y": 256}
    assert not json.loads(tune("import", path, "--json", "-q")[1])[0]["added"]
    (second,) = json.loads(tune("import", path, "--json", "-q", "--kernel", "other", "--size", "n=7")[1])
    assert (second["added"], second["problem"]["kernel"], second["problem"]["sizes"]) == (
        True,
        "other",
        {"n": 7},
    )
    with Database.open(tmp_path / "results/tuning.db") as database:
        assert not database.check().problems
        (winner, _) = database.winners(Filters()).rows
        assert (winner.winner.exportable, winner.winner.reason) == (False, UNVERIFIED)
        trial = winner.trial
        assert trial.samples_ns == (1e6, 1.25e6, 0.75e6)
        assert (trial.compile_s, trial.measure_s) == (0.1, 0.005)


def test_tables_name_an_imported_configuration_by_what_it_has(tune: Tune, tmp_path: Path) -> None:
    data = cache()
    for row in data["cache"].values():
        row["fast"] = "none"  # of another variant
    data["cache"] = {f"{row['bx']},{row['by']},none": row for row in data["cache"].values()}
    data["tune_params"]["fast"] = ["none"]
    tune("import", written(tmp_path / "a.json", data), "-q")
    for command in (("table", "--replayed"), ("best", "--replayed"), ("query", "--status", "ok")):
        said = tune(*command)[1]
        assert "bx=64 by=2 " in said and "none" not in said and "kernel bx" not in said
        assert "replayed (Kernel Tuner cache)" in said


def test_import_makes_no_database_for_a_file_that_is_not_there(tune: Tune, tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", cache())
    for files in (("nope.json",), (path, "nope.json")):
        status, out, err = tune("import", "-q", *files, "--db", "none.db")
        assert (status, out, err.count("\n")) == (1, "", 1), err
        assert "nope.json" in err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["t4", "kernel-tuner-cache"])
def test_round_trip_of_theirs(tune: Tune, tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "a.json", cache())
    tune("import", path)
    assert tune("export", "--replayed", "--format", kind, "-o", "b.json.gz")[0] == 0
    before, after = read_results(path), read_results(tmp_path / "b.json.gz")
    assert {k: (r.status, r.time_ns, r.samples_ns) for k, r in before.rows.items()} == {
        k: (r.status, r.time_ns, r.samples_ns) for k, r in after.rows.items()
    }
    assert (before.kernel, before.gpu) == (after.kernel, after.gpu)
    assert {**before.parameters} == {**after.parameters}
    foreign = read_foreign(tmp_path / "b.json.gz")
    assert dict(foreign.problem.sizes) == {"x": 512, "y": 256}


@pytest.fixture
def ours(tune: Tune, tmp_path: Path) -> Path:
    """Replay a recording of a kernel of our own; give its file."""
    kernel = scale_kernel(tmp_path / "kernel")
    recording = write_synthetic_recording(tmp_path / "scale-x.json.gz", kernel, [kernel.problem()])
    status, _, err = tune("--kernel", kernel.file, "--device", f"replay:{recording}", "-q", "--trials", 50)
    assert status == 0, err
    return kernel.file


@pytest.mark.parametrize("kind", ["t4", "kernel-tuner-cache"])
def test_round_trip_of_ours(tune: Tune, ours: Path, tmp_path: Path, kind: str) -> None:
    status, out, err = tune("export", "--replayed", "--format", kind, "-o", "-")
    assert status == 0, err
    (tmp_path / "b.json").write_text(out)
    with Database.open(tmp_path / "results/tuning.db", write=False) as database:
        trials = {s.trial.configuration.parameters: s.trial for s in database.query(Filters()).rows}
    foreign = read_foreign(tmp_path / "b.json")
    assert len(foreign.rows) == len(trials) > 1
    for configuration, row in foreign.rows.items():
        trial = trials[configuration.parameters]
        assert (row.time_ns or 0) == pytest.approx(trial.time_ns or 0)
        assert row.status.ranked == trial.status.ranked
    if kind == "t4":
        assert foreign.problem.to_json() == load_kernel(str(ours)).problem().to_json()
        assert str(foreign.recording.conditions) == "cold, rested"
        for result in json.loads(out)["results"]:
            assert result.keys() >= {"configuration", "times", "invalidity", "correctness"}


@pytest.mark.parametrize("name", ["d?x/a?b%20y #{SCHEMA_VERSION} é.db", "q?.log"])
def test_a_study_may_have_any_name(name: str, tune: Tune, ours: Path, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")  # what a URL would end at
    (tmp_path / name).parent.mkdir(exist_ok=True)
    assert tune("export", "--replayed", "--format", "optuna", "--out", name)[0] == 0
    assert (tmp_path / name).stat().st_size > 1000 and (tmp_path / "d").read_text() == "mine"
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]
    status, _, err = tune("export", "--replayed", "--format", "optuna", "--out", name)
    assert status == 1 and "exists already" in err
    status, _, err = tune("export", "--replayed", "--format", "optuna", "--out", "/proc/x.db")
    assert (status, err.count("\n")) == (1, 1) and "name another file with -o" in err


def test_a_study_that_optuna_opens(tune: Tune, ours: Path, tmp_path: Path) -> None:
    for name in ("study.db", "study.log"):
        assert tune("export", "--replayed", "--format", "optuna", "--out", name)[0] == 0
    with Database.open(tmp_path / "results/tuning.db", write=False) as database:
        trials = [stored.trial for stored in database.query(Filters()).rows]
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    for storage in (f"sqlite:///{tmp_path / 'study.db'}", optuna.storages.JournalStorage(backend)):
        (name,) = optuna.get_all_study_names(storage)
        study = optuna.load_study(study_name=name, storage=storage)
        assert study.user_attrs["kernel"] == "scale"
        assert [t.params for t in study.trials] == [t.configuration.values for t in trials]
        assert study.best_value == min(t.time_ns or 1e18 for t in trials) / 1e3
        assert study.metric_names == ["time (us)"]
        assert [t.state.name == "COMPLETE" for t in study.trials] == [t.status.ranked for t in trials]


@pytest.mark.parametrize("kind", ["header", "t4", "kernel-tuner-cache", "t1", "optuna"])
def test_no_file_is_written_over_unless_forced(tune: Tune, ours: Path, tmp_path: Path, kind: str) -> None:
    asked = ("export", "--replayed", "--format", kind, "-o")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "dangling").symlink_to("made")
    before = sorted(tmp_path.iterdir())
    for name, more in (
        ("mine", ()), ("link", ("--force",)), ("dangling", ("--force",)), (".", ("--force",)),
        ("gone/x", ()), ("gone/x", ("--force",)), ("mine/x", ()),
    ):  # fmt: skip
        status, _, err = tune(*asked, name, *more)
        assert (status, err.count("\n")) == (1, 1), (name, err)
        assert (tmp_path / "mine").read_text() == "mine"
        assert sorted(tmp_path.iterdir()) == before
    assert tune(*asked, "mine", "--force")[0] == 0
    assert (tmp_path / "mine").read_bytes() != b"mine"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["gemm", "vector_add"])
@pytest.mark.parametrize("cc", [75, 90])
def test_t1_says_what_the_kernel_says(tmp_path: Path, name: str, cc: int) -> None:
    kernel, gpu = load_kernel(name), ARCHITECTURES[cc]
    problem = kernel.problem()
    variants, _ = kernel.usable_variants(problem, gpu)
    assert variants
    for variant in variants:
        data = t1_of(kernel, variant, problem, gpu)
        theirs = t1_space(written(tmp_path / "x.T1.json", data))
        own = SearchSpace.from_kernel(kernel, problem, gpu, (variant.name,))
        assert len(theirs) == len(own)
        for mine, other in zip(own.variants, theirs.variants, strict=True):
            assert (mine.matrix == other.matrix).all()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 2, 4]", (1, 2, 4)),
        ("range(3)", (0, 1, 2)),
        ("list(range(2, 9, 3))", (2, 5, 8)),
        ("[2**i for i in range(4)]", (1, 2, 4, 8)),
        ("[i for i in range(1, 9) if i % 3 == 0]", (3, 6)),
        ("[1] + [32 * i for i in range(1, 3)]", (1, 32, 64)),
        ("['a', \"b\"]", ("a", "b")),
        ("[-1, 0.5]", (-1, 0.5)),
        ("[True, False]", (True, False)),
        ([3, 4], (3, 4)),
    ],
)
def test_values(text: object, values: tuple[object, ...]) -> None:
    assert parse_values(text) == values


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "[]", "[None]", "[[1]]", "range(10**9)", "range(1, 2, 0)", "[1] * 10**9", "{1: 2}", "[x]"),
        *(
            "open('f')",
            "[().__class__]",
            "[i for i in range(10**4) for j in range(10**4)]",
            "(" * 500,
            "[1e999]",
        ),
        *("range(2**70)", "[9**9**9]", [None], [{}], {"a": 1}, None),
    ],
)
def test_values_that_are_refused(text: object) -> None:
    with pytest.raises(ExpressionError):
        parse_values(text)


BROKEN = {
    "empty": b"",
    "blank": b" \n",
    "text": b"some text",
    "number": b"5",
    "list": b"[]",
    "object": b"{}",
    "null": b"null",
    "deep": b"[" * 200_000,
    "binary": bytes(range(256)),
    "cut": gzip.compress(json.dumps(cache()).encode())[:-20],
    "not-gzip": b"\x1f\x8bxxxxxxxx",
    "no-rows": json.dumps({**cache(), "cache": {}}).encode(),
    "rows-of-text": json.dumps({**cache(), "cache": {"a": "b"}}).encode(),
    "keys-of-numbers": json.dumps({**cache(), "tune_params_keys": 5}).encode(),
    "no-values": json.dumps({**cache(), "tune_params": {}}).encode(),
    "lists-as-values": json.dumps({**cache(), "tune_params": {"bx": [[1]], "by": [2], "fast": [1]}}).encode(),
    "energy": json.dumps({**cache(), "objective": "energy"}).encode(),
    "t4-empty": json.dumps({"results": []}).encode(),
    "t4-of-text": json.dumps({"results": ["a"]}).encode(),
    "t4-without-configuration": json.dumps({"results": [{}]}).encode(),
    "t4-of-lists": json.dumps({"results": [{"configuration": {"a": [1]}}]}).encode(),
    "t4-nan": b'{"results": [{"configuration": {"a": NaN}}]}',
    "t4-surrogate": b'{"results": [{"configuration": {"a": "\\ud800"}}]}',
    "t4-metadata": b'{"results": [{"configuration": {"a": 1}}], "metadata": 5}',
    "t1": json.dumps(t1()).encode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_one_line(tune: Tune, tmp_path: Path, name: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(BROKEN[name])
    for command in (("--device", f"replay:{path}"), ("import", path)):
        status, out, err = tune(*command)
        assert (status, out, err.count("\n")) == (1, "", 1), err
        assert "broken.json" in err and "Error(" not in err
        assert "; " in err  # a remedy
        assert len(err) < 600


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "t1"])
def test_broken_spaces_are_refused_in_one_line(tune: Tune, tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.json").write_bytes(BROKEN[name])
    path = written(tmp_path / "a.json", cache())
    status, out, err = tune("--space", "broken.json", "--device", f"replay:{path}")
    assert (status, out, err.count("\n")) == (1, "", 1), err


@pytest.mark.parametrize(
    "condition",
    [
        "bx <",
        "os.system('x')",
        "unknown > 1",
        "bx < 0",
        "bx ** 10**9 > 1",
        "",
        "bx == 'a' + 'b'",
        "1 / 0 > bx",
    ],
)
def test_broken_conditions_are_refused_in_one_line(tune: Tune, tmp_path: Path, condition: str) -> None:
    space = written(tmp_path / "a.T1.json", t1((condition,)))
    status, out, err = tune("--space", space, "--device", f"replay:{written(tmp_path / 'a.json', cache())}")
    assert status in (1, 2)
    assert (out, err.count("\n")) == ("", 1), err


def test_a_bomb_is_refused(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.formats.foreign_recording.MAX_BYTES", 1 << 20)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * (8 << 20)))
    status, _, err = tune("import", "bomb.json.gz")
    assert status == 1
    assert "larger than 1 MiB" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--kernel"),
        (("--device", "replay:nothing"), "there is no file"),
        (("--device", "cuda"), "--kernel"),
        (("--kernel", "gemm", "--space", "a.json"), "leave out --kernel"),
        (("--kernel", "gemm", "--device", "replay:a.json"), "leave out --kernel"),
        (("--device", "replay:a.json", "--dtype", "float32"), "leave out --dtype"),
        (("--device", "replay:a.json", "--size", "x=5"), "does not hold"),
        (("--device", "replay:a.json", "--mode", "cold"), "leave out --mode"),
        (("--device", "replay:a.json", "--max-error", "1"), "leave out --max-error"),
        (("--device", "replay:a.json", "--fix", "bx=7"), "never '7'"),
    ],
)
def test_command_lines_that_do_not_fit(
    tune: Tune, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    written(tmp_path / "a.json", cache())
    status, _, err = tune("run", *arguments)
    assert status in (1, 2)
    assert word in err
    assert err.count("\n") == 1


def test_import_is_all_or_nothing(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database_module.Database, "record_winner", fail)
    assert tune("import", written(tmp_path / "a.json", cache()))[0] == 1
    with Database.open(tmp_path / "results/tuning.db", write=False) as database:
        assert database.query(Filters()).rows == []


def test_a_study_in_the_dashboard(tune: Tune, ours: Path, tmp_path: Path) -> None:
    """Its pages and what they fetch, without a browser and a server: they are functions of a request."""
    wsgi = pytest.importorskip("optuna_dashboard").wsgi
    assert tune("export", "--replayed", "--format", "optuna", "--out", "study.db")[0] == 0
    assert tune("export", "--replayed", "--format", "optuna", "--out", "study.log")[0] == 0
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    for storage in (f"sqlite:///{tmp_path / 'study.db'}", optuna.storages.JournalStorage(backend)):
        app = wsgi(storage)

        def get(path: str, app: Callable[..., Iterable[bytes]] = app) -> bytes:
            environ: dict[str, object] = {}
            setup_testing_defaults(environ)
            environ.update(PATH_INFO=path, REQUEST_METHOD="GET")
            answered = []
            body = b"".join(app(environ, lambda status, headers, info=None: answered.append(status)))
            assert answered == ["200 OK"], (path, answered)
            return body

        assert b"<html" in get("/dashboard")
        (listed,) = json.loads(get("/api/studies"))["study_summaries"]
        study = json.loads(get(f"/api/studies/{listed['study_id']}"))
        states = [trial["state"] for trial in study["trials"]]
        assert states.count("Complete") > 0
        assert set(states) <= {"Complete", "Fail"}
        best = min(trial["values"][0] for trial in study["trials"] if trial["state"] == "Complete")
        assert [trial["values"] for trial in study["best_trials"]] == [[best]]
        assert json.loads(get(f"/api/studies/{listed['study_id']}/param_importances"))["param_importances"]


@pytest.mark.parametrize("time", [5e-324, 1e-300, 1e-10])
def test_a_time_that_no_clock_tells_is_a_failure(tune: Tune, tmp_path: Path, time: float) -> None:
    recorded = cache()
    recorded["cache"]["16,1,1"].update(time=time, times=[time])
    path = tmp_path / "short.json"
    path.write_text(json.dumps(recorded))
    status, out, err = tune(
        "--device", f"replay:{path}", "--trials", "50", "--sampler", "random", "--json", "-q"
    )
    assert status == 0, err
    (run,) = json.loads(out)
    assert run["winner"]["time_ns"] >= 1e5
