"""Hopper's kernels are C++ to be read; Jinja includes, gives constants and operands of PTX, and hardly chooses code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.core import paths

SOURCES = sorted((paths.templates() / "sm90").glob("*.j2"))
MOST = 0.12
"""Of a file's lines, without includes and constants: what a reader has to work out."""
FEW_LINES = 10
"""A file that only includes another with one thing set."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_few_lines_have_jinja(path: Path) -> None:
    lines = path.read_text().splitlines()
    plain = re.compile(r"\{% include |constexpr .*= \{\{")
    jinja = [line for line in lines if re.search(r"\{\{|\{%|\{#", line) and not plain.match(line)]
    assert len(jinja) <= MOST * len(lines) or len(lines) < FEW_LINES
