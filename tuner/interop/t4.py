"""Results in the T4 format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import RecordingError
from tuner.interop.foreign import ForeignRecording, milliseconds, read_json
from tuner.model import Value


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
        raise RecordingError(f"{path}: not a T4 file with results")
    try:
        names = list(data["results"][0]["configuration"])
        times = {}
        for result in data["results"]:
            row = tuple(result["configuration"][name] for name in names)
            ok = result.get("invalidity", "correct") == "correct"
            times[row] = milliseconds(_time(result)) if ok else None
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path}: damaged: {error!r}") from None
    values = {}
    for j, name in enumerate(names):
        known = dict.fromkeys(row[j] for row in times)
        text = any(isinstance(value, str) for value in known)
        values[name] = tuple(known if text else sorted(known))
    return ForeignRecording(path.name.split(".json")[0], values, times, dict(defaults or {}))


def _time(result: Mapping[str, Any]) -> object:
    wanted = result.get("objectives") or ["time"]
    for measurement in result.get("measurements", ()):
        if measurement.get("name") == wanted[0] == "time":
            return measurement.get("value")
    return None
