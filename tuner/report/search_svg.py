"""A search as one small picture for notebooks: SVG without a script, which also a page that is not trusted shows."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.core.model import Trial
from tuner.report.plots import COLOURS
from tuner.report.result_record import trajectory
from tuner.report.tables import duration

WIDTH, LEFT, AROUND = 720, 70, 34
HEIGHT, SMALL = 190, 110
"""Of the panel of all trials, and of one of a parameter; each has its title and labels besides."""
FAR = 10.0
"""Times the best time, above which points stand at the upper edge."""
IN_A_ROW, MOST = 3, 6
MOST_LABELS = 6

Point = tuple[float, float]
"""Where in the width of a panel it stands, from 0 to 1, and a time."""


def search_svg(trials: Sequence[Trial]) -> str:
    """Return the trials in their order with the best so far, and the times by the values of the parameters that matter.

    The text is empty where nothing was timed.
    """
    tried = trajectory(trials)
    timed = [one for one in tried if one["time_ns"]]
    if not timed:
        return ""
    least = min(one["time_ns"] for one in timed)
    range_ns = least / 1.1, 1.1 * min(FAR * least, max(one["time_ns"] for one in timed))
    last = max(len(tried), 2)
    points = [((one["evaluation"] - 1) / (last - 1), one["time_ns"]) for one in timed]
    best = [((one["evaluation"] - 1) / (last - 1), one["best_ns"]) for one in tried if one["best_ns"]]
    labels = {0.0: "1", 1.0: f"{last} trials"}
    parts = [
        _panel(
            "time of each trial, and the best so far", (0, 0, WIDTH, HEIGHT), range_ns, points, labels, best
        )
    ]
    shown = _parameters(timed)[:MOST]
    width = WIDTH // IN_A_ROW
    for number, (name, values) in enumerate(shown):
        row, column = divmod(number, IN_A_ROW)
        place = (column * width, HEIGHT + 2 * AROUND + row * (SMALL + 2 * AROUND), width, SMALL)
        at = {value: (index + 0.5) / len(values) for index, value in enumerate(values)}
        points = [
            (at[one["configuration"][name]], one["time_ns"]) for one in timed if name in one["configuration"]
        ]
        every = math.ceil(len(values) / MOST_LABELS)
        parts.append(
            _panel(name, place, range_ns, points, {at[value]: str(value) for value in values[::every]})
        )
    height = HEIGHT + 2 * AROUND + math.ceil(len(shown) / IN_A_ROW) * (SMALL + 2 * AROUND)
    style = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
    return f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" {style}>{"".join(parts)}</svg>'


def _parameters(timed: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Any]]]:
    """Return parameters with their values, those first whose best time depends on them the most."""
    least: dict[str, dict[Any, float]] = {}
    for one in timed:
        for name, value in one["configuration"].items():
            times = least.setdefault(name, {})
            times[value] = min(times.get(value, math.inf), one["time_ns"])
    several = {name: times for name, times in least.items() if len(times) > 1}
    ordered = sorted(several, key=lambda name: -max(several[name].values()) / min(several[name].values()))
    return [
        (name, sorted(several[name], key=lambda value: (isinstance(value, str), value))) for name in ordered
    ]


def _panel(
    title: str,
    place: tuple[int, int, int, int],
    range_ns: tuple[float, float],
    points: Sequence[Point],
    labels: Mapping[float, str],
    best: Sequence[Point] = (),
) -> str:
    """Return points over a logarithmic axis of times, with a line of the best so far."""
    left, top, width, height = place[0] + LEFT, place[1] + AROUND - 12, place[2] - LEFT - 12, place[3]
    low, high = map(math.log, range_ns)

    def at(point: Point) -> tuple[str, str]:
        share = (high - min(math.log(point[1]), high)) / (high - low)
        return f"{left + width * point[0]:.1f}", f"{top + height * share:.1f}"

    ticks = [
        step * 10.0**power
        for power in range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)))
        for step in (1, 1.5, 2, 3, 5, 7)
        if range_ns[0] <= step * 10.0**power <= range_ns[1]
    ]
    drawn = [f'<text x="{left}" y="{top - 8}" font-weight="600">{html.escape(title)}</text>']
    for tick in ticks:
        _, y = at((0.0, tick))
        drawn.append(f'<path d="M{left} {y}h{width}" stroke="currentColor" opacity="0.15"/>')
        drawn.append(f'<text x="{left - 6}" y="{y}" dy="0.35em" text-anchor="end">{duration(tick)}</text>')
    for share, text in labels.items():
        anchor = "start" if share == 0.0 else "end" if share == 1.0 else "middle"
        x = f"{left + width * share:.1f}"
        drawn.append(
            f'<text x="{x}" y="{top + height + 16}" text-anchor="{anchor}">{html.escape(text[:12])}</text>'
        )
    dots = "".join("M{} {}h0".format(*at(point)) for point in points)
    drawn.append(f'<path d="{dots}" stroke="{COLOURS[4]}" stroke-width="4" stroke-linecap="round"/>')
    if best:
        line = "M{} {}".format(*at(best[0])) + "".join("H{}V{}".format(*at(point)) for point in best[1:])
        drawn.append(f'<path d="{line}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>')
    return "".join(drawn)
