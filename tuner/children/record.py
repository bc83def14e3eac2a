"""What all messages are: immutable records whose fields are checked when they are read."""

from __future__ import annotations

from msgspec import Struct


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a pipe that carries one kind, or a part of a message."""


class Message(Record, frozen=True, tag=True):
    """One of several kinds of a pipe; its name goes with it."""
