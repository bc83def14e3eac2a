"""Checks of what the JSON of a recording holds: what is there is of the type and in the range that the tuner counts on.

A run would keep whatever a recording says of its GPU, and a row of the wrong type never fits its digest again.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, NoReturn, TypeVar, get_type_hints

from tuner.kernel.spec import MAX_SIZE
from tuner.model import Gpu, Problem, Resources, Status

LEAST_CC = 75
"""CUDA 13 compiles for nothing older."""
LEAST = {"cc": LEAST_CC, "reserved_shared_bytes": 0}
"""Of those whole numbers of a GPU that need not be 1 at least."""
END = 2**63
"""Numbers from here on fit neither the database nor NumPy's integers."""
STATUSES = {str(status): status for status in Status}
NUMBERS = frozenset({int, float})

Word = TypeVar("Word", bound=StrEnum)


class Unfit(Exception):  # noqa: N818 - a finding; recording.py says in which file, and what to do about it
    """A part of a recording that is not what it must be, in one line."""


def refuse(where: str, value: object, expected: str) -> NoReturn:
    """Say where something is not what was expected; of a long value only the ends."""
    raise Unfit(f"{where} is {reprlib.repr(value)}, not {expected}")


def member(data: Mapping[str, Any], key: str, where: str = "") -> Any:
    """Return what must be there."""
    if key not in data:
        raise Unfit(f"{_below(where, key)} is missing")
    return data[key]


def mapping(value: object, where: str) -> dict[str, Any]:
    """Return an object whose names can be shown and stored."""
    if not isinstance(value, dict):
        refuse(where, value, "an object")
    for name in value:
        text(name, f"a name in {where}")
    return value


def listed(value: object, where: str) -> list[Any]:
    """Return a list."""
    if not isinstance(value, list):
        refuse(where, value, "a list")
    return value


def text(value: object, where: str, least: int = 1) -> str:
    """Return one line of text, which UTF-8 can hold."""
    if not isinstance(value, str) or not value.isprintable() or len(value) < least:
        refuse(where, value, "a line of text")
    return value


def whole(value: object, where: str, least: int = 1) -> int:
    """Return a whole number of a size that arithmetic can be done with."""
    if type(value) is not int or value < least:
        refuse(where, value, f"a whole number of at least {least}")
    if value > MAX_SIZE:
        refuse(where, value, "one of at most 2^62")
    return value


def real(value: object, where: str) -> float:
    """Return a number; 0 stands for what is not known."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < END:
        refuse(where, value, "a finite number of at least 0")
    return float(value)


def word(kind: type[Word], value: object, where: str) -> Word:
    """Return one of the words of an enumeration."""
    for known in kind:
        if value == known:
            return known
    refuse(where, value, f"one of {', '.join(kind)}")


def names(value: object, where: str) -> list[str]:
    """Return a list of names, each of which is there once."""
    found = [text(name, f"{where}[{i}]") for i, name in enumerate(listed(value, where))]
    if len(set(found)) < len(found):
        raise Unfit(f"{where} has a name twice")
    return found


def is_value(value: object) -> bool:
    """Whether a parameter or an option can be this; a NaN is not below anything."""
    if isinstance(value, str):
        return value.isprintable()
    return isinstance(value, int | float) and abs(value) < END


def are_times(found: object) -> bool:
    """Whether this is a list of finite times that a recording can hold, which keeps whole nanoseconds: 1 at least."""
    return (
        isinstance(found, list)
        and NUMBERS.issuperset(map(type, found))
        and all(1 <= time < END for time in found)
    )


def columns(data: Mapping[str, Any], where: str, parameters: int, resources: int) -> list[list[Any]]:
    """Return the parallel lists of a variant: values, status, samples, resources, error and source of each row.

    Args:
        data: of the variant.
        where: it is.
        parameters: how many values a row has.
        resources: how many figures the compiler's report has.
    """

    def are_values(found: object) -> bool:
        return isinstance(found, list) and len(found) == parameters and all(map(is_value, found))

    def are_counts(found: object) -> bool:
        return found is None or (
            isinstance(found, list)
            and len(found) == resources
            and all(type(number) is int and 0 <= number < END for number in found)
        )

    def is_status(found: object) -> bool:
        return isinstance(found, str) and found in STATUSES

    def is_text(found: object) -> bool:
        return isinstance(found, str)

    fitting: dict[str, tuple[Callable[[object], bool], str]] = {
        "values": (are_values, f"a list of {parameters} values"),
        "status": (is_status, f"one of {', '.join(STATUSES)}"),
        "samples_ns": (are_times, "a list of finite times of at least 1 ns"),
        "resources": (are_counts, f"null or a list of {resources} whole numbers"),
        "error": (is_text, "text"),
        "source": (is_text, "text"),
    }
    found = {key: listed(member(data, key, where), f"{where}.{key}") for key in fitting}
    for key, column in found.items():
        if len(column) != len(found["values"]):
            raise Unfit(f"{where}.{key} has {len(column)} entries, and values {len(found['values'])}")
        fits, expected = fitting[key]
        for number, cell in enumerate(column):
            if not fits(cell):
                refuse(f"{where}.{key}[{number}]", cell, expected)
    for number, (status, samples) in enumerate(zip(found["status"], found["samples_ns"], strict=True)):
        if STATUSES[status].ranked and not samples:
            refuse(f"{where}.samples_ns[{number}]", samples, f"the times of what is {status}")
    return list(found.values())


def gpu(value: object) -> Gpu:
    """Return the GPU, each field as :class:`tuner.model.Gpu` declares it."""
    data = mapping(value, "gpu")
    kinds = get_type_hints(Gpu)
    known(data, kinds, "gpu")
    found: dict[str, Any] = {}
    for field in fields(Gpu):
        where = f"gpu.{field.name}"
        if field.name not in data and field.default is not MISSING:
            continue
        value = member(data, field.name, "gpu")
        if kinds[field.name] is int:
            found[field.name] = whole(value, where, LEAST.get(field.name, 1))
        elif kinds[field.name] is float:
            found[field.name] = real(value, where)
        else:  # what has a default may be empty: a card need not tell its UUID
            found[field.name] = text(value, where, least=1 if field.default is MISSING else 0)
    return Gpu(**found)


def versions(value: object) -> dict[str, str]:
    """Return the versions, text by text."""
    return {
        name: text(version, f"versions.{name}", 0) for name, version in mapping(value, "versions").items()
    }


def problem(value: object, where: str) -> Problem:
    """Return a problem."""
    data = mapping(value, where)
    kernel = text(member(data, "kernel", where), f"{where}.kernel")
    sizes, dtypes = (mapping(member(data, key, where), f"{where}.{key}") for key in ("sizes", "dtypes"))
    for name, size in sizes.items():
        whole(size, f"{where}.sizes.{name}")
    for name, dtype in dtypes.items():
        text(dtype, f"{where}.dtypes.{name}")
    options = mapping(data.get("options", {}), f"{where}.options")
    for name, option in options.items():
        if not is_value(option):
            refuse(f"{where}.options.{name}", option, "a number, a line of text, true or false")
    return Problem(kernel, sizes, dtypes, options)


def resource_names(value: object, where: str) -> list[str]:
    """Return the names of what a recording has of the compiler's report, in its order."""
    found = names(value, where)
    known(found, [field.name for field in fields(Resources)], where)
    return found


def known(found: Collection[str], expected: Collection[str], where: str) -> None:
    """Refuse a name that is none of those expected."""
    for name in found:
        if name not in expected:
            raise Unfit(f"{where} has {reprlib.repr(name)}, which this version does not know")


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
