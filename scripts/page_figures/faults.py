"""What became of the tuner when it was broken on purpose: the lines of ``chaos.txt``."""

from __future__ import annotations

import re

from page_figures.evidence import text


def chaos(section: str) -> str:
    """Return what a section of ``scripts/chaos.py`` counted."""
    for line in text("chaos.txt").splitlines():
        name, _, counts = line.partition(" ")
        if name == section:
            return re.sub(r" \(the last was gone after [^)]*\)|; \d+ s$", "", counts.strip())
    raise ValueError(f"chaos.txt has no section {section}")
