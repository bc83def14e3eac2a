"""Load a kernel's file and find as many of its errors as can be told apart, not only the first."""

from __future__ import annotations

import copy
import re
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.check.findings import Report
from tuner.check.toml_lines import TomlLines
from tuner.errors import KernelError
from tuner.kernel.load import kernel_of
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.file import read_file
from tuner.kernel.toml.like import bases_of

MOST_ERRORS = 20
"""Errors looked for: each costs another reading of the file."""
REMOVABLE = ("variants", "ladder", "initial", "baselines", "heuristics")
"""Tables without whose parts the rest of a file still makes sense."""


def load(file: Path) -> tuple[KernelSpec | None, Report]:
    """Return a kernel, or None where its file has errors, and a report with those.

    After an error in a part that the rest can do without, the file is read again without that part.
    """
    try:
        read = read_file(file)
    except KernelError as error:
        report = Report(file, TomlLines("", {}))
        line = re.search(r"\(at line (\d+)", error.problem)
        report.at(file, int(line[1]) if line else 1, error.problem.removeprefix(f"{file}: "), error.remedy)
        return None, report
    report = Report(file, TomlLines(file.read_text(), read.data))
    for note in read.old_keys:
        report.note(note)
    left = replace(read, data=copy.deepcopy(read.data))
    for _ in range(MOST_ERRORS):
        try:
            kernel = kernel_of(left)
            break
        except KernelError as error:
            report.error(error)
            if not _without(left.data, error.problem):
                return None, report
    else:
        return None, report
    return (None if report.findings else kernel), report


def _without(data: MutableMapping[str, Any], problem: str) -> bool:
    """Remove the part of a file that an error names, and what refers to it; False if it is needed."""
    table, _, rest = problem.partition(".toml: ")[2].partition(": ")
    table, name = re.sub(r"\[\d+\]$", "", table), rest.partition(": ")[0]
    if table not in REMOVABLE or table not in data:
        return False
    if table != "variants":
        del data[table]
        return True
    variants = data["variants"]
    if name not in variants:
        return False
    bases = bases_of(data)
    removed = {name}
    while heirs := {heir for heir, base in bases.items() if base in removed} - removed:
        removed |= heirs
    if len(removed) == len(variants):
        return False
    for one in removed:
        del variants[one]
    for other in ("ladder", "initial", "heuristics"):
        data.pop(other, None)
    return True
