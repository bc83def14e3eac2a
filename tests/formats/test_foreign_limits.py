"""What just fits is read, and what is one more is refused; and what a value of another tool's file means."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tests.formats.test_foreign_said import cache, read, t4, t4_result
from tests.stored import make_run, make_trial
from tuner.core.errors import ExpressionError, RecordingError
from tuner.core.model import Status
from tuner.database.database import Database
from tuner.database.records import Filters, Metrics
from tuner.formats.autotuners import cache_of, t4_of
from tuner.formats.files import pieces
from tuner.formats.foreign import read_results
from tuner.formats.foreign_recording import stem, storable_value
from tuner.formats.foreign_results import rate_as_ns, seconds, time_ns_of
from tuner.formats.recording import read_recording
from tuner.formats.results import ABSENT, Results, results_of
from tuner.formats.t1 import parse_values, read_t1


def space(folder: Path, *parameters: dict[str, Any], **more: Any) -> Path:
    path = folder / "a.json"
    path.write_text(json.dumps({"ConfigurationSpace": {"TuningParameters": parameters, **more}}))
    return path


@pytest.mark.parametrize(
    ("limit", "most", "data"),
    [
        ("foreign_json.MOST_RESULTS", 7, t4([t4_result(i, 1.0) for i in range(4)])),  # three entries are no results
        ("foreign_results.MOST_SETS", 3, t4([{"configuration": {f"p{i}": 1}} for i in range(3)])),
        ("foreign_results.MOST_SAMPLES", 6, t4([t4_result(i, 1.0, times={"runtimes": [1] * 3}) for i in (1, 2)])),
        ("foreign_recording.MAX_PARAMETERS", 1, cache()),
        ("foreign_recording.MAX_TEXT", 5, t4([t4_result("abcde", 1.0)])),
    ],
)  # fmt: skip
def test_as_much_as_a_limit_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, data: Any
) -> None:
    monkeypatch.setattr(f"tuner.formats.{limit}", most)
    assert read(tmp_path / "a.json", data)[0]
    monkeypatch.setattr(f"tuner.formats.{limit}", most - 1)
    with pytest.raises(RecordingError):
        read(tmp_path / "a.json", data)


def test_the_longest_list_of_values() -> None:
    for most in ("range(10000)", "range(9999) + [9999]", "[i for i in range(10000)]"):
        assert parse_values(most) == tuple(range(10_000))
    for more in ("range(10001)", "range(9999) + [1, 2]", "[i for i in range(101) for j in [1]] * 99"):
        with pytest.raises(ExpressionError):
            parse_values(more)


@pytest.mark.parametrize(
    ("default", "kept"), [({}, 4), ({"Default": 8}, 8), ({"Default": 5}, 4), ({"Default": 1}, 1)]
)
def test_a_space_without_a_default_has_the_middle_value(
    tmp_path: Path, default: dict[str, int], kept: int
) -> None:
    path = space(tmp_path, {"Name": "a", "Values": "[1, 2, 4, 8]", **default})
    assert read_t1(path).parameters["a"].default == kept


@pytest.mark.parametrize(
    ("value", "unit", "time_ns"),
    [
        (1.0, 1.0, 1.0),
        (0.99, 1.0, None),
        (9e17, 1.0, 9e17),
        (1e18, 1.0, None),
        (1e20, 1e-9, None),  # what a tool writes of a failure, whatever its unit
        (0, 1.0, None),
        (True, 1e6, None),
        ("5", 1.0, 5.0),
        ("5" + 60 * " " + "x", 1.0, None),
        (None, 1.0, None),
    ],
)
def test_which_numbers_are_times(value: object, unit: float, time_ns: float | None) -> None:
    assert time_ns_of(value, unit) == time_ns
    assert seconds(value, unit) == (time_ns or 0.0) / 1e9


@pytest.mark.parametrize(
    ("rate", "time_ns"), [(2.0, 5e8), (1e18, None), (2e-18, 1e9 / 2e-18), (1e-18, None), (True, None)]
)
def test_which_numbers_are_rates(rate: object, time_ns: float | None) -> None:
    assert rate_as_ns(rate) == time_ns


def test_a_pipe_is_refused_for_a_file_is_read_twice(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    held = os.open(tmp_path / "pipe.json", os.O_RDWR)  # or who opens it would wait
    os.write(held, json.dumps(cache()).encode())
    with pytest.raises(RecordingError, match="no plain file"):
        read_results(tmp_path / "pipe.json")
    os.close(held)


def test_of_impossible_times_the_first_three_are_named_and_errors_are_cut(tmp_path: Path) -> None:
    _, note = read(tmp_path / "a.json", cache((1.0, -1.0, -2.0, -3.0, -4.0)))
    assert "without a possible time: 4 (-1.0, -2.0, -3.0)" in note
    (tmp_path / "a.json").write_text(json.dumps(cache((1.0, "e" * 300))))
    assert [row.error for row in read_results(tmp_path / "a.json").rows.values()] == ["", "e" * 200]


def test_a_file_of_as_many_bytes_as_allowed_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / "a.json.gz", b"x" * (3 << 20)
    path.write_bytes(gzip.compress(data))
    read_again = list(pieces(path, len(data)))
    assert b"".join(read_again) == data and max(map(len, read_again)) <= 1 << 20
    with pytest.raises(RecordingError, match="larger than 2 MiB"):
        list(pieces(path, len(data) - 1))
    monkeypatch.setattr("tuner.formats.files.MOST_MEMBERS", 3)
    path.write_bytes(3 * gzip.compress(b"x"))
    assert b"".join(pieces(path, 3)) == b"xxx"
    path.write_bytes(4 * gzip.compress(b"x"))
    with pytest.raises(RecordingError, match="compressed parts"):
        list(pieces(path, 4))


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.T4.json", "a.T4.json.gz", "a"])
def test_the_name_of_a_file_is_that_of_what_it_is_about(name: str) -> None:
    assert stem(Path("b") / name) == "a"


def test_as_many_values_of_a_recording_as_its_limit_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = scale_kernel(tmp_path)
    path = write_synthetic_recording(tmp_path / "scale-x.json.gz", kernel, [kernel.problem()], limit=3)
    text = gzip.decompress(path.read_bytes())
    count = sum(map(text.count, (b",", b":", b"[", b"{")))
    monkeypatch.setattr("tuner.formats.recording.MAX_VALUES", count)
    monkeypatch.setattr("tuner.formats.recording.MAX_BYTES", len(text))
    assert read_recording(path).problems[0].rows
    monkeypatch.setattr("tuner.formats.recording.MAX_VALUES", count - 1)
    with pytest.raises(RecordingError, match="values"):
        read_recording(path)


def test_a_parameter_that_some_configurations_lack_has_a_value_for_that_once() -> None:
    occurring = {"x": [2, "b", 1], "y": [1], "z": [ABSENT]}
    table = Results(None, None, (), (), (), occurring, frozenset("xz"), ())  # type: ignore[arg-type]
    assert table.parameters == {"x": [1, 2, "b", ABSENT], "y": [1], "z": [ABSENT]}


@pytest.mark.parametrize(
    ("written", "sizes"),
    [
        ([512, 256], {"x": 512, "y": 256}), (7, {"x": 7}), ([1, 2, 3, 4], {"x": 1, "y": 2, "z": 3, "size_4": 4}),
        ([64.0, "32"], {"x": 64, "y": 32}), ("1024, 512", {"x": 1024, "y": 512}),
        *(([wrong], {}) for wrong in (0, -1, True, 2**63, 1.5, "8 rows", None)), ({"x": 8}, {}), (None, {}),
        ([1] * 17, {}),
    ],
)  # fmt: skip
def test_the_sizes_of_a_cache_are_whole_numbers(
    tmp_path: Path, written: object, sizes: dict[str, int]
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(cache(problem_size=written)))
    found = read_results(tmp_path / "a.json")
    assert found.sizes == sizes
    said = "a.json: its problem_size is no list of whole numbers; give the sizes by --size"
    assert (said in found.notes) == (not sizes and written not in (None, []))


def test_what_a_result_took_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    times = {"compilation": 1000, "benchmark": 5, "validation": 7}
    (tmp_path / "a.json").write_text(json.dumps(t4([t4_result(8, 1.0, times=times), t4_result(4, 1.0)])))
    found = read_results(tmp_path / "a.json")
    assert found.parameters == {"block": (4, 8)}
    assert [(row.compile_s, row.measure_s) for row in found.rows.values()] == [(1.0, 0.012), (0.0, 0.0)]
    data = cache()
    data["cache"]["1"] |= {"compile_time": 1000, "benchmark_time": 5, "verification_time": 7}
    (tmp_path / "a.json").write_text(json.dumps(data))
    first, second, _ = read_results(tmp_path / "a.json").rows.values()
    assert (first.compile_s, first.measure_s, second.compile_s, second.measure_s) == (1.0, 0.012, 0.0, 0.0)


def test_what_is_written_of_each_status(tmp_path: Path) -> None:
    said = {
        "ok": "correct", "slow": "correct", "invalid_config": "constraints", "compile_error": "compile",
        "compile_oom": "compile", "compile_timeout": "timeout", "hang": "timeout", "wrong_result": "correctness",
        "wrong_after_timing": "correctness", "unverified": "correctness", "inaccurate": "correctness",
    }  # fmt: skip
    named = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}
    with Database.open(tmp_path / "a.db") as database:
        database.start_run(run := make_run())
        for number, status in enumerate(Status):
            metrics = Metrics(2.0, 3.0, 0.5) if number else Metrics()
            trial = make_trial(number, 2e6, status)
            database.record(run.id, replace(trial, samples_ns=trial.samples_ns if number else ()), metrics)
        suspect = replace(make_trial(99), tags=("suspect",))
        database.record(run.id, suspect)
        results = results_of(database, Filters())
        of_t4, of_cache = json.loads("".join(t4_of(results))), json.loads("".join(cache_of(results)))
    rows = list(of_cache["cache"].values())
    assert len(of_t4["results"]) == len(rows) == len(Status) and results.variants == ["tiled"]
    for status, one, row in zip(Status, of_t4["results"], rows, strict=True):
        word = said.get(status, "runtime")
        ok = word == "correct"
        assert (one["invalidity"], one["correctness"], one["configuration"]["raster"]) == (
            word,
            int(ok),
            "row",
        )
        assert (one["times"]["compilation"], one["times"]["benchmark"]) == (500.0, 250.0)
        assert (row["compile_time"], row["benchmark_time"]) == (500.0, 250.0)
        if not ok:
            time = named.get(word, "RuntimeFailedConfig")
            assert one["measurements"] == [{"name": "time", "value": time, "unit": "ms"}]
            assert row["time"] == time and "times" not in row and "runtimes" not in one["times"]
            continue
        rates = [] if status is Status.OK else [("TFLOP/s", 2.0), ("GB/s", 3.0)]
        assert [(m["name"], m["value"]) for m in one["measurements"]] == [("time", 2.0), *rates]
        assert one["times"]["runtimes"] == row["times"] and row["time"] == 2.0
        assert {row.get("GFLOP/s"), row.get("GB/s")} == ({2000.0, 3.0} if rates else {None})


def test_which_values_a_parameter_may_have() -> None:
    assert all(map(storable_value, (0, -1.5, True, "", "a b", 2**63 - 1, 1 - 2**63)))
    assert not any(
        map(storable_value, (2**63, -(2**63), float("inf"), float("nan"), None, [], "a\n", "\ud800"))
    )
