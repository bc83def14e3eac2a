"""What the readers of other tools' recordings have in common."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import RecordingError
from tuner.kernel.variant_spec import ParameterSpec
from tuner.model import Configuration, Status, Value
from tuner.space.space import SearchSpace, VariantSpace

MAX_BYTES = 256 << 20
MAX_VALUES = 10_000
"""Values of one parameter; more are a measurement or a name, and nothing to choose from."""
MAX_TEXT = 200
NO_TIME_MS = 1e15
"""Times from here on (11 days are 1e9 ms) stand for a failure: some tools write 1e20 or the largest number there is."""
VARIANT = "kernel"
"""The name of the only variant: other tools do not have any."""

Key = tuple[Value, ...]


@dataclass(frozen=True)
class ForeignRow:
    """What another tool recorded of one configuration.

    Args:
        status: how it ended, in our words.
        time_ns: None for a failure.
        samples_ns: the single times, where there are any; their median need not be the time.
        compile_s: 0 where it is not known.
        measure_s: of timing and of checking the result.
        error: in the other tool's words.
        objective: what the other tool ranked by where that is no time; the less, the better.
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
        """What a search is to make small: the objective, else the time."""
        return self.time_ns if self.objective is None else self.objective


@dataclass(frozen=True)
class ForeignRecording:
    """A recording of another tool.

    Args:
        name: of the file, without its endings.
        parameters: names with their values, in the file's order.
        rows: what was recorded, by the values of the parameters.
        defaults: values to begin with, where somebody has said so.
        format: the name of the file's format.
        kernel: what was tuned; the file's name where it does not say.
        gpu: the device's name; empty where it is not known.
        sizes: of the problem, as far as they are known.
        about: what else the file says of itself, for :mod:`tuner.interop.described`.
        objective: the name of what was ranked by.
    """

    name: str
    parameters: Mapping[str, tuple[Value, ...]]
    rows: Mapping[Key, ForeignRow]
    defaults: Mapping[str, Value]
    format: str = ""
    kernel: str = ""
    gpu: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    objective: str = "time"

    @cached_property
    def times_ns(self) -> dict[Key, float | None]:
        """For each recorded configuration what it is ranked by, or None for a failure."""
        return {key: row.ranked_ns for key, row in self.rows.items()}

    @property
    def specs(self) -> list[ParameterSpec]:
        """The parameters, as those of a kernel."""
        return [
            ParameterSpec(name, values, self.defaults.get(name, values[len(values) // 2]))
            for name, values in self.parameters.items()
        ]

    def configuration(self, values: Sequence[Value]) -> Configuration:
        """Return a recorded row as a configuration."""
        return Configuration(VARIANT, tuple(zip(self.parameters, values, strict=True)))

    def places(self) -> list[list[int]]:
        """Return each recorded configuration as the places of its values."""
        tables = [{value: i for i, value in enumerate(values)} for values in self.parameters.values()]
        return [[table[v] for table, v in zip(tables, key, strict=True)] for key in self.rows]

    def space(self) -> SearchSpace:
        """Return what was recorded as the valid set."""
        specs = self.specs
        matrix = np.array(self.places(), dtype=np.int16).reshape(len(self.rows), len(specs))
        return SearchSpace([VariantSpace(VARIANT, specs, matrix)], math.prod(len(s.values) for s in specs))


def read_json(path: Path) -> Any:
    """Read JSON, gzipped or not, and also what ends without its closing brackets.

    Raises:
        RecordingError: it cannot be read, is too large, or is not JSON.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _too_large(path)
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = _unpacked(path, data)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror or error}", "name a file") from None
    except (zlib.error, UnicodeDecodeError) as error:
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


def _unpacked(path: Path, data: bytes) -> bytes:
    """Unpack gzip, of any number of members; no more than is allowed is ever in memory."""
    found = b""
    while data[:2] == b"\x1f\x8b":
        unpacker = zlib.decompressobj(wbits=31)
        found += unpacker.decompress(data, MAX_BYTES + 1 - len(found))
        if len(found) > MAX_BYTES:
            raise _too_large(path)
        if not unpacker.eof:
            raise RecordingError(f"{path}: the compressed file is cut off", "fetch it again")
        data = unpacker.unused_data
    return found


def _too_large(path: Path) -> RecordingError:
    return RecordingError(
        f"{path}: larger than {MAX_BYTES >> 20} MiB", "split it, or keep fewer samples in it"
    )


def damaged(path: Path, error: Exception, advice: str) -> RecordingError:
    """Say of a file that was half read what is wrong with it.

    Args:
        path: of the file.
        error: a ``KeyError``, or whatever a value of another kind has led to.
        advice: what to do about it.
    """
    if isinstance(error, KeyError):
        return RecordingError(f"{path}: damaged: {error.args[0]!r} is missing somewhere", advice)
    return RecordingError(f"{path}: damaged: something in it is of another kind than it should be", advice)


def storable_value(value: object) -> bool:
    """Whether a parameter can have this value: a number, a truth value, or text that UTF-8 can hold."""
    if isinstance(value, str):
        return value.isprintable() and len(value) <= MAX_TEXT
    return isinstance(value, int | float) and abs(value) < 2**63


def checked_key(path: Path, values: Sequence[Any]) -> Key:
    """Return names or values if each is a plain number, a truth value, or text that can be stored.

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


def checked_parameters(
    path: Path, parameters: Mapping[str, tuple[Value, ...]], rows: Mapping[Key, ForeignRow]
) -> None:
    """Refuse what is no space.

    Raises:
        RecordingError: nothing was recorded, or a parameter has too many values.
    """
    if not rows or not parameters:
        raise RecordingError(f"{path}: no configuration is recorded in it", "name a file with results")
    for name, values in parameters.items():
        if len(values) > MAX_VALUES:
            raise RecordingError(
                f"{path}: {name} has {len(values)} values", f"at most {MAX_VALUES} are allowed"
            )


def milliseconds(value: object) -> float | None:
    """Return a time in nanoseconds; what is not a positive number is a failure, whatever else it says."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * 1e6 if 0 < value < NO_TIME_MS else None


def seconds(value: object) -> float:
    """Return a duration in milliseconds in seconds; 0 where it is none."""
    found = milliseconds(value)
    return 0.0 if found is None else found / 1e9


def samples(values: object) -> tuple[float, ...]:
    """Return single times in milliseconds in nanoseconds; nothing where one of them is none."""
    found = [milliseconds(value) for value in values] if isinstance(values, list) else []
    return tuple(time for time in found if time is not None) if None not in found else ()


def stem(path: Path) -> str:
    """Return a file's name without its endings."""
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".T4") or path.name


FAILURES = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.INVALID_CONFIG,
}
"""What Kernel Tuner writes in the place of a time."""


def failure_named(value: object) -> Status:
    """Return the status of what stands in the place of a time."""
    return FAILURES.get(str(value), Status.LAUNCH_ERROR)
