"""Trials in the T4 format for results."""

from __future__ import annotations

from typing import Any

from tuner import __version__
from tuner.database.records import StoredTrial
from tuner.formats.results import Results
from tuner.model import Status

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
"""Every other status is ``runtime``: it was started, and did not come to a time that counts."""
FAILED = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}
"""What stands in the place of a failure's time, as other writers of the format have it."""


def t4_of(results: Results) -> dict[str, Any]:
    """Return the content of a T4 file; times are in milliseconds."""
    run = results.run
    return {
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
        "results": [_result(results, stored) for stored in results.trials],
    }


def invalidity(status: Status) -> str:
    """Return the format's word for a status."""
    return INVALIDITY.get(status, "runtime")


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
    value: float | str = FAILED.get(word, "RuntimeFailedConfig")
    measurements = [{"name": "time", "value": value, "unit": "ms"}]
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
