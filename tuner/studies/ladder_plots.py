"""A ladder as figures: under the roofline of the GPU, and as times and rates over the sizes of a sweep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.report.plots import COLOURS, MARKERS, make_logarithmic, sheet, short, write
from tuner.report.tables import duration
from tuner.studies.ladder import size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP_COLOURS, OTHER_COLOURS = COLOURS[:6], (COLOURS[7], COLOURS[6], "#7a5230")
GREY = "#666666"
NARROW = 100.0
"""Longest over shortest time below which the axis has numbers between the powers of ten."""
DOTS = (":", "-.", (0, (1, 3)), (0, (4, 1, 1, 1)))
LINE_PT = 12.0
"""Points from one line of small text to the next."""
LETTER_PT = 5.2
"""Width of one of its letters, generously."""
ASIDE_PT = 16.0
"""From a point to its name."""


@dataclass(frozen=True)
class Line:
    """A ceiling: bytes a second, or FLOP a second."""

    label: str
    rate: float


@dataclass(frozen=True)
class Trace:
    """A contestant under the roofline, from the smallest size to the largest."""

    name: str
    points: Sequence[tuple[float, float]]
    """Arithmetic intensity in FLOP a byte, and FLOP/s."""
    baseline: bool = False


@dataclass(frozen=True)
class Curve:
    """A contestant over the sizes."""

    name: str
    sizes: Sequence[int]
    times_ns: Sequence[float]
    rates: Sequence[float]
    """In the unit that the figure names."""
    baseline: bool = False


# -- the roofline


def plot_roofline(
    traces: Sequence[Trace], bandwidth: Line | None, peaks: Sequence[Line], title: str, path: Path
) -> None:
    """Draw contestants under the ceilings of a GPU (Williams, Waterman, Patterson 2009), on logarithmic axes.

    Args:
        traces: at least one; the last point of each is named, the others are faint.
        bandwidth: of the memory.
        peaks: of the arithmetic units.
        title: above the figure.
        path: a ``.png`` or ``.svg`` file, which is replaced.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    xs = [x for trace in traces for x, _ in trace.points]
    ys = [y for trace in traces for _, y in trace.points]
    highest = max((peak.rate for peak in peaks), default=max(ys))
    ridge = highest / bandwidth.rate if bandwidth else max(xs)
    left, right = min(xs) / 6, 4 * max(*xs, ridge)
    low, high = min(ys) / 3, 3 * max(*ys, highest)
    with sheet(path, 9.0, 6.2, grid="both") as (figure, (axes,)):
        make_logarithmic(axes, "x", (1.0, 2.0, 5.0) if right < NARROW * left else (1.0,))
        make_logarithmic(axes, "y", text=flops_text)
        axes.set(xlim=(left, right), ylim=(low, high))
        _roofs(axes, bandwidth, peaks, highest, left, right)
        names = []
        for trace, style in zip(traces, _styles(traces), strict=True):
            axes.plot(*zip(*trace.points, strict=True), color=style["color"], linewidth=0.8, alpha=0.45)
            faint, (x, y) = trace.points[:-1], trace.points[-1]
            if faint:
                axes.scatter(*zip(*faint, strict=True), s=14, alpha=0.35, **_marker(style))
            axes.scatter([x], [y], s=60, zorder=4, **_marker(style))
            names.append((x, y, short(trace.name), style["color"]))
        axes.set_xlabel("arithmetic intensity (FLOP a byte), logarithmic")
        axes.set_ylabel("FLOP/s, logarithmic")
        axes.set_title(short(title), fontsize=11)
        figure.draw_without_rendering()  # which settles the layout
        if bandwidth is not None:
            parts = ((left, min(min(xs), ridge)), (min(max(xs), ridge), ridge))
            free = max(parts, key=lambda part: part[1] / part[0])
            _name_bandwidth(axes, bandwidth, math.sqrt(free[0] * free[1]))
        _name(figure, axes, names)


