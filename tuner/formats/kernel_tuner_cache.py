"""Cache files of Kernel Tuner: reading them, and writing trials so that its simulation mode can search them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.core.model import Status, Value, ascii_json
from tuner.database.records import StoredTrial
from tuner.formats.files import json_with_entries
from tuner.formats.foreign_recording import (
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
from tuner.formats.t4 import failure, invalidity

FORMAT = "Kernel Tuner cache"
AXES = ("x", "y", "z")
"""Names for the numbers of a ``problem_size``."""


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
        checked_key(path, [row[name] for name in names]): _row(row, objective)
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
    return ForeignRecording(stem(path), parameters, rows, FORMAT, kernel, gpu, sizes, {}, objective)


def _row(row: Mapping[str, Any], objective: str) -> ForeignRow:
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
    return f"{ascii_json(key, indent=1)}: {ascii_json({**flat, **_measured(stored)}, indent=1)}"


def _measured(stored: StoredTrial) -> dict[str, Any]:
    trial = stored.trial
    measured: dict[str, Any] = {"time": failure(trial.status)}
    if invalidity(trial.status) == "correct" and trial.time_ns is not None:
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
