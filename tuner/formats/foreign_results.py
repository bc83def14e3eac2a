"""Results of other tools as they are read: what a time means, which results count, and what has to be said of them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tuner.core.errors import RecordingError
from tuner.core.model import Status
from tuner.formats.foreign_recording import ForeignRow, Key, checked_key

LEAST_NS, NO_TIME_NS = 1.0, 1e18
"""A shorter time is none, as nothing runs on a GPU in less; a longer one (31 years) is what some tools write of a
failure: 1e20, or the largest float."""
MOST_RATE = 1e18
"""A rate of more is none: the fastest GPUs do 1e16 operations a second."""
MOST_SAMPLES = 8_000_000
"""Single times in a file: 250 MB of memory."""
MOST_NAMED = 3
"""Of what a note counts, so many are named."""
MOST_SETS = 1000
"""Of parameters that differ from result to result."""
MOST_ERROR = 200
"""Characters that are kept of an error."""
UNITS_NS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_NAMES = {"s": ("",), "ms": ("m", "milli", "mili"), "us": ("u", "μ", "micro"), "ns": ("n", "nano")}
_PREFIXES = {prefix: unit for unit, prefixes in _NAMES.items() for prefix in prefixes}
_SECOND = re.compile(r"s(ecs?|econds?)?$")


def unit_ns(path: Path, *names: object) -> float:
    """Return the nanoseconds of the first of these units that is named; of a millisecond where none is.

    Raises:
        RecordingError: it is not known.
    """
    for name in names:
        if name is not None and (found := _unit_ns(str(name))):
            return found
        if name is not None and str(name).strip():
            raise RecordingError(
                f"{path}: {str(name)[:40]!r} is no unit of time that is known", "write s, ms, us or ns"
            )
    return UNITS_NS["ms"]


@lru_cache(100)
def _unit_ns(name: str) -> float | None:
    prefix, seconds_of = _SECOND.subn("", unicodedata.normalize("NFKC", name).strip().lower())
    return UNITS_NS[_PREFIXES[prefix]] if seconds_of and prefix in _PREFIXES else None


MOST_DIGITS = 40
"""Of a time that is text: a longer one is no time."""
_NUMBER = re.compile(r"\s*\d+(\.\d*)?([eE][-+]?\d+)?\s*")
_LIKE_A_NUMBER = re.compile(r"\s*[-+]?(\d|\.\d|nan\b|inf)", re.IGNORECASE)


def time_ns_of(value: object, unit: float) -> float | None:
    """Return a time in nanoseconds; None for anything but a positive number that can be one.

    Args:
        value: as it was read.
        unit: in nanoseconds.
    """
    if isinstance(value, str) and len(value) <= MOST_DIGITS and _NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < NO_TIME_NS:
        return None
    return float(value) * unit if LEAST_NS <= value * unit < NO_TIME_NS else None


def seconds(value: object, unit: float) -> float:
    """Return a time in seconds; 0 for anything but a positive number."""
    return (time_ns_of(value, unit) or 0.0) / 1e9


def rate_as_ns(rate: object) -> float | None:
    """Return a rate as the time of 10^9 of what it counts, so that less is better; None for what is no rate."""
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        return None
    return 1e9 / rate if 1 / MOST_RATE < rate < MOST_RATE else None


FAILURES = {
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.LAUNCH_ERROR,
    "InvalidConfig": Status.INVALID_CONFIG,
}
"""What Kernel Tuner writes instead of a time; anything else is a failure at run time."""


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
        self._groups: dict[frozenset[str], tuple[Key, dict[Key, ForeignRow]]] = {}
        self._counts: Counter[frozenset[str]] = Counter()
        self._declared = declared
        self._again = self._samples = 0
        self._impossible: list[object] = []
        if declared is not None:
            self._groups[frozenset(declared)] = checked_key(path, declared), {}

    def add(self, configuration: Mapping[str, Any], row: ForeignRow) -> None:
        """Take a result: its parameters, and what :meth:`row` has made of it.

        Raises:
            RecordingError: a name or a value cannot be a parameter's, or these are too many times.
        """
        which = frozenset(configuration)
        if which not in self._groups:
            if len(self._groups) == MOST_SETS:
                raise RecordingError(
                    f"{self._path}: its results have more than {MOST_SETS} sets of parameters", "split it"
                )
            self._groups[which] = checked_key(self._path, [*configuration]), {}
        names, rows = self._groups[which]
        key = checked_key(self._path, [configuration[str(name)] for name in names])
        self._counts[which] += 1
        self._again += key in rows
        rows[key] = row
        self._samples += len(row.samples_ns)
        if self._samples > MOST_SAMPLES:
            raise RecordingError(f"{self._path}: more than {MOST_SAMPLES} single times", "leave them out")

    def gathered(self) -> tuple[Key, dict[Key, ForeignRow], list[str]]:
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

    def row(
        self,
        word: object,
        time: tuple[object, float],
        singles: tuple[object, float],
        rate: object,
        took_s: tuple[float, float],
    ) -> ForeignRow:
        """Return what a result says.

        Args:
            word: ``correct``, or why it is not.
            time: and its unit in nanoseconds.
            singles: each time of a list, and their unit.
            rate: what counts if that is not the time.
            took_s: to compile, and to time and to check.
        """
        time_ns = time_ns_of(*time) if word == "correct" else None
        of_rate_ns = None if self._objective == "time" else rate_as_ns(rate)
        if time_ns is None or (self._objective != "time" and of_rate_ns is None):
            lacking, value = ("time", time[0]) if time_ns is None else (self._objective, rate)
            if word == "correct" and (not isinstance(value, str) or _LIKE_A_NUMBER.match(value)):
                self._impossible.append(value)
            status = STATUSES.get(str(word)) or FAILURES.get(str(time[0]), Status.LAUNCH_ERROR)
            reason = f"no {lacking}" if word == "correct" else word
            error = time[0] if isinstance(time[0], str) and time[0] else str(reason)
            return ForeignRow(status, None, (), *took_s, error[:MOST_ERROR])
        times, unit = singles
        ns = [time_ns_of(one, unit) for one in times] if isinstance(times, list) else []
        samples_ns = () if None in ns else tuple(one for one in ns if one is not None)
        return ForeignRow(Status.OK, time_ns, samples_ns, *took_s, objective=of_rate_ns)


def _names(word: str, names: Collection[str]) -> str:
    shown = sorted(names)[:MOST_NAMED]
    return f"{word} {', '.join(shown)}{' and others' if len(names) > MOST_NAMED else ''} " if names else ""
