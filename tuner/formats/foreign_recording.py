"""Another tool's recording, and the checks that the readers of all formats share."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
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
LEAST_NS, NO_TIME_NS = 1.0, 1e18
"""A shorter time is none, as nothing runs on a GPU in less; a longer one (31 years) is what some tools write of a
failure: 1e20, or the largest float."""
MOST_RATE = 1e18
"""A rate of more is none: the fastest GPUs do 1e16 operations a second."""
MOST_SAMPLES = 8_000_000
"""Single times in a file: 250 MB of memory."""
MOST_NAMED = 3
"""Of what a note counts, so many are named."""
MOST_ERROR = 1000
"""Characters that are kept of an error."""
UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
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


def checked_names(path: Path, names: Sequence[str]) -> Sequence[str]:
    """Return the names of parameters, each of which can be stored.

    Raises:
        RecordingError: one cannot be.
    """
    checked_key(path, names)
    return names


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


_UNIT = re.compile(r"(?:(mill?i|m)|(micro|[uμ])|(nano|n))?s(?:ecs?|econds?)?")


def unit_ns(path: Path, *names: object) -> float:
    """Return the nanoseconds of the first of these units that is named; of a millisecond where none is.

    Raises:
        RecordingError: it is not known.
    """
    for name in names:
        word = "" if name is None else unicodedata.normalize("NFKC", str(name)).strip().lower()
        if found := _UNIT.fullmatch(word):
            return UNITS_NS[("ms", "us", "ns")[found.lastindex - 1] if found.lastindex else "s"]
        if word:
            raise RecordingError(
                f"{path}: {str(name)[:40]!r} is no unit of time that is known", "write s, ms, us or ns"
            )
    return UNITS_NS["ms"]


def time_ns_of(value: object, unit: float) -> float | None:
    """Return a time in nanoseconds; None for anything but a positive number that can be one.

    Args:
        value: as it was read.
        unit: in nanoseconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * unit if LEAST_NS <= value * unit < NO_TIME_NS else None


def seconds(value: object, unit: float) -> float:
    """Return a time in seconds; 0 for anything but a positive number."""
    return (time_ns_of(value, unit) or 0.0) / 1e9


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
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return None
    return 1e9 / rate if 1 / MOST_RATE < rate < MOST_RATE else None


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


@dataclass(frozen=True, slots=True)
class Reported:
    """What a file says of one configuration, as it was read.

    Args:
        word: ``correct``, or why the configuration is not.
        times: the time, then each single one if they are a list.
        units: of the time and of the single ones, in nanoseconds.
        compile_s: as in :class:`ForeignRow`.
        measure_s: as there.
        rate: what counts if that is not the time.
    """

    word: object
    times: tuple[object, object]
    units: tuple[float, float]
    compile_s: float
    measure_s: float
    rate: object = None


STATUSES = {
    "timeout": Status.HANG,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_RESULT,
    "constraints": Status.INVALID_CONFIG,
}
"""The status of a failure, by T4's ``invalidity``."""


class Gathering:
    """Results as they are read, and what has to be said of them.

    Args:
        path: of the file.
        objective: what counts.
        declared: the parameters, if the file names them; else they are those that most results have.
    """

    def __init__(self, path: Path, objective: str, declared: Sequence[str] | None = None) -> None:
        self._path, self._objective = path, objective
        self._groups: dict[frozenset[str], tuple[Sequence[str], dict[Key, ForeignRow]]] = {}
        self._counts: Counter[frozenset[str]] = Counter()
        self._declared = declared
        self._again = self._samples = 0
        self._impossible: list[object] = []
        if declared is not None:
            self._groups[frozenset(declared)] = checked_names(path, declared), {}

    def add(self, configuration: Mapping[str, Any], reported: Reported) -> None:
        """Take a result.

        Raises:
            RecordingError: a name or a value cannot be a parameter's, or these are too many times.
        """
        which = frozenset(configuration)
        if which not in self._groups:
            self._groups[which] = checked_names(self._path, [*configuration]), {}
        names, rows = self._groups[which]
        key = checked_key(self._path, [configuration[name] for name in names])
        self._counts[which] += 1
        self._again += key in rows
        rows[key] = row = self._row(reported)
        self._samples += len(row.samples_ns)
        if self._samples > MOST_SAMPLES:
            raise RecordingError(f"{self._path}: more than {MOST_SAMPLES} single times", "leave them out")

    def gathered(self) -> tuple[Sequence[str], dict[Key, ForeignRow], list[str]]:
        """Return the parameters, the rows that have just these, and notes for the user."""
        if not self._groups:
            return (), {}, []
        most = max(self._groups, key=lambda one: self._counts[one])
        chosen = most if self._declared is None else frozenset(self._declared)
        names, rows = self._groups[chosen]
        return names, rows, [f"{self._path.name}: {note}" for note in self._notes(chosen)]

    def _notes(self, chosen: frozenset[str]) -> Iterator[str]:
        others = [one for one in self._counts if one != chosen]
        if others:
            parts = [
                f"{self._counts[one]} {_names('without', chosen - one)}{_names('with', one - chosen)}".strip()
                for one in others[:MOST_NAMED]
            ]
            more = ", and others" if len(others) > MOST_NAMED else ""
            total = self._counts.total()
            count = total - self._counts[chosen]
            yield f"left out {count} of {total} results: {', '.join(parts)}{more}"
        if self._again:
            yield f"configurations that come again, of which the last result counts: {self._again}"
        if self._impossible:
            shown = ", ".join(str(value)[:40] for value in self._impossible[:MOST_NAMED])
            yield (
                f"results that count as failures, without a possible {self._objective}: "
                f"{len(self._impossible)} ({shown})"
            )

    def _row(self, said: Reported) -> ForeignRow:
        time, singles = said.times
        time_ns = time_ns_of(time, said.units[0]) if said.word == "correct" else None
        of_rate_ns = None if self._objective == "time" else rate_as_ns(said.rate)
        took = said.compile_s, said.measure_s
        if time_ns is None or (self._objective != "time" and of_rate_ns is None):
            lacking, value = ("time", time) if time_ns is None else (self._objective, said.rate)
            if said.word == "correct" and not isinstance(value, str):
                self._impossible.append(value)
            status = STATUSES.get(str(said.word)) or failure_named(time)
            reason = f"no {lacking}" if said.word == "correct" else said.word
            error = time if isinstance(time, str) and time else str(reason)
            return ForeignRow(status, None, (), *took, error[:MOST_ERROR])
        times = [time_ns_of(one, said.units[1]) for one in singles] if isinstance(singles, list) else []
        samples_ns = () if None in times else tuple(one for one in times if one is not None)
        return ForeignRow(Status.OK, time_ns, samples_ns, *took, objective=of_rate_ns)


def _names(word: str, names: Collection[str]) -> str:
    shown = sorted(names)[:MOST_NAMED]
    return f"{word} {', '.join(shown)}{' and others' if len(names) > MOST_NAMED else ''} " if names else ""
