"""Results of other auto-tuners: T4 files and cache files of Kernel Tuner are read, and trials written as such.

Kernel Tuner's simulation mode can search what is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.core.errors import RecordingError
from tuner.core.model import Status, Value, ascii_json
from tuner.core.version import __version__
from tuner.database.records import StoredTrial
from tuner.formats.files import json_with_entries
from tuner.formats.foreign_json import TIME_UNITS, JsonResults, other_tool
from tuner.formats.foreign_recording import ForeignRecording, checked_key, measure_of, objective_in, stem
from tuner.formats.foreign_results import FAILURES, Gathering, seconds, unit_ns
from tuner.formats.results import Results

CACHE = "Kernel Tuner cache"
AXES = ("x", "y", "z")
"""Names for the numbers of a ``problem_size``."""
MOST_SIZES = 16
T4 = "T4"
SCHEMA_VERSION = "1.0.0"
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


def read_t4(file: JsonResults) -> ForeignRecording:
    """Return the results of a T4 file.

    ``invalidity`` says which are valid, and ``correctness`` of 0 that one is not. Times are in the unit of the
    measurement or of the file.

    Raises:
        RecordingError: it has no results, its objective is neither a time nor a rate or not in the results, a value
            cannot be a parameter's, or a unit is not known.
        KeyError, TypeError, AttributeError: the content is damaged.
    """
    path, metadata = file.path, file.head.get("metadata") or {}
    of_file = [*map(metadata.get, TIME_UNITS), *map(file.head.get, TIME_UNITS)]
    unit_ns(path, *of_file)
    gathering, objectives, objective = None, None, ""
    measured_of_correct: set[str] = set()
    for result in file.results():
        asked = result.get("objectives") or ["time"]
        if gathering is None:
            objectives, objective = asked, objective_in(path, asked)
            gathering = Gathering(path, objective)
        elif asked != objectives:
            raise RecordingError(
                f"{path}: its results have several objectives", "split it into files of one objective"
            )
        if "configuration" not in result and isinstance(result.get("parameters"), dict):
            raise other_tool(path, "CLTune")
        measured = {measure_of(one.get("name")): one for one in result.get("measurements") or ()}
        word = result.get("invalidity") or "correct"
        if word == "correct" and result.get("correctness", 1) == 0:
            word = "correctness"
        if word == "correct":
            measured_of_correct.update(measured)
        time, times = measured.get("time", {}), result.get("times") or {}
        own = time.get("unit") if isinstance(time.get("value"), int | float) else None
        unit = unit_ns(path, *of_file, own)
        took_s = (
            seconds(times.get("compilation", times.get("compilation_time")), unit),
            seconds(times.get("benchmark"), unit) + seconds(times.get("validation"), unit),
        )
        ranked, singles = (time.get("value"), unit_ns(path, own, *of_file)), (times.get("runtimes"), unit)
        row = gathering.row(word, ranked, singles, measured.get(objective, {}).get("value"), took_s)
        gathering.add(result["configuration"], row)
    if gathering is None:
        said = file.note() or "not a T4 file with results"
        raise RecordingError(f"{path}: {said}", "name a T4 or cache file")
    for name in dict.fromkeys(("time", objective)):
        if measured_of_correct and name not in measured_of_correct:
            raise RecordingError(f"{path}: no result has a measurement named {name}", "record it with that")
    names, rows, notes = gathering.gathered()
    kernel, gpu = _name_in(metadata, "kernel") or stem(path), _name_in(metadata, "device")
    parameters: dict[str, tuple[Value, ...]] = {}
    for j, name in enumerate(map(str, names)):
        values = dict.fromkeys(key[j] for key in rows)
        text = any(isinstance(value, str) for value in values)
        parameters[name] = tuple(values if text else sorted(values))
    return ForeignRecording(
        stem(path), parameters, rows, T4, kernel, gpu, metadata=metadata, objective=objective, notes=notes
    )


def _name_in(metadata: Mapping[str, Any], key: str) -> str:
    described = metadata.get(key)
    return str(described.get("name") or "") if isinstance(described, dict) else ""


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


def failure_of(status: Status) -> str:
    """Return what a failure has for a time."""
    return FAILED.get(INVALIDITY.get(status, "runtime"), FAILED["runtime"])


def _t4_result(results: Results, stored: StoredTrial) -> dict[str, Any]:
    trial = stored.trial
    word = INVALIDITY.get(trial.status, "runtime")
    ok = word == "correct" and trial.time_ns is not None
    times: dict[str, Any] = {
        "compilation": trial.compile_s * 1e3,
        "benchmark": trial.measure_s * 1e3,
        "framework": 0.0,
        "search_algorithm": 0.0,
        "validation": 0.0,
    }
    measurements: list[dict[str, Any]] = [{"name": "time", "value": failure_of(trial.status), "unit": "ms"}]
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


def read_cache(file: JsonResults) -> ForeignRecording:
    """Return the results of a cache file. Times are in milliseconds, unless it or a result has a unit.

    Raises:
        RecordingError: its objective is neither a time nor a rate, a value cannot be a parameter's, or the unit is not
            known.
        KeyError, TypeError, AttributeError: the content is damaged.
    """
    path, head = file.path, file.head
    objective = objective_in(path, head.get("objective") or "time")
    of_file = [*map(head.get, TIME_UNITS)]
    unit_ns(path, *of_file)
    declared = [str(name) for name in head["tune_params_keys"]]
    if len({*declared}) < len(declared):
        raise RecordingError(f"{path}: tune_params_keys has a name twice", "correct the file")
    units = [name for name in ("unit", *TIME_UNITS) if name not in declared]
    gathering = Gathering(path, objective, declared)
    for row in file.results():
        unit = unit_ns(path, *map(row.get, units), *of_file)
        took_s = (
            seconds(row.get("compile_time"), unit),
            seconds(row.get("benchmark_time"), unit) + seconds(row.get("verification_time"), unit),
        )
        configuration = {name: row[name] for name in declared if name in row}
        time, times = row.get("time", row.get("__error__")), row.get("times")
        said = gathering.row("correct", (time, unit), (times, unit), row.get(objective), took_s)
        gathering.add(configuration, said)
    _, rows, notes = gathering.gathered()
    parameters = {
        name: tuple(dict.fromkeys([*head["tune_params"][name], *(key[j] for key in rows)]))
        for j, name in enumerate(declared)
    }
    for values in parameters.values():
        checked_key(path, values)
    gpu, kernel = str(head.get("device_name") or ""), str(head.get("kernel_name") or stem(path))
    sizes = _sizes(head.get("problem_size"))
    if sizes is None:
        notes = [
            *notes,
            f"{path.name}: its problem_size is no list of whole numbers; give the sizes by --size",
        ]
    return ForeignRecording(
        stem(path), parameters, rows, CACHE, kernel, gpu, sizes or {}, {}, objective, notes
    )


def _sizes(problem_size: object) -> dict[str, int] | None:
    """Return sizes by name: numbers, or texts of them, of a list or with commas between; None for anything else."""
    if problem_size is None or problem_size == []:
        return {}
    sizes = problem_size.split(",") if isinstance(problem_size, str) else problem_size
    texts = [str(size).strip() for size in (sizes if isinstance(sizes, list) else [sizes])]
    if len(texts) > MOST_SIZES or not all(re.fullmatch(r"[1-9]\d{0,18}(\.0*)?", text) for text in texts):
        return None
    numbers = [int(text.partition(".")[0]) for text in texts]
    if max(numbers) >= 2**63:
        return None
    return {AXES[at] if at < len(AXES) else f"size_{at + 1}": number for at, number in enumerate(numbers)}


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
    measured: dict[str, Any] = {"time": failure_of(trial.status)}
    if INVALIDITY.get(trial.status) == "correct" and trial.time_ns is not None:
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
