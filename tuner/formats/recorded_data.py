"""Checks of the JSON of a recording: each part has the type and the range that the tuner relies on.

Without them a run would store whatever a recording says of its GPU, and a row with a value of another type would no
longer match its digest when it is read back.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, get_type_hints

from tuner.core.model import Gpu, Problem, Resources, Status
from tuner.kernel.spec import MAX_SIZE

MIN_CC = 75
"""CUDA 13 compiles for nothing older."""
MINIMA = {"cc": MIN_CC, "reserved_shared_bytes": 0}
"""The smallest values of a GPU's whole numbers where they are not 1."""
END = 2**63
"""Numbers from here on fit neither the database nor NumPy's integers."""
STATUSES = {str(status): status for status in Status}
NUMBERS = frozenset({int, float})

Word = TypeVar("Word", bound=StrEnum)


class Invalid(Exception):  # noqa: N818 - a finding; recording.py names the file and a remedy
    """A part of a recording that is not what it must be, in one line."""


def refuse(where: str, value: object, expected: str) -> NoReturn:
    """Raise :class:`Invalid` for a value that is not what was expected; a long one is shortened."""
    raise Invalid(f"{where} is {reprlib.repr(value)}, not {expected}")


def member(data: Mapping[str, Any], key: str, where: str = "") -> Any:
    """Return a value that must be there."""
    if key not in data:
        raise Invalid(f"{_below(where, key)} is missing")
    return data[key]


def json_object(value: object, where: str) -> dict[str, Any]:
    """Return a JSON object whose names can be shown and stored."""
    if not isinstance(value, dict):
        refuse(where, value, "an object")
    for name in value:
        text(name, f"a name in {where}")
    return value


def json_list(value: object, where: str) -> list[Any]:
    """Return a JSON list."""
    if not isinstance(value, list):
        refuse(where, value, "a list")
    return value


def text(value: object, where: str, min_length: int = 1) -> str:
    """Return one line of text, which UTF-8 can hold."""
    if not isinstance(value, str) or not value.isprintable() or len(value) < min_length:
        refuse(where, value, "a line of text")
    return value


def whole(value: object, where: str, minimum: int = 1) -> int:
    """Return a whole number that NumPy can compute with."""
    if type(value) is not int or value < minimum:
        refuse(where, value, f"a whole number of at least {minimum}")
    if value > MAX_SIZE:
        refuse(where, value, "one of at most 2^62")
    return value


