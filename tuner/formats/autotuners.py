"""Results of other auto-tuners: T4 files and cache files of Kernel Tuner are read, and trials written as such.

Kernel Tuner's simulation mode can search what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.core.errors import RecordingError
from tuner.core.model import Status, Value, ascii_json
from tuner.core.version import __version__
from tuner.database.records import StoredTrial
from tuner.formats.files import json_with_entries
from tuner.formats.foreign_recording import (
    FAILURES,
    ForeignRecording,
    ForeignRow,
    checked_key,
    failure_named,
    milliseconds,
    objective_in,
    rate_as_ns,
    samples,
    seconds,
    stem,
)
from tuner.formats.results import Results

CACHE = "Kernel Tuner cache"
AXES = ("x", "y", "z")
"""Names for the numbers of a ``problem_size``."""
T4 = "T4"
SCHEMA_VERSION = "1.0.0"
STATUSES = {
    "timeout": Status.HANG,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_RESULT,
    "constraints": Status.INVALID_CONFIG,
}
"""The status of a failure, by the format's ``invalidity``."""
INVALIDITY = {
    Status.OK: "correct",
    Status.SLOW: "correct",
    Status.INVALID_CONFIG: "constraints",
    Status.COMPILE_ERROR: "compile",
    Status.COMPILE_OOM: "compile",
    Status.COMPILE_TIMEOUT: "timeout",
    Status.HANG: "timeout",
    Status.WRONG_RESULT: "correctness",
    Status.WRONG_AFTER_TIMING: "correctness",
    Status.UNVERIFIED: "correctness",
    Status.INACCURATE: "correctness",
}
"""Every other status is ``runtime``: the kernel was started, and has no time that counts."""
FAILED = {INVALIDITY.get(status, "runtime"): name for name, status in FAILURES.items()}
"""What a failure has for a time, by ``invalidity``; where none is named, it failed at run time."""


def is_t4(data: object) -> bool:
    """Return whether this is the content of a T4 file."""
    return isinstance(data, dict) and isinstance(data.get("results"), list)


def read_t4(path: Path, data: Mapping[str, Any]) -> ForeignRecording:
    """Return the results in the content of a T4 file.

    Only ``invalidity`` says which are valid, and times are in milliseconds.

    Raises:
        RecordingError: it has no results, its objective is neither a time nor a rate or not in the results, or a value
            cannot be a parameter's.
        KeyError, TypeError, AttributeError: the content is damaged.
    """
    if not data["results"]:
        raise RecordingError(f"{path}: not a T4 file with results", "name a T4 or cache file")
    first = data["results"][0]
    objective = objective_in(path, first.get("objectives") or ["time"])
    names = [str(name) for name in first["configuration"]]
    checked_key(path, names)
    rows = {
        checked_key(path, [result["configuration"][name] for name in names]): _t4_row(result, objective)
        for result in data["results"]
    }
    correct = [result for result in data["results"] if _invalidity(result) == "correct"]
    for name in dict.fromkeys(("time", objective)):
        if correct and not any(name in _measured(result) for result in correct):
            raise RecordingError(f"{path}: no result has a measurement named {name}", "record it with that")
    metadata = data.get("metadata") or {}
    kernel, gpu = _name_in(metadata, "kernel") or stem(path), _name_in(metadata, "device")
    parameters: dict[str, tuple[Value, ...]] = {}
    for j, name in enumerate(names):
        values = dict.fromkeys(key[j] for key in rows)
        text = any(isinstance(value, str) for value in values)
        parameters[name] = tuple(values if text else sorted(values))
    return ForeignRecording(
        stem(path), parameters, rows, T4, kernel, gpu, metadata=metadata, objective=objective
    )


def _name_in(metadata: Mapping[str, Any], key: str) -> str:
    described = metadata.get(key)
    return str(described.get("name") or "") if isinstance(described, dict) else ""


def _invalidity(result: Mapping[str, Any]) -> object:
    return result.get("invalidity", "correct")


def _measured(result: Mapping[str, Any]) -> dict[object, object]:
    measurements = result.get("measurements") or ()
    return {measurement.get("name"): measurement.get("value") for measurement in measurements}


def _t4_row(result: Mapping[str, Any], objective: str) -> ForeignRow:
    times = result.get("times") or {}
    compile_s = seconds(times.get("compilation", times.get("compilation_time")))
    measure_s = seconds(times.get("benchmark")) + seconds(times.get("validation"))
    measured, word = _measured(result), _invalidity(result)
    time = measured.get("time")
    time_ns = milliseconds(time) if word == "correct" else None
    of_rate_ns = None if objective == "time" else rate_as_ns(measured.get(objective))
    if time_ns is None or (objective != "time" and of_rate_ns is None):
        status = STATUSES.get(str(word)) or failure_named(time)
        reason = f"no {'time' if time_ns is None else objective}" if word == "correct" else word
        error = time if isinstance(time, str) and time else reason
        return ForeignRow(status, None, (), compile_s, measure_s, str(error))
    runtimes = samples(times.get("runtimes"))
    return ForeignRow(Status.OK, time_ns, runtimes, compile_s, measure_s, objective=of_rate_ns)


def t4_of(results: Results) -> Iterator[str]:
    """Yield the text of a T4 file in pieces; times are in milliseconds."""
    run = results.run
    head = {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "timeunit": "milliseconds",
            "autotuner": {"name": "kernel-tune", "version": run.versions.get("kernel-tune", __version__)},
            "device": {"name": run.gpu.name, "driver": run.gpu.driver},
            "kernel": {"name": run.problem.kernel},
            "problem": run.problem.to_json(),
            "mode": str(run.conditions.mode),
            "regime": str(run.conditions.regime),
        },
        "results": [],
    }
    entries = (ascii_json(_t4_result(results, stored), indent=1) for stored in results.trials())
    return json_with_entries(head, entries)


