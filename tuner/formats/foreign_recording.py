"""Another tool's recording, and the checks that the readers of all formats share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core.errors import RecordingError
from tuner.core.model import Configuration, Status, Value
from tuner.formats.files import GZIP, too_large, unpacked
from tuner.kernel.variant_spec import ParameterSpec

MAX_BYTES = 256 << 20
"""Of JSON, unpacked; reading it takes several times as much memory."""
MAX_VALUES = 10_000
"""Values of one parameter; with more it is a measurement or a name, not a parameter."""
MAX_TEXT = 200
"""Characters of a value; longer texts are messages."""
LEAST_TIME_MS = 1e-9
"""No clock tells less: a shorter time is none."""
NO_TIME_MS = 1e15
"""Times from here on (11 days are 1e9 ms) mean a failure: some tools write 1e20 or the largest float."""
VARIANT = "kernel"
"""The name of the only variant, as other tools have none."""

Key = tuple[Value, ...]


@dataclass(frozen=True)
class ForeignRow:
    """What another tool recorded of one configuration.

    Args:
        status: how it ended, as one of ours.
        time_ns: None for a failure.
        samples_ns: the single times, if there are any; their median need not be the time.
        compile_s: 0 where it is not known.
        measure_s: of timing and of checking the result.
        error: as the other tool wrote it.
        objective: what the other tool minimized if that is not the time.
    """

    status: Status
    time_ns: float | None = None
    samples_ns: tuple[float, ...] = ()
    compile_s: float = 0.0
    measure_s: float = 0.0
    error: str = ""
    objective: float | None = None

    @property
    def ranked_ns(self) -> float | None:
        """What a search minimizes: the objective, else the time."""
        return self.time_ns if self.objective is None else self.objective


@dataclass(frozen=True)
class ForeignRecording:
    """A recording of another tool.

    Args:
        name: of the file, without its endings.
        parameters: names with their values, in the file's order.
        rows: what was recorded, by the values of the parameters.
        format: the name of the file's format.
        kernel: what was tuned; the file's name if it does not say.
        gpu: the device's name; empty where it is not known.
        sizes: of the problem, as far as they are known.
        metadata: what else the file says of itself.
        objective: the name of what was minimized.
    """

    name: str
    parameters: Mapping[str, tuple[Value, ...]]
    rows: Mapping[Key, ForeignRow]
    format: str
    kernel: str
    gpu: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    objective: str = "time"

    @property
    def specs(self) -> list[ParameterSpec]:
        """The parameters as those of a kernel; the middle value stands for a default, as the file has none."""
        return [
            ParameterSpec(name, values, values[len(values) // 2]) for name, values in self.parameters.items()
        ]

    def configuration(self, values: Sequence[Value]) -> Configuration:
        """Return a recorded row as a configuration."""
        return Configuration(VARIANT, tuple(zip(self.parameters, values, strict=True)))

    def indices(self) -> list[list[int]]:
        """Return each recorded configuration as the indices of its values."""
        tables = [{value: i for i, value in enumerate(values)} for values in self.parameters.values()]
        return [[table[v] for table, v in zip(tables, key, strict=True)] for key in self.rows]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, gzipped or not, also if its last closing brackets are missing.

    Raises:
        RecordingError: it cannot be read, is too large, or is not JSON.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise too_large(path, MAX_BYTES)
        data = path.read_bytes()
        if data.startswith(GZIP):
            data = unpacked(path, data, MAX_BYTES)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}", "name a file") from None
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path}: damaged: {error}", "fetch it again") from None
    if not text.strip():
        raise RecordingError(f"{path} is empty", "name a T4, T1 or cache file")
    first: ValueError | None = None
    for end in ("", "}", "}}", "}}}"):
        try:
            return json.loads(text if not end else text.rstrip().removesuffix(",") + end)
        except ValueError as error:
            first = first or error
        except RecursionError:
            raise RecordingError(f"{path}: nested too deep", "name a T4, T1 or cache file") from None
    raise RecordingError(f"{path}: not JSON: {first}", "name a T4, T1 or cache file")


def damaged(path: Path, error: Exception, advice: str) -> RecordingError:
    """Return the error for a file whose content is not of its format.

    Args:
        path: of the file.
        error: a ``KeyError``, or what a value of another type has led to.
        advice: what to do about it.
    """
    if isinstance(error, KeyError):
        return RecordingError(f"{path}: damaged: {error.args[0]!r} is missing somewhere", advice)
    return RecordingError(f"{path}: damaged: something in it is of another kind than it should be", advice)


def storable_value(value: object) -> bool:
    """Return whether a parameter can have this value: a number, a truth value, or text that UTF-8 can hold."""
    if isinstance(value, str):
        return value.isprintable() and len(value) <= MAX_TEXT
    return isinstance(value, int | float) and abs(value) < 2**63


def checked_key(path: Path, values: Sequence[Any]) -> Key:
    """Return names or values, each a plain number, a truth value, or text that can be stored.

    Raises:
        RecordingError: one is not.
    """
    for value in values:
        if not storable_value(value):
            raise RecordingError(
                f"{path}: {str(value)[:40]!r} cannot be a parameter's value",
                "use numbers, text, true or false",
            )
    return tuple(values)


def check_parameters(path: Path, recording: ForeignRecording) -> None:
    """Refuse a recording that is not a space.

    Raises:
        RecordingError: nothing was recorded, or a parameter has too many values.
    """
    if not recording.rows or not recording.parameters:
        raise RecordingError(f"{path}: no configuration is recorded in it", "name a file with results")
    for name, values in recording.parameters.items():
        if len(values) > MAX_VALUES:
            raise RecordingError(
                f"{path}: {name} has {len(values)} values", f"at most {MAX_VALUES} are allowed"
            )


def milliseconds(value: object) -> float | None:
    """Return milliseconds in nanoseconds; None for a failure, which is anything but a positive number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * 1e6 if LEAST_TIME_MS <= value < NO_TIME_MS else None


def objective_in(path: Path, names: Sequence[object]) -> str:
    """Return which of the objectives that a file names counts: the time, else a rate.

    Raises:
        RecordingError: it names neither.
    """
    objectives = [str(name) for name in names]
    for objective in ("time", *objectives):
        if objective in objectives and (objective == "time" or objective.endswith("/s")):
            return objective
    raise RecordingError(
        f"{path}: its objective {', '.join(objectives)} is neither time nor a rate",
        "record it with one of them",
    )


def rate_as_ns(rate: object) -> float | None:
    """Return a rate as the time of 10^9 of what it counts, so that less is better; None for what is no rate."""
    positive = milliseconds(rate)
    return None if positive is None else 1e15 / positive


def seconds(value: object) -> float:
    """Return milliseconds in seconds; 0 for anything but a positive number."""
    time_ns = milliseconds(value)
    return 0.0 if time_ns is None else time_ns / 1e9


def samples(values: object) -> tuple[float, ...]:
    """Return a list of milliseconds in nanoseconds; nothing if one of them is no time."""
    times = [milliseconds(value) for value in values] if isinstance(values, list) else []
    return tuple(time for time in times if time is not None) if None not in times else ()


def stem(path: Path) -> str:
    """Return a file's name without its endings."""
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".T4") or path.name


FAILURES = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.INVALID_CONFIG,
}
"""What Kernel Tuner writes instead of a time."""


def failure_named(value: object) -> Status:
    """Return the status for what was written instead of a time."""
    return FAILURES.get(str(value), Status.LAUNCH_ERROR)