def number(value: object, where: str) -> float:
    """Return a number of at least 0; 0 means unknown."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < END:
        refuse(where, value, "a finite number of at least 0")
    return float(value)


def choice(kind: type[Word], value: object, where: str) -> Word:
    """Return a member of an enumeration."""
    for option in kind:
        if value == option:
            return option
    refuse(where, value, f"one of {', '.join(kind)}")


def names(value: object, where: str) -> list[str]:
    """Return a list of different names."""
    listed = [text(name, f"{where}[{i}]") for i, name in enumerate(json_list(value, where))]
    if len(set(listed)) < len(listed):
        raise Invalid(f"{where} has a name twice")
    return listed


def is_value(value: object) -> bool:
    """Return whether a parameter or an option can have this value; a NaN is not below anything."""
    if isinstance(value, str):
        return value.isprintable()
    return isinstance(value, int | float) and abs(value) < END


def are_times(cell: object) -> bool:
    """Return whether this is a list of finite times of at least 1 ns; recordings hold whole nanoseconds."""
    return (
        isinstance(cell, list)
        and NUMBERS.issuperset(map(type, cell))
        and all(1 <= time < END for time in cell)
    )


def columns(data: Mapping[str, Any], where: str, parameters: int, resources: int) -> list[list[Any]]:
    """Return the parallel lists of a variant: values, status, samples, resources, error and source of each row.

    Args:
        data: the variant.
        where: its path, for messages.
        parameters: the number of values in a row.
        resources: the number of figures in the compiler's report.
    """

    def are_values(cell: object) -> bool:
        return isinstance(cell, list) and len(cell) == parameters and all(map(is_value, cell))

    def are_counts(cell: object) -> bool:
        return cell is None or (
            isinstance(cell, list)
            and len(cell) == resources
            and all(type(number) is int and 0 <= number < END for number in cell)
        )

    def is_status(cell: object) -> bool:
        return isinstance(cell, str) and cell in STATUSES

    def is_text(cell: object) -> bool:
        return isinstance(cell, str)

    fitting: dict[str, tuple[Callable[[object], bool], str]] = {
        "values": (are_values, f"a list of {parameters} values"),
        "status": (is_status, f"one of {', '.join(STATUSES)}"),
        "samples_ns": (are_times, "a list of finite times of at least 1 ns"),
        "resources": (are_counts, f"null or a list of {resources} whole numbers"),
        "error": (is_text, "text"),
        "source": (is_text, "text"),
    }
    table = {key: json_list(member(data, key, where), f"{where}.{key}") for key in fitting}
    for key, column in table.items():
        if len(column) != len(table["values"]):
            raise Invalid(f"{where}.{key} has {len(column)} entries, and values {len(table['values'])}")
        fits, expected = fitting[key]
        for number, cell in enumerate(column):
            if not fits(cell):
                refuse(f"{where}.{key}[{number}]", cell, expected)
    for number, (status, samples) in enumerate(zip(table["status"], table["samples_ns"], strict=True)):
        if STATUSES[status].ranked and not samples:
            refuse(f"{where}.samples_ns[{number}]", samples, f"the times of what is {status}")
    return list(table.values())


def gpu(value: object) -> Gpu:
    """Return the GPU, each field as :class:`tuner.core.model.Gpu` declares it."""
    data = json_object(value, "gpu")
    kinds = get_type_hints(Gpu)
    refuse_unknown(data, kinds, "gpu")
    limits: dict[str, Any] = {}
    for field in fields(Gpu):
        where = f"gpu.{field.name}"
        if field.name not in data and field.default is not MISSING:
            continue
        value = member(data, field.name, "gpu")
        if kinds[field.name] is int:
            limits[field.name] = whole(value, where, MINIMA.get(field.name, 1))
        elif kinds[field.name] is float:
            limits[field.name] = number(value, where)
        else:  # what has a default may be empty: a card need not tell its UUID
            limits[field.name] = text(value, where, min_length=1 if field.default is MISSING else 0)
    return Gpu(**limits)


def computation(value: object) -> dict[str, str]:
    """Return the digest of each part of what was computed."""
    parts = json_object(value, "computation")
    if not parts:
        raise Invalid("computation is empty")
    return {name: text(part, f"computation.{name}") for name, part in parts.items()}


def versions(value: object) -> dict[str, str]:
    """Return the versions, each a line of text."""
    return {
        name: text(version, f"versions.{name}", 0) for name, version in json_object(value, "versions").items()
    }


def problem(value: object, where: str) -> Problem:
    """Return a problem."""
    data = json_object(value, where)
    kernel = text(member(data, "kernel", where), f"{where}.kernel")
    sizes, dtypes = (json_object(member(data, key, where), f"{where}.{key}") for key in ("sizes", "dtypes"))
    for name, size in sizes.items():
        whole(size, f"{where}.sizes.{name}")
    for name, dtype in dtypes.items():
        text(dtype, f"{where}.dtypes.{name}")
    options = json_object(data.get("options", {}), f"{where}.options")
    for name, option in options.items():
        if not is_value(option):
            refuse(f"{where}.options.{name}", option, "a number, a line of text, true or false")
    return Problem(kernel, sizes, dtypes, options)


def resource_names(value: object, where: str) -> list[str]:
    """Return the names of the figures that a recording has of the compiler's report, in its order."""
    listed = names(value, where)
    refuse_unknown(listed, [field.name for field in fields(Resources)], where)
    return listed


def refuse_unknown(keys: Collection[str], expected: Collection[str], where: str) -> None:
    """Raise :class:`Invalid` for a name that is none of those expected."""
    for name in keys:
        if name not in expected:
            raise Invalid(f"{where} has {reprlib.repr(name)}, which this version does not know")


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