def _roofs(
    axes: Axes, bandwidth: Line | None, peaks: Sequence[Line], highest: float, left: float, right: float
) -> None:
    """Draw the ceilings, and name those of the arithmetic."""
    if bandwidth is not None:
        ridge = highest / bandwidth.rate
        axes.plot([left, ridge], [bandwidth.rate * left, highest], color=GREY, linewidth=1.6, zorder=1)
    for peak in peaks:
        ridge = max(left, peak.rate / bandwidth.rate) if bandwidth else left
        axes.plot([ridge, right], [peak.rate, peak.rate], color=GREY, linewidth=1.6, zorder=1)
        at_its_start = ridge < math.sqrt(left * right)  # where it has room before the points
        end, offset, side = (ridge, (28, 4), "left") if at_its_start else (right, (-4, 4), "right")
        write(axes, peak.label, (end, peak.rate), offset, ha=side, color=GREY, fontsize=8)


def _name_bandwidth(axes: Axes, bandwidth: Line, at: float) -> None:
    """Write the name of the memory's ceiling along it, once the layout is known."""
    ends = [(x, bandwidth.rate * x) for x in (at, 2 * at)]
    (x0, y0), (x1, y1) = axes.transData.transform(ends)
    along = {"rotation": math.degrees(math.atan2(y1 - y0, x1 - x0)), "rotation_mode": "anchor"}
    write(axes, bandwidth.label, ends[0], (-2, 5), ha="center", color=GREY, fontsize=8, **along)


def _name(figure: Figure, axes: Axes, names: Sequence[tuple[float, float, str, str]]) -> None:
    """Write the names beside the points, in columns where they would run into each other, once the layout is known.

    Args:
        figure: which measures in points.
        axes: where the points are.
        names: of each point: where it is, its name, its colour.
    """
    scale = 72.0 / figure.dpi
    points = [axes.transData.transform((x, y)) * scale for x, y, _, _ in names]
    xs, ys = [float(point[0]) for point in points], [float(point[1]) for point in points]
    bounds = axes.get_window_extent()
    for column, to_the_left in _columns(xs, [len(name[2]) * LETTER_PT for name in names], scale * bounds.x1):
        at = min(xs[i] for i in column) - ASIDE_PT if to_the_left else max(xs[i] for i in column) + ASIDE_PT
        heights = spread([ys[i] for i in column], LINE_PT, scale * bounds.y0 + LINE_PT)
        for i, height in zip(column, heights, strict=True):
            x, y, text, colour = names[i]
            write(
                axes,
                text,
                (x, y),
                (at - xs[i], height - ys[i]),
                va="center",
                ha="right" if to_the_left else "left",
                fontsize=8.5,
                color=colour,
                arrowprops={
                    "arrowstyle": "-",
                    "linewidth": 0.6,
                    "color": colour,
                    "relpos": (1 if to_the_left else 0, 0.5),  # else from its middle, through other names
                    "shrinkA": 1,
                    "shrinkB": 4,
                },
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6},
                zorder=5,
            )


def _columns(xs: Sequence[float], widths: Sequence[float], end: float) -> list[tuple[list[int], bool]]:
    """Group points into columns of names, by number, and say which stand to the left of theirs.

    Points above each other are a stem. A stem's names stand to its right where there is room, else to its left, else
    with those of the next one.
    """
    stems: list[list[int]] = []
    for i in sorted(range(len(xs)), key=lambda i: xs[i]):
        if stems and xs[i] - xs[stems[-1][-1]] <= ASIDE_PT:
            stems[-1].append(i)
        else:
            stems.append([i])
    columns: list[tuple[list[int], bool]] = []
    waiting: list[int] = []
    left_end = -math.inf
    for number, stem in enumerate(stems):
        column = [*waiting, *stem]
        width = max(widths[i] for i in column) + 2 * ASIDE_PT
        last, first = max(xs[i] for i in column), min(xs[i] for i in column)
        following = min((xs[i] for i in stems[number + 1]), default=end) if stems[number + 1 :] else end
        room_right, room_left = following - last >= width, first - left_end >= width
        if not room_right and not room_left and stems[number + 1 :]:
            waiting = column
            continue
        columns.append((column, not room_right))
        waiting, left_end = [], last + (width if room_right else 0.0)
    return columns


