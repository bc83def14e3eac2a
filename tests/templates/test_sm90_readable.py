"""Hopper's kernels are C++ to be read: Jinja hardly chooses code, and a default schedule can be read alone."""

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
