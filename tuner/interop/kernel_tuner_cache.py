"""Kernel Tuner's cache files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import RecordingError
from tuner.interop.foreign import ForeignRecording, milliseconds, read_json
from tuner.model import Value


def is_cache(data: object) -> bool:
    """Whether this is the content of a cache file."""
    return isinstance(data, dict) and "cache" in data and "tune_params_keys" in data


def read_cache(path: Path, data: Any = None, defaults: Mapping[str, Value] | None = None) -> ForeignRecording:
    """Read a cache file.

    Raises:
        RecordingError: it is not one, or its objective is not a time.
    """
    data = read_json(path) if data is None else data
    if not is_cache(data):
        raise RecordingError(f"{path}: not a Kernel Tuner cache")
    if data.get("objective", "time") != "time":
        raise RecordingError(f"{path}: the objective is {data['objective']}, not time")
    try:
        names = [str(name) for name in data["tune_params_keys"]]
        values = {name: tuple(dict.fromkeys(data["tune_params"][name])) for name in names}
        times = {
            tuple(row[name] for name in names): milliseconds(row.get("time"))
            for row in data["cache"].values()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path}: damaged: {error!r}") from None
    return ForeignRecording(path.name.split(".json")[0], values, times, dict(defaults or {}))
