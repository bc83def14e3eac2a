"""Text that fits: prose is broken between words alone, and a table that is too wide gives up columns, not cells.

A table that does not fit its terminal does, in this order, as much as it takes: columns without a value go; one row
alone is shown as names and values; what is the same in all rows is said once, above, except configurations and times;
columns but the first move below their row, those first that the table names for it, then the widest.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

from tuner.report.terminal import printable

PROSE = 100
"""Columns of prose at most: longer lines are hard to read."""
ENDLESS = 1 << 20
"""Columns of prose where no terminal is known that shows it: a paragraph is a line."""
FEWEST = 40
"""Columns below which nothing is laid out: a narrower terminal breaks lines by itself."""
NEVER_ABOVE = ("configuration", "time")
"""Heads, without what they say in parentheses, of what a table of results is read for, even where all are equal."""
GAP = "  "
BELOW = "      "
_KEPT = re.compile(
    r"(?<=\d) (?=(?:[num]?s|%|[GT]B/s|TFLOP/s|GHz|[KMG]iB|x)(?![\w/]))|(?<=\w) (?=\.\. )|(?<= \.\.) "
)
"""Blanks at which no line ends: between a number and its unit, and within an interval."""
_TOGETHER = "\xa0"  # printable() leaves none


def columns_of(stream: TextIO) -> int | None:
    """Return the columns of a stream's terminal; None for a file or a pipe."""
    if not stream.isatty():
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(columns or 80, FEWEST)


def _prose_columns() -> int:
    """Return the columns of prose: those of the terminal, also where ``less`` or ``head`` stands before it."""
    columns = columns_of(sys.stdout)
    if columns is None and (said := os.environ.get("COLUMNS", "")).isdecimal():
        columns = max(int(said), FEWEST)
    columns = columns or columns_of(sys.stderr)
    return min(columns, PROSE) if columns else ENDLESS


def wrapped(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Return text in lines that fit, broken between words; a number stays with its unit.

    Args:
        text: one paragraph.
        first: what the first line begins with.
        rest: what the others begin with; blanks of the same length by default.
    """
    return _wrapped(text, _prose_columns(), first, " " * len(first) if rest is None else rest)


def message_lines(text: str, stream: TextIO | None = None) -> list[str]:
    """Return a message in lines that fit a stream's terminal, the standard error's by default; else as it is."""
    columns = columns_of(sys.stderr if stream is None else stream)
    if columns is None or "\n" in text:
        return [text]
    return _wrapped(text, min(columns, PROSE), "", "  ")


def _wrapped(text: str, columns: int, first: str = "", rest: str = "") -> list[str]:
    lines = textwrap.wrap(
        kept_together(text),
        columns,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TOGETHER, " ") for line in lines] or [first.rstrip()]


def kept_together(text: str) -> str:
    """Return text in which no line can end between a number and its unit, or within an interval."""
    return _KEPT.sub(_TOGETHER, text)


def pair_lines(pairs: Iterable[tuple[str, object]]) -> list[str]:
    """Return names and values in two columns, without those that have no value."""
    shown = [(name, printable(value)) for name, value in pairs if value not in (None, "", (), [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    return [line for name, value in shown for line in wrapped(value, name.ljust(width) + GAP)]


def table_lines(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Collection[str] = (),
    stacked: Sequence[str] = (),
) -> list[str]:
    """Return a table in lines that fit the terminal, and of any length where the output is none.

    Args:
        columns: heads.
        cells: printable texts, row by row.
        right: columns that are aligned to the right.
        stacked: columns that move below their row first, the least important one first.
    """
    available = columns_of(sys.stdout)
    heads = list(columns)
    rows = [dict(zip(heads, row, strict=True)) for row in cells]
    lines: list[str] = []
    if available is None or _fits(heads, rows, available):
        return drawn(heads, rows, right, rule=available is not None)
    heads = [head for head in heads if any(row[head] for row in rows)]
    if len(rows) == 1 and not _fits(heads, rows, available):
        return pair_lines(_labelled(head, rows[0][head]) for head in heads)
    if not _fits(heads, rows, available):
        alike = [head for head in heads if len({row[head] for row in rows}) == 1]
        same = [head for head in alike if head.partition(" (")[0] not in NEVER_ABOVE]
        lines += _wrapped(f"in all rows: {_listed(same, rows[0])}", available) if same else []
        heads = [head for head in heads if head not in same]
    below: list[str] = []
    order = [
        *(head for head in stacked if head in heads),
        *sorted(set(heads[1:]) - set(stacked), key=lambda head: (-_natural(head, rows), head)),
    ]
    while not _fits(heads, rows, available) and order:
        moved = order.pop(0)
        heads.remove(moved)
        below.append(moved)
    below.sort(key=list(columns).index)
    return lines + drawn(heads, rows, right, rule=True, below=below, available=available)


def _natural(head: str, rows: Sequence[dict[str, str]]) -> int:
    return max(len(head), *(len(row[head]) for row in rows), 0)


def _fits(heads: Sequence[str], rows: Sequence[dict[str, str]], available: int) -> bool:
    return sum(_natural(head, rows) for head in heads) + len(GAP) * (len(heads) - 1) <= available


def drawn(
    heads: Sequence[str],
    rows: Sequence[dict[str, str]],
    right: Collection[str],
    *,
    rule: bool = False,
    below: Sequence[str] = (),
    available: int = ENDLESS,
) -> list[str]:
    """Return a table in lines.

    Args:
        heads: of the columns.
        rows: texts by head.
        right: columns that are aligned to the right.
        rule: whether a line stands below the heads.
        below: columns that stand below their row.
        available: columns of the terminal.
    """
    size = {head: min(_natural(head, rows), available) for head in heads}

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(size[head]) if head in right else text.ljust(size[head])
            for head, text in zip(heads, texts, strict=True)
        ]
        return GAP.join(padded).rstrip()

    def broken(texts: Iterable[str]) -> list[str]:
        cells = [_wrapped(text, size[head] or 1) for head, text in zip(heads, texts, strict=True)]
        return [line(parts) for parts in itertools.zip_longest(*cells, fillvalue="")]

    lines = broken(heads)
    alone = below[0] if len(below) == 1 else None
    if alone is not None:
        lines.append(f"{BELOW}{alone}")
    elif any("(" in head for head in below):  # what a head says in parentheses is said once
        lines += _wrapped("; ".join(below), available, BELOW, BELOW)
    if rule:
        lines.append(_dash() * min(available, sum(size.values()) + len(GAP) * (len(heads) - 1)))
    for row in rows:
        lines += broken(row[head] for head in heads)
        if more := row[alone] if alone is not None else _listed(below, row, notes=False):
            lines += _wrapped(more, available, BELOW, BELOW)
    return lines


def _labelled(head: str, value: str) -> tuple[str, str]:
    """Return a label and a value; what a head says in parentheses goes after the value."""
    label, _, note = head.partition(" (")
    return label, f"{value} ({note}" if note and value else value


def _listed(heads: Sequence[str], row: dict[str, str], *, notes: bool = True) -> str:
    pairs = (_labelled(head if notes else head.partition(" (")[0], row[head]) for head in heads if row[head])
    return "; ".join(f"{label} {value}" for label, value in pairs)


def _dash() -> str:
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    return "\u2500" if encoding.startswith("utf") else "-"
