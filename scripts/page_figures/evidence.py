"""Read the evidence, and write tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "results" / "evidence"

Rows = list[list[str]]


MEASURED: dict[str, Any] = {}
"""By name what was measured just now, in place of the evidence."""


def load(name: str) -> Any:
    """Return a JSON file of the evidence."""
    return MEASURED[name] if name in MEASURED else json.loads(text(f"{name}.json"))


def shown(name: str, data: Any, *figures: Callable[[], str]) -> str:
    """Return the pages' figures of new data, which a script prints."""
    MEASURED[name] = data
    try:
        return "\n\n".join(figure() for figure in figures)
    finally:
        del MEASURED[name]


def text(name: str) -> str:
    """Return a file of the evidence."""
    return (FOLDER / name).read_text(encoding="utf-8")


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return rows as a table; the first is its head."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([lines[0], "|---" * (lines[0].count(" | ") + 1) + "|", *lines[1:]])


def without_empty_columns(rows: Rows) -> Rows:
    """Leave out the columns that say ``-`` in every row."""
    columns = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"-"}]
    return [list(row) for row in zip(*columns, strict=True)]


def us(time_ns: float) -> str:
    """Return a time in microseconds."""
    return f"{time_ns / 1e3:.2f}"


def per_cent(ratio: float, digits: int = 0) -> str:
    """Return how far a ratio is from 1."""
    return f"{100 * abs(ratio - 1):.{digits}f} %"
