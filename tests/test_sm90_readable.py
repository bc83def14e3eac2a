"""Hopper's kernels are C++ to be read; Jinja gives constants, and operands of PTX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner import paths

SOURCES = sorted((paths.templates() / "sm90").glob("*.j2"))
MOST = 0.15


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_few_lines_have_jinja(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert sum(bool(re.search(r"\{\{|\{%|\{#", line)) for line in lines) <= MOST * len(lines)