def _invalidity_of(status: Status) -> str:
    """Return the format's word for a status."""
    return INVALIDITY.get(status, "runtime")


def _failure(status: Status) -> str:
    """Return what a failure has for a time."""
    return FAILED.get(_invalidity_of(status), FAILED["runtime"])


def _t4_result(results: Results, stored: StoredTrial) -> dict[str, Any]:
    trial = stored.trial
    word = _invalidity_of(trial.status)
    ok = word == "correct" and trial.time_ns is not None
    times: dict[str, Any] = {
        "compilation": trial.compile_s * 1e3,
        "benchmark": trial.measure_s * 1e3,
        "framework": 0.0,
        "search_algorithm": 0.0,
        "validation": 0.0,
    }
    measurements: list[dict[str, Any]] = [{"name": "time", "value": _failure(trial.status), "unit": "ms"}]
    if ok and trial.time_ns is not None:
        times["runtimes"] = [sample / 1e6 for sample in trial.samples_ns or (trial.time_ns,)]
        measurements = [{"name": "time", "value": trial.time_ns / 1e6, "unit": "ms"}]
        rates = {"TFLOP/s": stored.metrics.tflops, "GB/s": stored.metrics.gbytes_per_s}
        measurements += [{"name": n, "value": rate, "unit": n} for n, rate in rates.items() if rate]
    return {
        "timestamp": stored.created_at,
        "configuration": results.flat(stored),
        "times": times,
        "invalidity": word,
        "correctness": int(ok),
        "measurements": measurements,
        "objectives": ["time"],
    }


def is_cache(data: object) -> bool:
    """Return whether this is the content of a cache file."""
    return isinstance(data, dict) and "cache" in data and "tune_params_keys" in data


def read_cache(path: Path, data: Mapping[str, Any]) -> ForeignRecording:
    """Return the results in the content of a cache file.

    Raises:
        RecordingError: its objective is neither a time nor a rate, or a value cannot be a parameter's.
        KeyError, TypeError, AttributeError: the content is damaged.
    """
    objective = objective_in(path, [data.get("objective") or "time"])
    names = [str(name) for name in data["tune_params_keys"]]
    checked_key(path, names)
    rows = {
        checked_key(path, [row[name] for name in names]): _cache_row(row, objective)
        for row in data["cache"].values()
    }
    parameters = {
        name: tuple(dict.fromkeys([*data["tune_params"][name], *(key[j] for key in rows)]))
        for j, name in enumerate(names)
    }
    for values in parameters.values():
        checked_key(path, values)
    gpu, kernel = str(data.get("device_name") or ""), str(data.get("kernel_name") or stem(path))
    sizes = _sizes(data.get("problem_size"))
    return ForeignRecording(stem(path), parameters, rows, CACHE, kernel, gpu, sizes, {}, objective)


def _cache_row(row: Mapping[str, Any], objective: str) -> ForeignRow:
    time_ns = milliseconds(row.get("time"))
    compile_s = seconds(row.get("compile_time"))
    measure_s = seconds(row.get("benchmark_time")) + seconds(row.get("verification_time"))
    of_rate_ns = None if objective == "time" else rate_as_ns(row.get(objective))
    if time_ns is None or (objective != "time" and of_rate_ns is None):
        error = row.get("time") if time_ns is None else f"no {objective}"
        return ForeignRow(failure_named(error), None, (), compile_s, measure_s, str(error))
    return ForeignRow(
        Status.OK, time_ns, samples(row.get("times")), compile_s, measure_s, objective=of_rate_ns
    )  # fmt: skip


def _sizes(problem_size: object) -> dict[str, int]:
    sizes = problem_size if isinstance(problem_size, list) else [problem_size]
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        return {}
    return dict(zip(AXES, sizes, strict=False))


def cache_of(results: Results) -> Iterator[str]:
    """Yield the text of a cache file in pieces; times are in milliseconds."""
    run, parameters = results.run, results.parameters
    head = {
        "device_name": run.gpu.name,
        "kernel_name": run.problem.kernel,
        "problem_size": list(run.problem.sizes.values()),
        "tune_params_keys": list(parameters),
        "tune_params": parameters,
        "objective": "time",
        "cache": {},
    }
    return json_with_entries(head, (_entry(results.flat(stored), stored) for stored in results.trials()))


def _entry(flat: Mapping[str, Value], stored: StoredTrial) -> str:
    key = ",".join(str(value) for value in flat.values())
    return f"{ascii_json(key, indent=1)}: {ascii_json({**flat, **_cache_entry(stored)}, indent=1)}"


def _cache_entry(stored: StoredTrial) -> dict[str, Any]:
    trial = stored.trial
    measured: dict[str, Any] = {"time": _failure(trial.status)}
    if _invalidity_of(trial.status) == "correct" and trial.time_ns is not None:
        measured["time"] = trial.time_ns / 1e6
        measured["times"] = [sample / 1e6 for sample in trial.samples_ns or (trial.time_ns,)]
        if stored.metrics.tflops:
            measured["GFLOP/s"] = stored.metrics.tflops * 1e3
        if stored.metrics.gbytes_per_s:
            measured["GB/s"] = stored.metrics.gbytes_per_s
    return {
        **measured,
        "compile_time": trial.compile_s * 1e3,
        "verification_time": 0,
        "benchmark_time": trial.measure_s * 1e3,
        "strategy_time": 0,
        "framework_time": 0,
        "timestamp": stored.created_at.replace("T", " ").replace("Z", "+00:00"),
    }
