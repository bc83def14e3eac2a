"""What a check has found: a line of a file each, with a remedy; first what is wrong with the kernel's file itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from tuner.core.errors import KernelError, TunerError
from tuner.core.observer import Observer
from tuner.inspect.check.toml_lines import Key, TomlLines
from tuner.kernel.load import kernel_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import read_file, read_toml

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
