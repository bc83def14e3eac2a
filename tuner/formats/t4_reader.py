"""Results in the T4 format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import RecordingError
from tuner.formats.foreign_recording import (
    ForeignRecording,
    ForeignRow,
    checked_key,
    checked_parameters,
    damaged,
    failure_named,
    milliseconds,
    read_json,
    samples,
    seconds,
    stem,
)
from tuner.model import Status, Value

FORMAT = "T4"
INVALIDITY = {
    "timeout": Status.HANG,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_RESULT,
    "constraints": Status.INVALID_CONFIG,
}


def is_t4(data: object) -> bool:
    """Whether this is the content of a T4 file."""
    return isinstance(data, dict) and isinstance(data.get("results"), list)


def read_t4(path: Path, data: Any = None, defaults: Mapping[str, Value] | None = None) -> ForeignRecording:
    """Read a T4 file; only ``invalidity`` says whether a result is one, and a time is in milliseconds.

    Raises:
        RecordingError: it is not one.
    """
    data = read_json(path) if data is None else data
    if not is_t4(data) or not data["results"]:
        raise RecordingError(f"{path}: not a T4 file with results", "name a T4 or cache file")
    try:
        names = [str(name) for name in data["results"][0]["configuration"]]
        checked_key(path, names)
        rows = {
            checked_key(path, [result["configuration"][name] for name in names]): _row(result)
            for result in data["results"]
        }
        about = data.get("metadata") or {}
        kernel, gpu = _named(about, "kernel"), _named(about, "device")
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error, "fetch it again") from None
    values: dict[str, tuple[Value, ...]] = {}
    for j, name in enumerate(names):
        known = dict.fromkeys(key[j] for key in rows)
        text = any(isinstance(value, str) for value in known)
        values[name] = tuple(known if text else sorted(known))
    checked_parameters(path, values, rows)
    return ForeignRecording(
        stem(path), values, rows, dict(defaults or {}), FORMAT, kernel or stem(path), gpu, about=about
    )


def _named(about: Mapping[str, Any], what: str) -> str:
    found = about.get(what)
    return str(found.get("name") or "") if isinstance(found, dict) else ""


def _row(result: Mapping[str, Any]) -> ForeignRow:
    times = result.get("times") or {}
    compile_s = seconds(times.get("compilation", times.get("compilation_time")))
    measure_s = seconds(times.get("benchmark")) + seconds(times.get("validation"))
    invalidity, value = result.get("invalidity", "correct"), _time(result)
    time_ns = milliseconds(value) if invalidity == "correct" else None
    if time_ns is None:
        status = INVALIDITY.get(str(invalidity)) or failure_named(value)
        named = "no time" if invalidity == "correct" else invalidity
        said = value if isinstance(value, str) and value else named
        return ForeignRow(status, None, (), compile_s, measure_s, str(said))
    return ForeignRow(Status.OK, time_ns, samples(times.get("runtimes")), compile_s, measure_s)


def _time(result: Mapping[str, Any]) -> object:
    found = {measured.get("name"): measured.get("value") for measured in result.get("measurements") or ()}
    return found.get("time")
