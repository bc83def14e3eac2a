"""Arguments of a launch as bytes: numbers, addresses, and structs by value, which C lays out field by field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .dtypes import ITEMSIZE
from .expressions import round_up
from .launch_limits import packed
from .launches import Argument

ADDRESS_BYTES = 8


class Leaf(NamedTuple):
    """A number or an address within an argument."""

    argument: int
    """Its number in the launch."""
    offset: int
    """In the argument, in bytes."""
    kind: str
    name: str
    value: int | float | bool | str


def struct_argument(fields: Sequence[Argument], alignment: int) -> Argument:
    """Return a struct by value, whose fields are arguments, as one argument of a launch.

    Args:
        fields: in order.
        alignment: bytes that its C type asks for beyond what its fields do; 1 for none.
    """
    return "struct", "", json.dumps([alignment, fields], separators=(",", ":"))


def leaves(arguments: Iterable[Argument]) -> Iterator[Leaf]:
    """Yield the numbers and addresses of arguments, each field of a struct for itself."""
    for number, argument in enumerate(arguments):
        for offset, (kind, name, value) in _parts(argument):
            yield Leaf(number, offset, kind, name, value)


def size_of(argument: Argument) -> int:
    """Return the bytes of a number, an address, a stride or a struct."""
    return _size(argument)[0]


def stored(argument: Argument, addresses: Mapping[str, int]) -> bytes:
    """Return an argument as it lies in memory, with buffers at these addresses."""
    memory = bytearray(size_of(argument))
    for offset, (kind, name, value) in _parts(argument):
        number, dtype = (addresses[name], "uint64") if kind == "buffer" else (value, name)
        part = packed(number, "int32" if kind == "stride" else dtype)
        memory[offset : offset + len(part)] = part
    return bytes(memory)


def _fields(argument: Argument) -> tuple[int, list[Argument]]:
    alignment, fields = json.loads(str(argument[2]))
    return alignment, [(kind, name, value) for kind, name, value in fields]


def _size(argument: Argument) -> tuple[int, int]:
    """Return bytes and alignment, which of a number are the same."""
    kind, name, _ = argument
    if kind != "struct":
        size = ADDRESS_BYTES if kind == "buffer" else ITEMSIZE["int32" if kind == "stride" else name]
        return size, size
    alignment, fields = _fields(argument)
    size = 0
    for field in fields:
        bytes_, own = _size(field)
        size, alignment = round_up(size, own) + bytes_, max(alignment, own)
    return round_up(size, alignment), alignment


def _parts(argument: Argument, start: int = 0) -> Iterator[tuple[int, Argument]]:
    if argument[0] != "struct":
        yield start, argument
        return
    at = 0
    for field in _fields(argument)[1]:
        bytes_, alignment = _size(field)
        at = round_up(at, alignment)
        yield from _parts(field, start + at)
        at += bytes_
