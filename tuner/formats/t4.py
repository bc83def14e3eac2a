"""The T4 format for results: reading those of other tools, and writing trials."""

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

FORMAT = "T4"
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
        checked_key(path, [result["configuration"][name] for name in names]): _row(result, objective)
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
        stem(path), parameters, rows, FORMAT, kernel, gpu, metadata=metadata, objective=objective
    )


def _name_in(metadata: Mapping[str, Any], key: str) -> str:
    described = metadata.get(key)
    return str(described.get("name") or "") if isinstance(described, dict) else ""


def _invalidity(result: Mapping[str, Any]) -> object:
    return result.get("invalidity", "correct")


def _measured(result: Mapping[str, Any]) -> dict[object, object]:
    measurements = result.get("measurements") or ()
    return {measurement.get("name"): measurement.get("value") for measurement in measurements}


def _row(result: Mapping[str, Any], objective: str) -> ForeignRow:
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
    entries = (ascii_json(_result(results, stored), indent=1) for stored in results.trials())
    return json_with_entries(head, entries)


def invalidity(status: Status) -> str:
    """Return the format's word for a status."""
    return INVALIDITY.get(status, "runtime")


def failure(status: Status) -> str:
    """Return what a failure has for a time."""
    return FAILED.get(invalidity(status), FAILED["runtime"])


def _result(results: Results, stored: StoredTrial) -> dict[str, Any]:
    trial = stored.trial
    word = invalidity(trial.status)
    ok = word == "correct" and trial.time_ns is not None
    times: dict[str, Any] = {
        "compilation": trial.compile_s * 1e3,
        "benchmark": trial.measure_s * 1e3,
        "framework": 0.0,
        "search_algorithm": 0.0,
        "validation": 0.0,
    }
    measurements: list[dict[str, Any]] = [{"name": "time", "value": failure(trial.status), "unit": "ms"}]
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
