"""What a user says about problems on the command line -> :class:`tuner.model.Problem`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import TunerError, UsageError
from tuner.expressions import parse
from tuner.kernel import KernelSpec, suggestion
from tuner.model import Problem, Value


def whole_number(name: str, text: str) -> int:
    """Read a size: a number, ``2**20`` or ``2^20``."""
    try:
        value = parse(text.replace("^", "**")).evaluate({})
    except TunerError:
        value = None
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value != int(value):
        raise UsageError(f"size {name}={text}", "give a whole number, such as 4096 or 2**20")
    return int(value)


def assignments(texts: Iterable[str], what: str) -> list[tuple[str, str]]:
    """Split ``name=value,name=value`` texts."""
    found = []
    for text in texts:
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals or not name.strip() or not value.strip():
                raise UsageError(f"{what} {text!r}", f"write {what} name=value")
            found.append((name.strip(), value.strip()))
    return found


def make_problems(
    kernel: KernelSpec,
    sizes: Sequence[str],
    dtypes: Sequence[str],
    options: Sequence[str],
    presets: Sequence[str | None],
    problems: Sequence[str],
    file: Path | None,
) -> list[Problem]:
    """Combine ``--size``, ``--dtype``, ``--option``, ``--preset``, ``--problem`` and ``--problems``.

    Presets, ``--problem`` texts and the rows of the file each give one problem; what the other options say holds for
    all of them.
    """
    common_sizes = {name: whole_number(name, value) for name, value in assignments(sizes, "--size")}
    common_dtypes = dict(_role(text) for text in dtypes)
    common_options = {
        name: option_value(kernel, name, value) for name, value in assignments(options, "--option")
    }
    rows: list[Mapping[str, str]] = [dict(assignments([text], "--problem")) for text in problems]
    if file is not None:
        rows += _rows(file)
    found = [
        kernel.problem(common_sizes, common_dtypes, common_options, preset)
        for preset in (presets or ([] if rows else [None]))
    ]
    for row in rows:
        own_sizes, own_dtypes, own_options = dict(common_sizes), dict(common_dtypes), dict(common_options)
        for name, value in row.items():
            if name in kernel.sizes:
                own_sizes[name] = whole_number(name, value)
            elif name in kernel.options:
                own_options[name] = option_value(kernel, name, value)
            elif name == "dtype" or name in kernel.dtypes:
                own_dtypes["" if name == "dtype" else name] = value
            else:
                known = [*kernel.sizes, *kernel.options, *kernel.dtypes, "dtype"]
                raise UsageError(
                    f"{kernel.name} has no size, option or dtype {name!r}", suggestion(name, known)
                )
        found.append(kernel.problem(own_sizes, own_dtypes, own_options))
    return list({problem.key: problem for problem in found}.values())


def option_value(kernel: KernelSpec, name: str, text: str) -> Value:
    """Give the option's value that a text means."""
    for value in kernel.options.get(name, ()):
        if str(value).lower() == text.lower():
            return value
    return text  # KernelSpec.problem says what would have been possible


def _role(text: str) -> tuple[str, str]:
    role, equals, dtype = text.partition("=")
    return (role, dtype) if equals else ("", text)


def _rows(file: Path) -> list[Mapping[str, str]]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, skipinitialspace=True, strict=True)
            rows = [_row(file, reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error, AttributeError) as error:
        raise UsageError(
            f"cannot read {file}: {_reason(error)}", "give a CSV file whose first line names the sizes"
        ) from None
    if not rows:
        raise UsageError(
            f"{file} has no rows", "the first line names the sizes, each further line is a problem"
        )
    return rows


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, csv.Error):
        return f"it is not CSV: {error}"
    return "it is not text" if isinstance(error, UnicodeDecodeError) else "it is not CSV"


def _row(file: Path, line: int, row: Mapping[Any, Any]) -> Mapping[str, str]:
    if row.get(None):
        raise UsageError(f"{file} line {line} has more columns than the first line", "name each column there")
    cells = {
        str(name).strip(): value.strip() for name, value in row.items() if name and value and value.strip()
    }
    if not cells:
        raise UsageError(f"{file} line {line} has no values", "remove the line, or fill it in")
    return cells
