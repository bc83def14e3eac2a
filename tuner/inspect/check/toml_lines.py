"""On which line of a TOML file a key stands.

``tomllib`` says nothing of lines. This reads only headers and keys, and takes the file to be valid TOML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.core.errors import KernelError
from tuner.kernel.draft import GAP
from tuner.kernel.toml.file import bases_of, complete_variants

Key = tuple[str | int, ...]

_PART = r"""(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([A-Za-z0-9_-]+))"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]\]?")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' + r"'''.*?'''" + r"""|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]""",
    re.DOTALL,
)
_SEGMENT = re.compile(r"(\w+)\[(\d+)\]")


class TomlLines:
    """The lines of a file's tables and keys.

    Args:
        text: the file.
        data: what is in it.
    """

    def __init__(self, text: str, data: Mapping[str, Any]) -> None:
        try:
            self._data, self._bases = complete_variants(data, ""), bases_of(data)
        except KernelError:  # in the variants that others are like
            self._data, self._bases = data, {}
        self._text = text.splitlines()
        self._lines: dict[Key, int] = {}
        self._counts: dict[Key, int] = {}
        table: Key = ()
        for number, line in _statements(text):
            if header := _HEADER.match(line):
                table = self._table(_parts(header[2]), header[1] == "[[")
                self._enter(table, number)
            elif key := _KEY.match(line):
                self._enter((*table, *_parts(key[1])), number)

    def line(self, key: Key) -> int:
        """Return the line of a key, or of the innermost table or key around it that has one; 1 if there is none.

        What a variant takes over stands where the variant has it that it is like.
        """
        best = self._nearest(key)
        while len(best) < len(key) and key[0] == "variants" and key[1] in self._bases:
            key = ("variants", self._bases[str(key[1])], *key[2:])
            best = max(best, self._nearest(key), key=len)
        return self._lines.get(best, 1)

    def guessed(self, key: Key) -> int:
        """Return the line of a key that a comment behind it or above marks as a guess; 0 if none does."""
        line = self.line(key)
        above, here = ["", *self._text, ""][line - 1 : line + 1]
        marked = re.search(rf"#\s*{GAP}\b", here) or re.match(rf"\s*#\s*{GAP}\b", above)
        return line if marked else 0

    def _nearest(self, key: Key) -> Key:
        while key and key not in self._lines:
            key = key[:-1]
        return key

    def locate(self, problem: str) -> tuple[int, str]:
        """Return the line that an error of the file's readers names, and the problem without the file's name.

        Such an error begins with the file, the keys down to a table, and a colon and a blank behind each. Of any
        other, the line is 0.
        """
        file, colon, rest = problem.partition(".toml: ")
        if not colon or " " in file:
            return 0, problem
        key, value, text = (), self._data, rest  # type: tuple[Key, Any, str]
        while isinstance(value, Mapping):
            following = _step(value, text)
            if following is None:
                break
            step, length = following
            key, text = (*key, *step), text[length:]
            for part in step:
                value = value[part]
        return self.line(self._last(key, value, text)), rest

    def _last(self, key: Key, value: Any, text: str) -> Key:
        """Return a key with what the text begins with or quotes first, as far as there is such a key."""
        if isinstance(value, Mapping):
            for name in sorted(value, key=len, reverse=True):
                if text.startswith((f"{name} =", repr(name))):
                    return (*key, name)
        named = re.match(r"(?:unknown key )?'?([\w.]+)", text)
        for part in named[1].split(".") if named else ():
            if not isinstance(value, Mapping) or part not in value:
                break
            key, value = (*key, part), value[part]
        return key

    def _table(self, parts: tuple[str, ...], array: bool) -> Key:
        """Return a header's key: of arrays of tables above it, the last element is meant."""
        key: Key = ()
        for number, part in enumerate(parts, 1):
            key = (*key, part)
            if array and number == len(parts):
                self._counts[key] = self._counts.get(key, -1) + 1
            if key in self._counts:
                key = (*key, self._counts[key])
        return key

    def _enter(self, key: Key, number: int) -> None:
        for length in range(1, len(key) + 1):
            self._lines.setdefault(key[:length], number)


def _step(value: Mapping[str, Any], text: str) -> tuple[Key, int] | None:
    """Return the key, or array and index, that a text begins with, and how much of the text that is."""
    for name in sorted(value, key=len, reverse=True):
        plain = " ".join(name.split())
        if text.startswith(f"{plain}: "):
            return (name,), len(plain) + 2
    segment = _SEGMENT.match(text)
    if segment and isinstance(value.get(segment[1]), list) and text[segment.end() :].startswith(": "):
        index = int(segment[2])
        return ((segment[1], index), segment.end() + 2) if index < len(value[segment[1]]) else None
    return None


def _statements(text: str) -> list[tuple[int, str]]:
    """Return the lines on which a statement begins, with their numbers: not those within arrays and texts."""
    statements, line, depth = [], 1, 0
    lines = text.splitlines()
    statements.append((1, lines[0] if lines else ""))
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
        elif word == "\n":
            line += 1
            if depth == 0 and line <= len(lines):
                statements.append((line, lines[line - 1]))
        else:
            line += word.count("\n")
    return statements


def _parts(text: str) -> tuple[str, ...]:
    return tuple(
        re.sub(r'\\(["\\])', r"\1", double) if double else single or bare
        for double, single, bare in re.findall(_PART, text)
    )
