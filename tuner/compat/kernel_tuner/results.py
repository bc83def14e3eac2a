"""Results in Kernel Tuner's form: a dictionary for each configuration that was tried, times in milliseconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tuner.core.errors import TunerError, UsageError
from tuner.core.files import whole_file
from tuner.core.model import Status
from tuner.expressions.arithmetic import parse
from tuner.formats.autotuners import failure_of
from tuner.formats.foreign import read_results
from tuner.formats.foreign_recording import stem
from tuner.kernel.functions import first_line

ERROR = "__error__"
"""Key of a result without a time: the kind of failure."""
HIGHER = ("fitness", "GFLOP/s", "TFLOP/s", "GB/s", "TB/s", "GFLOPS/W", "TFLOPS/W", "GFLOP/J", "TFLOP/J")
"""Objectives that are maximized without being told so."""
PARTS = ("compile", "verification", "benchmark", "strategy", "framework")
"""Of the time that a result takes."""
Row = dict[str, Any]


def row(
    values: Mapping[str, Any], status: Status, samples_ms: Sequence[float], time_ms: float | None,
    message: str = "", **took_ms: float,
) -> Row:  # fmt: skip
    """Return one result.

    Args:
        values: of the parameters.
        status: how it ended.
        samples_ms: the single times.
        time_ms: what they come to; None of a failure.
        message: why it failed.
        took_ms: for compiling and measuring, as ``compile`` and ``benchmark``.
    """
    failed = {ERROR: failure_of(status), "status": str(status), "message": message}
    measured = failed if time_ms is None else {"time": time_ms, "times": list(samples_ms)}
    parts = {f"{part}_time": took_ms.get(part, 0.0) for part in PARTS}
    return {**values, **measured, **parts, "timestamp": str(datetime.now(UTC))}


def with_metrics(one: Row, metrics: Mapping[str, Any]) -> Row:
    """Return a result with a script's metrics: functions of it, or expressions over it and the metrics before."""
    for name, metric in metrics.items() if ERROR not in one else ():
        try:
            value = metric(one) if callable(metric) else parse(str(metric), f"metrics: {name}").evaluate(one)
        except TunerError:
            raise
        except Exception as error:
            raise UsageError(f"metrics: {name} fails: {first_line(error)}", "correct it") from error
        one[name] = value.item() if hasattr(value, "item") else value
    return one


def ranked_by(one: Row, objective: str) -> Row:
    """Return a result, whose objective must be a number.

    Raises:
        UsageError: it is none.
    """
    if ERROR not in one and not isinstance(one[objective], Real):
        raise UsageError(f"objective {objective} is {one[objective]!r}", "let its metric return a number")
    return one


def best_of(rows: Sequence[Row], objective: str = "time", higher_is_better: bool | None = None) -> Row:
    """Return the best result; one without the objective is the worst.

    Raises:
        ValueError: there are none.
    """
    sign = -1 if (objective in HIGHER if higher_is_better is None else higher_is_better) else 1
    return min(rows, key=lambda one: sys.float_info.max if ERROR in one else sign * one[objective])


def totals(rows: Sequence[Row], wall_s: float) -> dict[str, float]:
    """Return the sums of the times of all results, and what else was spent, in milliseconds."""
    sums = {f"total_{part}_time": sum(one[f"{part}_time"] for one in rows) for part in PARTS}
    return {**sums, "overhead_time": max(0.0, 1e3 * wall_s - sum(sums.values()))}


def write_json(name: str | Path, data: Any) -> None:
    """Write a file, whose name gets ``.json`` and whose folder is made; NumPy's numbers and arrays as plain ones."""
    with whole_file(json_path(name), replace=True) as partial:
        partial.write_text(json.dumps(data, indent=1, default=plain), encoding="utf-8")


def json_path(name: str | Path) -> Path:
    """Return a path that ends in ``.json``."""
    return Path(name) if str(name).endswith(".json") else Path(f"{name}.json")


def plain(value: Any) -> Any:
    """Return what JSON can hold instead of something else."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def cached(
    name: str | Path, parameters: Sequence[str], kernel: str, size: Sequence[Any]
) -> tuple[list[Row], str]:
    """Return the results in a cache file of Kernel Tuner's, perhaps of one that is not there, and its GPU's name.

    Args:
        name: the file's.
        parameters: the names of the parameters.
        kernel: the function's name.
        size: of the problem, which is compared where it is numbers alone.

    Raises:
        UsageError: it is of other parameters, another kernel or another size.
        RecordingError: it is damaged.
    """
    if not (path := json_path(name)).exists():
        return [], ""
    recording = read_results(path)
    if list(recording.parameters) != list(parameters):
        raise UsageError(f"{path} has the parameters {', '.join(recording.parameters)}", "name another cache")
    if recording.kernel not in (kernel, stem(path)):
        raise UsageError(f"{path} is of the kernel {recording.kernel}", "name another cache")
    of_file = [*recording.sizes.values()]
    padded = [[*map(str, one), "1", "1"][:3] for one in (of_file, size)]
    if of_file and all(isinstance(one, Integral) for one in size) and padded[0] != padded[1]:
        raise UsageError(
            f"{path} is of the problem_size {', '.join(map(str, of_file))}", "name another cache"
        )
    return [
        row(
            dict(zip(parameters, key, strict=True)), old.status, [ns / 1e6 for ns in old.samples_ns],
            None if old.time_ns is None else old.time_ns / 1e6, old.error,
        )
        for key, old in recording.rows.items()
    ], recording.gpu  # fmt: skip


def write_cache(
    name: str | Path, head: Mapping[str, Any], choices: Mapping[str, Any], rows: Sequence[Row]
) -> None:
    """Write a cache file of Kernel Tuner's: names of GPU, kernel and problem, the parameters, and all results."""
    named = {",".join(str(one[name]) for name in choices): {"time": one.get(ERROR), **one} for one in rows}
    parameters = {"tune_params_keys": list(choices), "tune_params": choices}
    write_json(name, {**head, **parameters, "objective": "time", "cache": named})
