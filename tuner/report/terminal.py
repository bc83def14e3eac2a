"""The door to the terminal: what is printed passes streams that escape whatever a terminal would obey.

Names, texts and errors come from kernel files, databases and recordings of others, so that escaping is what happens
unless a line asks for the stream below: the live panels, and sources that go to a file.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from tuner.core.errors import without_passwords

LONGEST = 1600
"""Characters of a message's line: what is wrong stands at its beginning, and what to do about it at its end."""
_SUSPECT = re.compile(r"[^ -~\n\t]")
"""Characters that need a closer look; all others are printed as they are."""


def printable(value: object) -> str:
    """Return text in which no control character is left, nor any that turns text around or is not seen."""
    text = "" if value is None else str(value)
    return text if text.isprintable() else "".join(map(_visible, text))


def printable_lines(text: str) -> str:
    """Return :func:`printable` text line by line; tabs stay."""
    return _SUSPECT.sub(lambda match: _visible(match[0]), text)


def shortened(text: str) -> str:
    """Return text whose lines of more than :data:`LONGEST` characters lack their middle, which is not what is wrong."""
    if len(text) <= LONGEST:
        return text
    return "\n".join(
        line if len(line) <= LONGEST else f"{line[: LONGEST * 3 // 4]} [...] {line[-LONGEST // 4 :]}"
        for line in text.split("\n")
    )


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape", "replace").decode()


class EscapingStream:
    """A text stream that escapes what it is given, and is the stream below in all else.

    Args:
        below: what it writes to.
        short: whether it takes messages, which quote names and values: passwords and the middle of very long lines
            are left out.
    """

    def __init__(self, below: TextIO, *, short: bool = False) -> None:
        self.below = below
        self.short = short

    def write(self, text: str | bytes) -> int:
        """Write text without characters that a terminal would obey, and a message without passwords of URLs.

        Shell completion writes bytes where there is no ``buffer``.
        """
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        _write(self.below, printable_lines(shortened(without_passwords(text)) if self.short else text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):  # ways past `write`; libraries do without where they are missing
            raise AttributeError(name)
        return getattr(self.below, name)


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:  # a terminal that is not UTF-8
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))


def below(stream: TextIO) -> TextIO:
    """Return the stream that obeys escape sequences, for what draws with them."""
    while isinstance(stream, EscapingStream):
        stream = stream.below
    return stream


def escaping(stream: TextIO | io.TextIOBase, *, short: bool = False) -> TextIO:
    """Return a stream that escapes."""
    return cast(TextIO, EscapingStream(cast(TextIO, stream), short=short))


@contextmanager
def escaped_output() -> Iterator[None]:
    """Put the door in front of the standard output and the standard error until the end."""
    before = sys.stdout, sys.stderr
    whole = [_whole(stream) for stream in before]
    sys.stdout, sys.stderr = escaping(whole[0]), escaping(whole[1], short=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, former in zip(whole, before, strict=True):
            if stream is not former:
                with suppress(OSError, ValueError):
                    stream.flush()
                    cast(io.BufferedWriter, cast(io.TextIOWrapper, stream).detach()).detach()


def _whole(stream: TextIO) -> TextIO:
    """Return a stream that writes all or fails.

    With ``PYTHONUNBUFFERED`` Python writes to the file itself, and takes what a full disk cut off for written.
    """
    file = getattr(stream, "buffer", None)
    if not isinstance(file, io.RawIOBase):
        return stream
    buffered = io.BufferedWriter(file)
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=True)


def print_exactly(text: str) -> None:
    """Print text byte for byte into a file or pipe, and escaped on a terminal."""
    terminal = sys.stdout.isatty()
    text = printable_lines(text) if terminal else text
    _write(below(sys.stdout), text if text.endswith("\n") else f"{text}\n")
    sys.stdout.flush()
