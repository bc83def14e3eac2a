"""What all figures have in common: a Plotly figure with its words, colours, logarithmic axes, texts that stay texts.

Plotly makes elements of tags in whatever it shows as text, and links of ``<a href>``. So every name or message that
comes from a database passes :func:`inert`.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_json

from tuner.report.terminal import printable

ACCENT, SECOND, THIRD, DIM = "#2f8fd0", "#e0762b", "#22a37f", "#8b95a1"
"""Of the best, of what it is compared with, of limits, of the rest; seen well on white and on black."""
SCALE = [[0.0, "#f2711c"], [0.2, "#d9527a"], [0.5, "#7f74c4"], [1.0, "#8593a1"]]
"""From the fastest to the slowest; seen on white and on black."""
LONGEST = 60
"""Characters of a name in a figure; longer ones are cut."""


MOST_TICKS = 7
"""Of an axis, about."""
MOST = 2**53
"""The largest whole number up to which a script tells all of them apart."""


def inert(text: object, longest: int = LONGEST) -> str:
    """Return text as Plotly shows it without making elements or links of it; a long one lacks its middle."""
    seen = printable(text)
    return html.escape(seen if len(seen) <= longest else f"{seen[: longest - 16]}…{seen[-15:]}", quote=False)


def is_number(value: object) -> bool:
    """Return whether a parameter's value is a number that a script and an axis can take; else it is shown as text."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MOST


@dataclass(frozen=True)
class Figure:
    """One figure of a page."""

    key: str
    """Its id, unique among its section's."""
    title: str
    caption: str
    """What is seen, how it was found, and what limits it."""
    drawn: go.Figure | dict[str, Any]
    """Or what Plotly's JSON would be made of."""
    height: int = 320
    """Pixels."""
    rows: Sequence[Mapping[str, object]] = ()
    """The same as a table, if there is one: values by the heads of the columns, of which those of numbers begin with
    ``>``."""
    wide: bool = True
    """Whether it takes the page's whole width."""
    least: int = 0
    """Pixels that it needs; on a narrower page it is scrolled."""

    def to_json(self) -> dict[str, Any]:
        """Return what Plotly's script draws: traces and layout, without a template, which is the theme's."""
        content = json.loads(to_json(self.drawn, validate=False))
        for name in ("template", "title", "width"):
            content["layout"].pop(name, None)
        return {"data": content["data"], "layout": {**content["layout"], "height": self.height}}


def figure(*traces: Any, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """Return a figure of traces and the titles of its axes."""
    drawn = go.Figure(list(traces), {"showlegend": False, "hovermode": "closest", **layout})
    return drawn.update_xaxes(title_text=x).update_yaxes(title_text=y)


def logarithmic(values: Sequence[float], *, above: bool = False) -> dict[str, Any]:
    """Return a logarithmic axis over values with round ticks: Plotly's own reads 2 and 5 where it means 20 and 50.

    Args:
        values: positive; the axis has some room beside them.
        above: whether it has more room above them.
    """
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.04 * (high - low), 0.004)
    ends = [low - room, high + room * (3 if above else 1)]
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1,)):
        powers = range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if ends[0] <= math.log10(tick) <= ends[1]]
        if len(ticks) <= MOST_TICKS:
            break
    if len(ticks) < 3:  # so short an axis that Plotly's are as round
        return {"type": "log", "range": ends}
    return {
        "type": "log",
        "range": ends,
        "tickvals": ticks[:: max(1, len(ticks) // MOST_TICKS)],
        "tickformat": "~g",
    }


def line_at(
    value: float, ends: Sequence[Any], name: str, colour: str = THIRD, *, label: str, across: bool = True
) -> go.Scatter:
    """Return a dashed reference line at a value, with a label at its end.

    It is a trace: Plotly's shapes and annotations disagree on what a place on a logarithmic axis is.

    Args:
        value: of the y axis, or of x if not ``across``.
        ends: where it begins and ends on the other axis.
        name: what the legend and the pointer show, inert.
        colour: of both.
        label: inert; may be empty.
        across: whether it is horizontal.
    """
    places = {"x": list(ends), "y": [value] * 2} if across else {"x": [value] * 2, "y": list(ends)}
    line, font = {"dash": "dash", "color": colour, "width": 1.4}, {"color": colour, "size": 11}
    of_text = {"text": ["", label], "textposition": "top left", "textfont": font}
    return go.Scatter(**places, **of_text, mode="lines+text", name=name, line=line, hoverinfo="name")


def intervals(
    low: Sequence[float | None], middle: Sequence[float], high: Sequence[float | None]
) -> dict[str, Any]:
    """Return error bars from both ends of intervals, as far as there are any."""
    ends = list(zip(low, middle, high, strict=True))
    return {
        "array": [up - at if up is not None else 0 for _, at, up in ends],
        "arrayminus": [at - down if down is not None else 0 for down, at, _ in ends],
        "color": DIM,
        "thickness": 1.5,
    }