def spread(positions: Sequence[float], gap: float, lowest: float = -math.inf) -> list[float]:
    """Return positions moved apart until all differ by a gap, each as little as possible; none below ``lowest``."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # Neighbours that are too near become a block around the mean of their positions; blocks that touch become one.
    blocks: list[tuple[float, int]] = []
    for i in order:
        blocks.append((positions[i], 1))
        while len(blocks) > 1:
            (before, count), (after, more) = blocks[-2:]
            if after - before >= gap * (count + more) / 2:
                break
            blocks[-2:] = [((before * count + after * more) / (count + more), count + more)]
    moved: list[float] = []
    for middle, count in blocks:
        bottom = max(middle - gap * (count - 1) / 2, moved[-1] + gap if moved else lowest)
        moved += [bottom + gap * number for number in range(count)]
    return [position for _, position in sorted(zip(order, moved, strict=True))]


def flops_text(value: float) -> str:
    """Write a rate with the prefix that fits: ``35 G``, ``1 T``."""
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {prefix}"
    return f"{value:.3g} "


def bandwidth_text(rate: float) -> str:
    """Write a bandwidth: ``4.49 TB/s``."""
    return f"{rate / 1e12:.3g} TB/s" if rate >= 1e12 else f"{rate / 1e9:.4g} GB/s"


# -- over the sizes


def plot_sizes(
    curves: Sequence[Curve],
    limits: Sequence[Curve],
    unit: str,
    axis: str,
    title: str,
    path: Path,
) -> None:
    """Draw time and rate over the sizes, one panel each, with a line for each contestant.

    Args:
        curves: steps in solid lines, baselines in dashed ones.
        limits: the speed of light and the like, in thin dotted lines.
        unit: of the rates.
        axis: what the sizes are.
        title: above the figure.
        path: a ``.png`` or ``.svg`` file, which is replaced.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    sizes = sorted({value for curve in curves for value in curve.sizes})
    with sheet(path, 9.0, 8.4, rows=2, grid="both") as (figure, (times, rates)):
        for curve, style in zip(curves, _styles(curves), strict=True):
            line = {
                **style,
                "linestyle": "dashed" if curve.baseline else "solid",
                "linewidth": 1.4,
                "markersize": 4.5,
                "markerfacecolor": _marker(style)["facecolors"],
            }
            times.plot(curve.sizes, curve.times_ns, label=short(curve.name), **line)
            rates.plot(curve.sizes, curve.rates, **line)
        for limit, dots in zip(limits, itertools.cycle(DOTS), strict=False):
            line = {"color": GREY, "linestyle": dots, "linewidth": 1.2}
            times.plot(limit.sizes, limit.times_ns, label=short(limit.name), **line)
            if limit.rates:
                rates.plot(limit.sizes, limit.rates, **line)
        _time_axis(times, [time for curve in curves for time in curve.times_ns])
        rates.set_ylabel(unit)
        rates.set_ylim(bottom=0)
        rates.set_xscale("log", base=2)
        shown = sizes[:: max(1, math.ceil(len(sizes) / 12))]
        rates.set_xticks(shown, [size_text(value) for value in shown])
        rates.set_xticks([], minor=True)
        rates.set_xlabel(f"{axis}, logarithmic")
        times.set_title(short(title), fontsize=11)
        handles, labels = times.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)


def _time_axis(axes: Axes, times_ns: Sequence[float]) -> None:
    """Make the upright axis logarithmic, with room around these times."""
    from matplotlib.ticker import LogLocator

    shortest, longest = min(times_ns), max(times_ns)
    make_logarithmic(axes, "y")
    if longest < NARROW * shortest:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: duration(value))
    axes.set_ylabel("time, logarithmic")
    axes.set_ylim(shortest / 3, longest * 3)


def _styles(items: Sequence[Trace] | Sequence[Curve]) -> list[dict[str, Any]]:
    """Return each contestant's colour and marker: bright ones for steps, black and grey for baselines."""
    steps = zip(itertools.cycle(STEP_COLOURS), itertools.cycle(MARKERS), strict=False)
    others = zip(itertools.cycle(OTHER_COLOURS), itertools.cycle(MARKERS[3:] + MARKERS[:3]), strict=False)
    styles = [next(others if item.baseline else steps) for item in items]
    return [{"color": colour, "marker": marker} for colour, marker in styles]


def _marker(style: dict[str, Any]) -> dict[str, Any]:
    """Return the style of a scatter plot's marker, hollow for baselines."""
    hollow = style["color"] in OTHER_COLOURS
    return {
        "marker": style["marker"],
        "edgecolors": style["color"],
        "facecolors": "none" if hollow else style["color"],
    }
