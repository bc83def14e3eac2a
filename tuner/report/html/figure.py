"""What a page is made of: figures, each with the data that the script draws and a table that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FigureTable:
    """What a figure shows, as text."""

    heads: Sequence[str]
    """Names of the columns; those that begin with ``>`` are aligned to the right."""
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True)
class Figure:
    """One figure of a page."""

    key: str
    """Its id on the page, unique there."""
    kind: str
    """Which function of ``search.js`` or ``timing.js`` draws it."""
    title: str
    caption: str
    """What is seen, how it was found, and what limits it."""
    label: str
    """What is seen, in a sentence, as text."""
    table: FigureTable
    data: dict[str, Any] = field(default_factory=dict)
    """What is drawn: numbers as the database has them, times in nanoseconds."""
    wide: bool = True
    """Whether it takes the page's whole width."""
