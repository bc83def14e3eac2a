"""Hopper's kernels and the files of gemm can be read: Jinja hardly chooses code, lines are short, rules have few."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.core import paths

SOURCES = sorted((paths.templates() / "sm90").glob("*.j2"))
PAGES = sorted((Path(__file__).parents[2] / "docs/kernels").glob("*.md"))
MOST = 0.12
"""Of a file's lines, without includes, constants and macros: what a reader has to work out. That is neither what
stands for a pointer to C, which may be a slice of a larger matrix."""
SLICES = re.compile(r"\{\{ (pointer|pitch)\([^)]*\) \}\}")
PLAIN = re.compile(
    r"\{% include |\{% from |\{%-? (end)?macro|\{\{ \w+\(.*\) \}\}$|\{#|(constexpr|using) .*= [\w:]*\{\{"
)
FEW_LINES = 20
"""A file that only includes another with one thing set, or has two macros."""
TO_BEGIN_WITH = 75
"""Lines that a page says to read first."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_few_lines_have_jinja(path: Path) -> None:
    lines = SLICES.sub("", path.read_text()).splitlines()
    jinja = [line for line in lines if re.search(r"\{\{|\{%", line) and not PLAIN.match(line)]
    assert len(jinja) <= MOST * len(lines) or len(lines) < FEW_LINES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_little_to_read_first(page: Path) -> None:
    if page.stem == "gemm-measurements":  # figures alone
        return
    said = re.search(r"^\*\*Read first\*\* [^\[]*\[`[^`]+`\]\(([^)]+)\)", page.read_text(), re.MULTILINE)
    assert said, "each kernel's page says which lines to read first"
    text = (page.parent / said[1]).read_text()
    kernel = text[max(text.find('extern "C"'), 0) :]  # a piece has no entry
    assert kernel.count("\n") <= TO_BEGIN_WITH


# -- the files of gemm

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
