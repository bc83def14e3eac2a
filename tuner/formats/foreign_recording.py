"""Another tool's recording, and the checks that the readers of all formats share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core.errors import RecordingError
from tuner.core.model import Configuration, Status, Value
from tuner.kernel.variant_spec import ParameterSpec

MAX_PARAMETERS = 200
MAX_VALUES = 10_000
"""Values of one parameter; with more it is a measurement or a name, not a parameter."""
MAX_TEXT = 200
"""Characters of a value; longer texts are messages."""
VARIANT = "kernel"
"""The name of the only variant, as other tools have none."""

Key = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
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
        notes: for the user, on what was left out or counts as a failure.
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
    notes: Sequence[str] = ()

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
        RecordingError: nothing was recorded, or there are too many parameters or values of one.
    """
    if not recording.rows or not recording.parameters:
        raise RecordingError(f"{path}: no configuration is recorded in it", "name a file with results")
    if len(recording.parameters) > MAX_PARAMETERS:
        raise RecordingError(
            f"{path}: {len(recording.parameters)} parameters", f"at most {MAX_PARAMETERS} are allowed"
        )
    for name, values in recording.parameters.items():
        if len(values) > MAX_VALUES:
            raise RecordingError(
                f"{path}: {name} has {len(values)} values", f"at most {MAX_VALUES} are allowed"
            )


def measure_of(name: object) -> str:
    """Return the name of what is measured, of the time in small letters: some files have ``Time``."""
    text = str(name).strip()
    return "time" if text.lower() == "time" else text


def objective_in(path: Path, names: object) -> str:
    """Return which of the objectives that a file names counts: the time, else a rate.

    Args:
        path: of the file.
        names: one, or a list of them.

    Raises:
        RecordingError: it names neither.
    """
    objectives = [measure_of(name) for name in (names if isinstance(names, list) else [names])]
    for objective in ("time", *objectives):
        if objective in objectives and (objective == "time" or objective.endswith("/s")):
            return objective
    raise RecordingError(
        f"{path}: its objective {', '.join(objectives)} is neither time nor a rate",
        "record it with one of them",
    )


def stem(path: Path) -> str:
    """Return a file's name without its endings."""
    return path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".T4") or path.name
