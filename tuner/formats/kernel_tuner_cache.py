"""Trials as a cache file of Kernel Tuner, which its simulation mode can search."""

from __future__ import annotations

from typing import Any

from tuner.database.records import StoredTrial
from tuner.formats.results import Results
from tuner.formats.t4 import FAILED, invalidity


def cache_of(results: Results) -> dict[str, Any]:
    """Return the content of a cache file; times are in milliseconds."""
    run, parameters = results.run, results.parameters
    rows = {}
    for stored in results.trials:
        flat = results.flat(stored)
        rows[",".join(str(value) for value in flat.values())] = {**flat, **_measured(stored)}
    return {
        "device_name": run.gpu.name,
        "kernel_name": run.problem.kernel,
        "problem_size": list(run.problem.sizes.values()),
        "tune_params_keys": list(parameters),
        "tune_params": parameters,
        "objective": "time",
        "cache": rows,
    }


def _measured(stored: StoredTrial) -> dict[str, Any]:
    trial = stored.trial
    word = invalidity(trial.status)
    found: dict[str, Any] = {"time": FAILED.get(word, "RuntimeFailedConfig")}
    if word == "correct" and trial.time_ns is not None:
        found["time"] = trial.time_ns / 1e6
        found["times"] = [sample / 1e6 for sample in trial.samples_ns or (trial.time_ns,)]
        if stored.metrics.tflops:
            found["GFLOP/s"] = stored.metrics.tflops * 1e3
        if stored.metrics.gbytes_per_s:
            found["GB/s"] = stored.metrics.gbytes_per_s
    return {
        **found,
        "compile_time": trial.compile_s * 1e3,
        "verification_time": 0,
        "benchmark_time": trial.measure_s * 1e3,
        "strategy_time": 0,
        "framework_time": 0,
        "timestamp": stored.created_at.replace("T", " ").replace("Z", "+00:00"),
    }
