"""What processes say to each other: typed records of msgspec as MessagePack, checked when read.

No pickle, nothing of the sender's memory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

MAX_MESSAGE_BYTES = 1 << 30
"""A longer message is refused at both ends: a length beyond it is no length."""

Request = TypeVar("Request")
Reply = TypeVar("Reply")
T = TypeVar("T")


class UnsendableError(ValueError):
    """A message that cannot be written: it is too long, or holds what MessagePack has no form for."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a pipe that carries one kind, or a part of a message."""


class Message(Record, frozen=True, tag=True):
    """One of several kinds of a pipe; its name goes with it."""


class Codec(Generic[T]):
    """Messages of one type as bytes, and back.

    Args:
        kind: a type, or a union of tagged :class:`msgspec.Struct` types.
    """

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind, dec_hook=_from_plain)

    def decode(self, data: bytes | bytearray) -> T:
        """Read a message.

        Raises:
            msgspec.DecodeError: it is malformed; the text names the path, such as ``$.measurement.status``.
        """
        return self._decoder.decode(data)

    def encode(self, message: T) -> bytes:
        """Write a message.

        Raises:
            UnsendableError: it is too long, or cannot be written.
        """
        try:
            data = _encoded(message)
        except (TypeError, ValueError, OverflowError) as error:
            raise UnsendableError(f"a message cannot be sent: {error}") from None
        if len(data) > MAX_MESSAGE_BYTES:
            raise UnsendableError(f"a message of {len(data)} bytes cannot be sent")
        return data


def _encoded(message: Any) -> bytes:
    """Return a message as bytes; what is no text, such as a file's name in an error, is escaped."""
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:
        return _ENCODER.encode(
            _escaped(msgspec.to_builtins(message, builtin_types=(bytes,), enc_hook=_to_plain))
        )


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_escaped(name): _escaped(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value


def _to_plain(value: Any) -> Any:
    """Write a path as its bytes, which need not be text, and mappings and NumPy's numbers as Python's own."""
    if isinstance(value, Path):
        return os.fsencode(value)
    if isinstance(value, Mapping):
        return dict(value)
    for kind in (float, int, str):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"no form for {type(value).__name__}")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, bytes):
        return Path(os.fsdecode(value))
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_plain)


class Channel(Generic[Request, Reply]):
    """The messages that a parent sends to a child, and those that it gets back.

    Args:
        requests: their type, or a union of tagged ones.
        replies: likewise.
    """

    def __init__(self, requests: Any, replies: Any) -> None:
        self.requests: Codec[Request] = Codec(requests)
        self.replies: Codec[Reply] = Codec(replies)
