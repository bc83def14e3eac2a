"""Readers of other tools' files."""

import gzip
import json

import pytest

from tests.stored import t1_space
from tuner.core.errors import ExpressionError, RecordingError, SpaceError
from tuner.core.model import Status
from tuner.formats.foreign import read_foreign, read_results
from tuner.formats.t1 import read_t1
from tuner.kernel.space import SearchSpace

CACHE = {
    "device_name": "X",
    "kernel_name": "k",
    "tune_params_keys": ["bx", "mode"],
    "tune_params": {"bx": [16, 32, 64], "mode": ["a", "b"]},
    "objective": "time",
    "cache": {
        "16,a": {"bx": 16, "mode": "a", "time": 0.5},
        "32,a": {"bx": 32, "mode": "a", "time": "CompilationFailedConfig"},
        "64,b": {"bx": 64, "mode": "b", "time": 0.25},
    },
}
TIMES = {(16, "a"): 500_000.0, (32, "a"): None, (64, "b"): 250_000.0}


def times_of(recording):
    return {key: row.ranked_ns for key, row in recording.rows.items()}


def written(path, data, cut=0):
    text = json.dumps(data)
    path.write_bytes(gzip.compress(text[: len(text) - cut].encode()))
    return path


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_cache_also_without_its_last_brackets(tmp_path, cut):
    path = written(tmp_path / "k-X.json.gz", CACHE, cut)
    recording = read_results(path)
    assert recording.name == "k-X"
    assert times_of(recording) == TIMES
    results = read_foreign(path)
    space = SearchSpace.from_kernel(results.kernel, results.problem, results.recording.gpu)
    assert set(space.configurations()) == {recording.configuration(row) for row in TIMES}


def test_a_failure_in_a_cache_may_have_its_kind_in_place_of_a_time(tmp_path):
    failed = {"bx": 32, "mode": "a", "__error__": "CompilationFailedConfig"}
    recording = read_results(written(tmp_path / "k", {**CACHE, "cache": {**CACHE["cache"], "32,a": failed}}))
    assert (recording.rows[32, "a"].status, recording.notes) == (Status.COMPILE_ERROR, [])


def test_a_cache_that_ends_with_a_comma(tmp_path):
    path = tmp_path / "k.json"
    path.write_text(json.dumps(CACHE)[:-2] + ",\n")
    assert times_of(read_results(path)) == TIMES


def test_t4(tmp_path):
    def result(bx, mode, value, invalidity):
        return {
            "configuration": {"bx": bx, "mode": mode},
            "invalidity": invalidity,
            "correctness": 1,
            "measurements": [{"name": "time", "value": value, "unit": ""}],
            "objectives": ["time"],
        }

    results = [
        result(16, "a", 0.5, "correct"),
        result(32, "a", 0.1, "compile"),
        result(64, "b", 0.25, "correct"),
    ]
    recording = read_results(
        written(tmp_path / "k_T4.json.gz", {"results": results, "schema_version": "1.0.0"})
    )
    assert times_of(recording) == TIMES
    assert recording.parameters == {"bx": (16, 32, 64), "mode": ("a", "b")}


def t1(conditions, values="[16, 32, 64]"):
    return {
        "General": {"BenchmarkName": "k"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": "bx", "Type": "int", "Values": values, "Default": 32},
                {"Name": "by", "Type": "int", "Values": "[1, 2, 4]"},
            ],
            "Conditions": [{"Parameters": ["bx", "by"], "Expression": text} for text in conditions],
        },
        "KernelSpecification": {},
    }


def test_t1(tmp_path):
    path = tmp_path / "k.T1.json"
    path.write_text(json.dumps(t1(["32 <= bx * by <= 64", "by > 1 or bx == 32"])))
    space = t1_space(path)
    valid = {tuple(c.values.values()) for c in space.configurations()}
    assert valid == {(32, 1), (16, 2), (32, 2), (16, 4)}
    assert space.default.values == {"bx": 32, "by": 2}


def test_t1_never_runs_python(tmp_path):
    path = tmp_path / "k.T1.json"
    path.write_text(json.dumps(t1(["__import__('os').getcwd() == bx"])))
    with pytest.raises(ExpressionError):
        read_t1(path)
    path.write_text(json.dumps(t1([], "__import__('os').listdir()")))
    with pytest.raises(ExpressionError, match="not allowed as a list of values"):
        read_t1(path)
    path.write_text(json.dumps(t1(["bx < 0"])))
    with pytest.raises(SpaceError, match="no configuration"):
        t1_space(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"results": []}', b"\x1f\x8bxx", b'{"cache": {}}'])
def test_what_is_something_else(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    for read in (read_results, read_t1):
        with pytest.raises(RecordingError):
            read(path)


def test_an_objective_that_is_a_rate(tmp_path):
    data = {**CACHE, "objective": "GFLOP/s"}
    data["cache"] = {k: {**row, "GFLOP/s": 4.0 if k == "16,a" else 2.0} for k, row in CACHE["cache"].items()}
    recording = read_results(written(tmp_path / "h.json.gz", data))
    assert times_of(recording) == {(16, "a"): 0.25e9, (32, "a"): None, (64, "b"): 0.5e9}
    assert recording.rows[64, "b"].time_ns == 250_000.0


def test_an_objective_that_is_neither_time_nor_rate(tmp_path):
    with pytest.raises(RecordingError, match="energy"):
        read_results(written(tmp_path / "h.json.gz", {**CACHE, "objective": "energy"}))
