"""What the symbols of a kernel's library say: the source lines of its code, the names of its shared variables."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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


def _said_by(*words: str) -> list[str]:
    """Return what a program of the compiler's prints; nothing if there is none."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return done.stdout.splitlines()
