"""What became of the tuner when it was broken on purpose: ``chaos.txt``, ``gpu-faults.txt``, ``hostile.txt``."""

from __future__ import annotations

import re

from scripts.page_figures.evidence import text


def chaos(section: str) -> str:
    """Return what a section of ``scripts/chaos.py`` counted."""
    for line in text("chaos.txt").splitlines():
        name, _, counts = line.partition(" ")
        if name == section:
            return re.sub(r" \(the last was gone after [^)]*\)|; \d+ s$", "", counts.strip())
    raise ValueError(f"chaos.txt has no section {section}")


def gpu_faults(section: str) -> str:
    """Return what a section of ``scripts/gpu_faults.py`` found."""
    lines = text("gpu-faults.txt").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{section}: "))
    found = []
    for line in lines[first + 1 :]:
        if not line.startswith(" "):
            break
        verdict, _, what = line.strip().partition("  ")
        if verdict in ("PASS", "FAIL"):
            found.append(what.strip() if verdict == "PASS" else f"**{what.strip()}**")
    return "; ".join(found)


def hostile() -> str:
    """Return how many commands read hostile input, and how many ended as they must not."""
    return re.sub(r" in \d+ s with \d+ jobs", "", text("hostile.txt").splitlines()[-2])
