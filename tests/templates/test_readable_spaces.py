"""The files of gemm can be read: short lines, and conditions, costs and parameters of rules in three lines at most."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.core import paths

MOST_COLUMNS, MOST_LINES = 140, 3
FILES = sorted(paths.search_spaces().glob("gemm*.toml"))
LISTS = ("arguments", "presets")
"""Keys whose values are lists of many parts, one a line."""


def values(text: str) -> dict[str, int]:
    """Return how many lines each key's value has; the files begin keys in the first column, and indent the rest."""
    found: dict[str, int] = {}
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if begun := re.match(r"""(?:"[^"]+"|[\w.]+)(?= = )""", line):
            key = f"{number}: {begun[0]}"
            found[key] = 0
        elif not line.startswith((" ", "]")):
            key = ""
        if key:
            found[key] += 1
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_lines_are_short_and_values_have_few(file: Path) -> None:
    text = file.read_text()
    long = [number for number, line in enumerate(text.splitlines(), 1) if len(line) > MOST_COLUMNS]
    assert not long, f"{file.name}: lines {long} have more than {MOST_COLUMNS} characters"
    lengths = values(text)
    assert len(lengths) > 50
    many = [key for key, lines in lengths.items() if lines > MOST_LINES and key.split(": ")[1] not in LISTS]
    assert not many, f"{file.name}: {many} have more than {MOST_LINES} lines; name parts in [definitions]"
