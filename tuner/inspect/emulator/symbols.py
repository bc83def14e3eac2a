"""What the symbols of a kernel's library say: the source lines of its code, the names of its shared variables."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.children.cubin import left_changed, source_name

_OWN = {path.name for path in Path(__file__).parent.rglob("*.h*")}
RENDERED = "rendered"
"""What the lines of a source belong to that does not name a file."""


@dataclass(frozen=True)
class Symbols:
    """The symbols of a library.

    Args:
        library: a file.
        place: name of the file and line that a line of a rendered source comes from.
    """

    library: Path
    place: Callable[[int], str]

    def variable(self, offset: int) -> str:
        """Return the variable at a place of the segment of shared memory, as the kernel has it; empty if not known."""
        for line in _said_by("nm", "-C", "-S", str(self.library)):
            start, size, kind, name = [*line.split(maxsplit=3), "", "", "", ""][:4]
            if kind in "bBdD" and kind and int(start, 16) <= offset < int(start, 16) + int(size, 16):
                return name.rpartition("::")[2]
        return ""

    def variables(self) -> dict[str, tuple[int, int]]:
        """Return the variables that all threads share, by their names: where behind ``body``, and how many bytes."""
        said = _said_by("nm", "-f", "sysv", str(self.library))
        rows = [row for row in ([cell.strip() for cell in line.split("|")] for line in said) if len(row) == 7]
        body = next((int(row[1], 16) for row in rows if row[0] == "body"), 0)
        return {
            source_name(name): (int(start, 16) - body, int(size, 16))
            for name, start, kind, of, size, *_ in rows
            if of == "OBJECT" and kind in "bBdD" and size  # shared ones are of the CPU's threads
        }

    def lines(self, offsets: Sequence[int]) -> list[str]:
        """Return file and line of places in the library, each behind a call; empty texts for what is not known."""
        words = [hex(offset - 1) for offset in offsets]
        told: list[list[str]] = []
        for text in _said_by("addr2line", "-a", "-i", "-e", str(self.library), *words):
            if text.startswith("0x"):
                told.append([])
            else:
                told[-1].append(text.partition(" (")[0])
        return [self._own_line(frames) for frames in told] or [""] * len(offsets)

    def _own_line(self, frames: Sequence[str]) -> str:
        """Return the first of some places that is not the emulator's."""
        for frame in frames:
            file, _, line = frame.rpartition(":")
            if not line.isdecimal() or Path(file).name in _OWN:
                continue
            if Path(file).name == RENDERED:
                return self.place(int(line))
            return f"{Path(file).name}:{line}"
        return ""


class Lasting:
    """The variables of a library that live from launch to launch, and what they have held at first.

    Args:
        library: it, with its symbols.
        source: of its kernel, which names them.
        filled: those that launches fill.
    """

    def __init__(self, library: ctypes.CDLL, symbols: Symbols, source: str, filled: Collection[str]) -> None:
        may_be = re.search(
            r"\bstatic\b|__(?:device|managed)__(?:[^(){}]|(?:__align__|alignas) ?\([^()]*\))*[;={]", source
        )
        words = {*re.findall(r"\w+", source if may_be else "")}
        words -= {name.rpartition("::")[2] for name in map(source_name, filled)}
        body = ctypes.cast(library.body, ctypes.c_void_p).value or 0
        found = symbols.variables() if words else {}
        self._places = {name: (body + at, size) for name, (at, size) in found.items() if name in words}
        self._first = self._bytes()

    def _bytes(self) -> dict[str, bytes]:
        return {name: ctypes.string_at(*place) for name, place in self._places.items()}

    def changed(self, state: Collection[str]) -> str:
        """Return what is wrong where one has changed that is no state; an empty text if none has."""
        now = self._bytes()
        name = next((name for name in now if now[name] != self._first[name] and name not in state), "")
        return name and left_changed(name)


def _said_by(*words: str) -> list[str]:
    """Return what a program of the compiler's prints; nothing if there is none."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines()
