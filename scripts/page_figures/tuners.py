"""Beside other tuners: ``kernel-tuner.json``."""

from __future__ import annotations

from page_figures.evidence import load

OURS = {"ours": "ours", "theirs": "kernel_tuner"}


def kernel_tuner(whose: str) -> str:
    """Return the configurations a second of the better round, of ``ours`` or of ``theirs``."""
    best = max(one[OURS[whose]]["per_second"] for one in load("kernel-tuner")["rounds"])
    return f"{best:.3g}"
