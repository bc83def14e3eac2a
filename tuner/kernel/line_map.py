"""Where each line of a rendered source comes from: the template, include or macro file, and the line in it.

To find out, a template is rendered once more with marks: a Jinja extension puts the name and the line before every
piece of a template's text. Nothing else is marked, so that a normal rendering pays nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

_MARK = re.compile(r"\x02(\d+):(\d+)\x03")
_NEWLINE = re.compile(r"\r\n|\r|\n")
"""As Jinja counts lines; ``splitlines`` would also count form feeds."""
_PIECES = re.compile(r"(\n|\x02\d+:\d+\x03)")
MARKS_FACTOR = 16
"""How many times longer a source may be with its marks: text comes in pieces of at least one character, and
a mark has about ten."""


@dataclass(frozen=True)
class Location:
    """A line of a template."""

    name: str
    """Of the file, as an ``include`` would name it."""
    line: int
    text: str = ""
    """The line itself."""


@dataclass(frozen=True)
class LineMap:
    """The locations of a source's lines."""

    locations: tuple[Location | None, ...]
    """Of each line, in order; None for lines that no file has."""

    def location(self, line: int) -> Location | None:
        """Return where a line comes from, counted from 1; None where it is not known."""
        return self.locations[line - 1] if 0 < line <= len(self.locations) else None


class LineMarks(Extension):
    """Marks every piece of text and every ``{{ value }}`` of a template with its location."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self._names: list[str] = []
        self._lines: dict[str, list[str]] = {}

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:  # noqa: ARG002
        """Remember a template's lines."""
        name = name or ""
        if name not in self._lines:
            self._names.append(name)
        self._lines[name] = _NEWLINE.split(source)
        return source

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Yield a template's tokens, with marks among its text."""
        index = self._names.index(stream.name or "")
        for token in stream:
            if token.type == "data":
                lines = token.value.split("\n")
                marked = (_mark(index, token.lineno + i) + line for i, line in enumerate(lines))
                yield Token(token.lineno, "data", "\n".join(marked))
                continue
            if token.type == "variable_begin":
                yield Token(token.lineno, "data", _mark(index, token.lineno))
            yield token

    def read(self, marked: str) -> tuple[str, LineMap]:
        """Return a marked source without its marks, and the location of each line: that of its first character which is
        no white space."""
        text: list[str] = []
        locations: list[Location | None] = []
        last: Location | None = None
        first: Location | None = None
        for piece in _PIECES.split(marked):
            if mark := _MARK.fullmatch(piece):
                last = self._location(int(mark[1]), int(mark[2]))
                continue
            text.append(piece)
            if piece == "\n":
                locations.append(first or last)
                first = None
            elif first is None and piece and not piece.isspace():
                first = last
        locations.append(first or last)
        return "".join(text), LineMap(tuple(locations))

    def _location(self, index: int, line: int) -> Location | None:
        if index >= len(self._names):  # the template itself writes such characters
            return None
        lines = self._lines[self._names[index]]
        return Location(self._names[index], line, lines[line - 1] if 0 < line <= len(lines) else "")


def _mark(index: int, line: int) -> str:
    return f"\x02{index}:{line}\x03"


def after_defines(source: str, file: Path) -> LineMap:
    """Return the map of a plain ``.cu`` file with macros before it, as it was rendered."""
    before, own = source.split(f'#line 1 "{file.name}"\n', 1)
    locations = (Location(file.name, i, text) for i, text in enumerate(own.split("\n"), 1))
    return LineMap((*(None for _ in range(before.count("\n") + 1)), *locations))


_INSIDE = re.compile(
    r"""//(?:[^\\\n]|\\.)*|/\*.*?\*/|R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)\""""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
"""Comments and literals, which may go over several lines."""


def with_line_directives(source: str, lines: LineMap) -> str:
    """Return a source with ``#line`` directives wherever the next line is not the one after in the same file."""
    inside = _lines_inside(source)
    written: list[str] = []
    expected: tuple[str, int] | None = None
    for number, text in enumerate(source.split("\n"), 1):
        location = lines.location(number)
        if (
            location is not None
            and number not in inside
            and (location.name, location.line) != expected
            and text
        ):
            written.append(f'#line {location.line} "{_quoted(location.name)}"')
            expected = (location.name, location.line)
        written.append(text)
        expected = (expected[0], expected[1] + 1) if expected is not None else None
    return "\n".join(written)


def _lines_inside(source: str) -> set[int]:
    """Return the numbers of lines before which no directive can stand: their start belongs to a comment, a raw string
    or a line that goes on."""
    inside: set[int] = set()
    line, position = 1, 0
    for match in _INSIDE.finditer(source):
        line, position = line + source.count("\n", position, match.start()), match.start()
        inside.update(range(line + 1, line + 1 + match.group().count("\n")))
    inside.update(i for i, text in enumerate(source.split("\n"), 2) if text.endswith("\\"))
    return inside


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
