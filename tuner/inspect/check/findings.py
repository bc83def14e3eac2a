"""What a check has found: a line of a file each, with a remedy; first what is wrong with the kernel's file itself.

``tomllib`` says nothing of lines: on which one a key stands is read here, of headers and keys alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.core.errors import KernelError, TunerError
from tuner.core.observer import Observer
from tuner.kernel.draft import GAP
from tuner.kernel.load import kernel_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import bases_of, complete_variants, read_file, read_toml

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


_BESIDE = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+): (?P<problem>.*)", re.DOTALL)
"""An error in another file of the kernel: a template, a Python reference."""


@dataclass(frozen=True, order=True)
class Mistake:
    """Something that is wrong."""

    file: Path
    line: int
    of: str
    """What has it, as the beginning of the sentence; empty if the line says so."""
    cause: str
    remedy: str = ""

    @property
    def problem(self) -> str:
        """The whole sentence."""
        return self.of + self.cause

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.problem}"
        return f"{text}; {self.remedy}" if self.remedy else text


@dataclass
class Report:
    """All findings of a kernel's file, and what else is worth a word.

    Args:
        file: the kernel's.
        lines: where its keys stand.
    """

    file: Path
    lines: TomlLines
    beside: dict[str, tuple[Path, TomlLines]] = field(default_factory=dict)
    """Other TOML files that belong to the kernel's, by name."""
    findings: set[Mistake] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    """What was not looked at, and why."""
    done: list[str] = field(default_factory=list)
    """What was looked at."""
    observer: Observer[str] = field(default_factory=Observer)
    on_host: bool = False
    """Whether a kernel was run on the CPU, to its end."""
    stopped: BaseException | None = None
    """What has ended the check before its end."""
    no_answer: bool = False
    """Whether a reference was given up at each size, so that nothing shows what is right."""

    def add(self, key: Key, problem: str, remedy: str = "") -> None:
        """Add a finding at a key of the kernel's file, or at the table that it would be in."""
        self.at(self.file, self.lines.line(key), problem, remedy)

    def at(self, file: Path, line: int, problem: str, remedy: str = "", of: str = "") -> None:
        """Add a finding at a line of any file; where something else there has the same problem, ``of`` tells what."""
        self.findings.add(Mistake(shown_path(file), line, of, _one_line(problem), _one_line(remedy)))

    def error(self, error: TunerError, key: Key = ()) -> None:
        """Add an error as a finding: where its text says, else at a key."""
        beside = _BESIDE.match(error.problem)
        if beside and (file := self.file.parent / beside["file"]).is_file():
            self.at(file, int(beside["line"]), beside["problem"], error.remedy)
            return
        file, lines = self.beside.get(error.problem.partition(": ")[0], (self.file, self.lines))
        line, problem = lines.locate(error.problem)
        if line:
            self.at(file, line, problem, error.remedy)
        else:
            self.add(key, error.problem, error.remedy)

    def note(self, text: str) -> None:
        """Add a note, once."""
        if (line := _one_line(text)) not in self.notes:
            self.notes.append(line)

    @property
    def complete(self) -> bool:
        """Whether all was looked at."""
        return self.stopped is None and not self.no_answer

    @property
    def sorted(self) -> list[Mistake]:
        """The findings in the order of files and lines, each cause once a line: a default has that of all."""
        found = sorted(self.findings, reverse=True)
        by_cause = {(one.file, one.line, one.cause): one for one in found}
        return sorted(by_cause.values())


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def shown_path(file: Path) -> Path:
    """Return a file relative to the working folder, if it lies below it."""
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file


def load(file: Path) -> tuple[KernelSpec | None, Report]:
    """Return a kernel, or None where its file has an error, and a report with that."""
    report = Report(file, TomlLines("", {}))
    try:
        data = read_toml(file)
        report.lines = TomlLines(file.read_text(encoding="utf-8"), data)
        read = read_file(file)
    except KernelError as error:
        _add_unreadable(report, error)
        return None, report
    report.lines = TomlLines(file.read_text(encoding="utf-8"), read.data)
    if read.initial is not None:
        lines = TomlLines(read.initial.path.read_text(encoding="utf-8"), read.initial.data)
        report.beside[read.initial.path.name] = (read.initial.path, lines)
    try:
        return kernel_of(read), report
    except KernelError as error:
        report.error(error)
    return None, report


def _add_unreadable(report: Report, error: KernelError) -> None:
    """Add an error of a file that is no TOML, which begins with its whole path, or that says what cannot be."""
    name, _, problem = error.problem.partition(": ")
    line = re.search(r"\(at line (\d+)", problem)
    if Path(name).is_absolute():
        report.at(Path(name), int(line[1]) if line else 1, problem, error.remedy)
    else:
        report.error(error)
