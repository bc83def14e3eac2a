"""Load a kernel's file and find as many of its errors as can be told apart, not only the first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tuner.core.errors import KernelError
from tuner.inspect.check.findings import Report
from tuner.inspect.check.toml_lines import TomlLines
from tuner.kernel.load import kernel_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import KernelFile, read_file, read_toml
from tuner.kernel.toml.like import bases_of

MOST_ERRORS = 20
"""Errors looked for: each costs another reading of the file."""
REMOVABLE = ("variants", "ladder", "initial", "baselines", "heuristics", "costs")
"""Tables without whose parts the rest of a file still makes sense."""


def load(file: Path) -> tuple[KernelSpec | None, Report]:
    """Return a kernel, or None where its file has errors, and a report with those.

    After an error in a part that the rest can do without, the file is read again without that part.
    """
    report = Report(file, TomlLines("", {}))
    try:
        data = read_toml(file)
        report.lines = TomlLines(file.read_text(), data)
        read = read_file(file)
    except KernelError as error:
        _add_unreadable(report, error)
        return None, report
    report.lines = TomlLines(file.read_text(), read.data)
    if read.initial is not None:
        lines = TomlLines(read.initial.path.read_text(), read.initial.data)
        report.beside[read.initial.path.name] = (read.initial.path, lines)
    for note in read.all_old_keys:
        report.note(note)
    left: KernelFile | None = read
    kernel = None
    for _ in range(MOST_ERRORS):
        if left is None:
            break
        try:
            kernel = kernel_of(left)
            break
        except KernelError as error:
            report.error(error)
            left = _without(left, error.problem)
    return (None if report.findings else kernel), report


def _add_unreadable(report: Report, error: KernelError) -> None:
    """Add an error of a file that is no TOML, which begins with its whole path, or that says what cannot be."""
    name, _, problem = error.problem.partition(": ")
    line = re.search(r"\(at line (\d+)", problem)
    if Path(name).is_absolute():
        report.at(Path(name), int(line[1]) if line else 1, problem, error.remedy)
    else:
        report.error(error)


def _without(file: KernelFile, problem: str) -> KernelFile | None:
    """Return a file without the part that an error names, and what refers to it; None if that is needed."""
    data = dict(file.data)
    name, _, rest = problem.partition(": ")
    if file.initial is not None and name == file.initial.path.name:
        del data["initial"]
        return replace(file, data=data, initial=None)
    table, _, rest = rest.partition(": ")
    table, name = re.sub(r"\[\d+\]$", "", table), rest.partition(": ")[0]
    if table not in REMOVABLE or table not in data:
        return None
    if table != "variants":
        del data[table]
        return replace(file, data=data, initial=file.initial if table != "initial" else None)
    removed, bases = {name}, bases_of(data)
    while heirs := {heir for heir, base in bases.items() if base in removed} - removed:
        removed |= heirs
    data["variants"] = {one: table for one, table in data["variants"].items() if one not in removed}
    if not data["variants"] or len(data["variants"]) == len(file.data["variants"]):
        return None
    for other in ("ladder", "initial", "heuristics"):
        data.pop(other, None)
    return replace(file, data=data, initial=None)
