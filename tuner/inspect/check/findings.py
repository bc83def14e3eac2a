"""What a check has found: a line of a file each, with a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.core.errors import TunerError
from tuner.inspect.check.toml_lines import TomlLines

_BESIDE = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+): (?P<problem>.*)", re.DOTALL)
"""An error in another file of the kernel: a template, a Python reference."""


Watch = Callable[[str, int, int], None]
"""Told what is checked, how many are done, and of how many."""


def watch_nothing(what: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, order=True)
class Mistake:
    """Something that is wrong."""

    file: Path
    line: int
    problem: str
    remedy: str = ""

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
    watch: Watch = watch_nothing

    def add(self, key: tuple[str | int, ...], problem: str, remedy: str = "") -> None:
        """Add a finding at a key of the kernel's file, or at the table that it would be in."""
        self.at(self.file, self.lines.line(key), problem, remedy)

    def at(self, file: Path, line: int, problem: str, remedy: str = "") -> None:
        """Add a finding at a line of any file."""
        self.findings.add(Mistake(_shown(file), line, _one_line(problem), _one_line(remedy)))

    def error(self, error: TunerError, key: tuple[str | int, ...] = ()) -> None:
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
    def sorted(self) -> list[Mistake]:
        """The findings in the order of files and lines."""
        return sorted(self.findings)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _shown(file: Path) -> Path:
    """Return a file relative to the working folder, if it lies below it."""
    try:
        return file.relative_to(Path.cwd())
    except ValueError:
        return file
