"""What the head and the child that reads kernels' signatures say to each other."""

from __future__ import annotations

from pathlib import Path

from tuner.children.record import Record
from tuner.core.processes import Channel


class KernelSource(Record, frozen=True):
    """A rendered launch."""

    text: str
    entry: str
    arch: str
    options: tuple[str, ...]
    include: tuple[Path, ...]


class Parameter(Record, frozen=True):
    """A parameter of a kernel, as the compiler has it."""

    kind: str
    """``pointer``, ``integer``, ``float``, or ``other``: a class, such as a tensor map or a number of two bytes."""
    size_bytes: int
    target_kind: str = ""
    """Of a pointer: what it points to, likewise; ``other`` for ``void``."""
    target_bytes: int = 0

    def __str__(self) -> str:
        if self.kind == "pointer":
            target = f" to {_said(self.target_kind, self.target_bytes)}" if self.target_bytes else ""
            return f"a pointer{target}"
        return _said(self.kind, self.size_bytes)


def _said(kind: str, size_bytes: int) -> str:
    bits = {"integer": f"a {8 * size_bytes}-bit integer", "float": f"a {8 * size_bytes}-bit float"}
    return bits.get(kind, f"an object of {size_bytes} bytes")


class SignatureRequest(Record, frozen=True):
    """Say what these kernels take."""

    sources: tuple[KernelSource, ...]


class Signatures(Record, frozen=True):
    """The parameters of each kernel in order; None where they cannot be told."""

    parameters: tuple[tuple[Parameter, ...] | None, ...]


SIGNATURES: Channel[SignatureRequest, Signatures] = Channel(SignatureRequest, Signatures)
