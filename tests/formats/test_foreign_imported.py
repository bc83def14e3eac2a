"""Results of another tool are imported once, and exported again as they were."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.formats.foreign_files import cache, t4, written
from tuner.database import database as database_module
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.formats import optuna_storage
from tuner.formats.foreign import UNVERIFIED, read_foreign, read_results
from tuner.kernel.load import load_kernel

pytestmark = pytest.mark.usefixtures("forked_children")


Tune = Callable[..., tuple[int, str, str]]


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
        assert (
            winner.winner.time_ns
            == trial.time_ns
            == min(one.time_ns for one in database.trials(winner.run.id) if one.time_ns)
        )
        ended = database.run_state(winner.run.id)
        assert (ended["state"], ended["stats"]) == ("finished", {"trials": 14})


def test_seconds_are_exported_as_the_milliseconds_that_they_were(tune: Tune, tmp_path: Path) -> None:
    before = cache()
    tune("import", written(tmp_path / "a.json", before), "-q")
    exported = {
        kind: json.loads(tune("export", "--replayed", "--format", kind, "-o", "-")[1])
        for kind in ("kernel-tuner-cache", "t4")
    }
    names = ("time", "times", "compile_time", "benchmark_time")
    of_cache = [tuple(row[name] for name in names) for row in exported["kernel-tuner-cache"]["cache"].values()
                if isinstance(row["time"], float)]  # fmt: skip
    assert len(of_cache) > 3 and set(map(str, of_cache)) <= {
        str(tuple(row.get(name) for name in names)) for row in before["cache"].values()
    }
    of_t4 = [row["times"] for row in exported["t4"]["results"] if row["invalidity"] == "correct"]
    assert [(row["compilation"], row["benchmark"], row["runtimes"]) for row in of_t4] == [
        (compile_ms, benchmark_ms, times) for _, times, compile_ms, benchmark_ms in of_cache
    ]


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
        assert (status, out, err.count("\n")) == (2, "", 1), err
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


@pytest.mark.parametrize("said", [None, ""])
def test_without_a_word_a_result_is_valid(tmp_path: Path, said: str | None) -> None:
    data = t4(cache())
    valid = [row for row in data["results"] if row["invalidity"] == "correct"]
    before = read_results(written(tmp_path / "a.json", data)).rows
    for row in valid:
        row["invalidity"] = said
    after = read_results(written(tmp_path / "b.json", data)).rows
    assert {key: row.time_ns for key, row in before.items()} == {
        key: row.time_ns for key, row in after.items()
    }


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


@pytest.mark.parametrize("name", ["d?x/a?b%20y #{SCHEMA_VERSION} é.db"])
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


def test_a_study_that_does_not_fit_on_the_disk_replaces_nothing(
    tune: Tune, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OperationalError("CREATE TABLE", (), sqlite3.OperationalError("database or disk is full"))

    (tmp_path / "study.db").write_text("mine")
    monkeypatch.setattr(optuna_storage, "RDBStorage", full)
    said = tune("export", "--replayed", "--format", "optuna", "--out", "study.db", "--force")
    assert said == (1, "", "tune: study.db: database or disk is full; name another file with -o\n")
    assert (tmp_path / "study.db").read_text() == "mine"


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
        said = [
            (t.user_attrs["trial"], t.user_attrs["status"], t.user_attrs.get("error", ""))
            for t in study.trials
        ]
        assert said == [(t.id, str(t.status), t.error[:1000]) for t in trials]
        assert not [t for t in study.trials if {None, ""} & {*t.user_attrs.values()}]


@pytest.mark.parametrize("kind", ["header", "optuna"])
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
        assert (status, err.count("\n")) == (1 + name.endswith("/x"), 1), (name, err)
        assert (tmp_path / "mine").read_text() == "mine"
        assert sorted(tmp_path.iterdir()) == before
    assert tune(*asked, "mine", "--force")[0] == 0
    assert (tmp_path / "mine").read_bytes() != b"mine"
    assert sorted(tmp_path.iterdir()) == before


def test_import_is_all_or_nothing(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database_module.Database, "record_winner", fail)
    assert tune("import", written(tmp_path / "a.json", cache()))[0] == 1
    with Database.open(tmp_path / "results/tuning.db", write=False) as database:
        assert database.query(Filters()).rows == []


def test_a_time_that_no_clock_tells_is_a_failure(tune: Tune, tmp_path: Path) -> None:
    recorded = cache()
    recorded["cache"]["16,1,1"].update(time=1e-10, times=[1e-10])
    path = tmp_path / "short.json"
    path.write_text(json.dumps(recorded))
    status, out, err = tune(
        "--device", f"replay:{path}", "--trials", "50", "--sampler", "random", "--json", "-q"
    )
    assert status == 0, err
    (run,) = json.loads(out)
    assert run["winner"]["time_ns"] >= 1e5


def test_a_study_in_the_dashboard(tune: Tune, ours: Path, tmp_path: Path) -> None:
    """Its pages and what they fetch, without a browser and a server: they are functions of a request."""
    wsgi = pytest.importorskip("optuna_dashboard").wsgi
    assert tune("export", "--replayed", "--format", "optuna", "--out", "study.db")[0] == 0
    app: Callable[..., Iterable[bytes]] = wsgi(f"sqlite:///{tmp_path / 'study.db'}")

    def get(path: str) -> bytes:
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


def test_of_many_trials_it_is_said_how_many_are_written(
    tune: Tune, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optuna_storage, "EVERY", 4)
    status, _, err = tune("export", "--replayed", "--format", "optuna", "--out", "study.log")
    assert status == 0
    said = [line.split()[1] for line in err.splitlines() if line.endswith("trials written")]
    assert said[:3] == ["4", "8", "12"]
