"""A ladder as figures: under the roofline of the GPU, and as times and rates over the sizes of a sweep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.core.conditions import Mode
from tuner.report.plots import COLOURS, MARKERS, MEMORY, ceilings, make_logarithmic, sheet, short
from tuner.report.tables import COMPUTE_BOUND_FROM, duration, si
from tuner.studies.ladder import Ladder, Level, StepComparison, size_text, sizes_text
from tuner.studies.ladder_report import flavour, series_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP_COLOURS, OTHER_COLOURS = COLOURS[:6], (COLOURS[7], COLOURS[6], "#7a5230")
GREY = "#666666"
NARROW = 100.0
"""Longest over shortest time below which the axis has numbers between the powers of ten."""
DOTS = (":", "-.", (0, (1, 3)), (0, (4, 1, 1, 1)))


@dataclass(frozen=True)
class Series:
    """A contestant's points, from the smallest size to the largest."""

    name: str
    xs: Sequence[float]
    """Arithmetic intensity in FLOP a byte, or sizes."""
    ys: Sequence[float]
    """FLOP/s, or times in nanoseconds."""
    rates: Sequence[float] = ()
    """In the unit that the figure names; of the figure over sizes alone."""
    baseline: bool = False


def figure_files(path: Path) -> tuple[Path, Path]:
    """Return where :func:`draw` puts the roofline and the times over sizes: beside ``path``, by its name."""
    roofline, sizes = (path.parent / f"{path.stem}-{what}{path.suffix}" for what in ("roofline", "sizes"))
    return roofline, sizes


def draw(ladder: Ladder, path: Path) -> list[Path]:
    """Draw ``NAME-roofline`` and, of several sizes, ``NAME-sizes``, beside ``path``.

    Args:
        ladder: its results.
        path: a ``.png`` or ``.svg`` file by whose name the figures are called.

    Returns:
        The files; none where nothing was timed.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    levels = [level for level in ladder.levels if level.comparisons]
    if not levels:
        return []
    levels.sort(key=lambda level: math.prod(level.sizes.values()))
    timed = list(
        dict.fromkeys(str(comparison.conditions) for level in levels for comparison in level.comparisons)
    )
    title = f"{ladder.kernel.name} on {ladder.gpu.name}; {timed[0] if len(timed) == 1 else 'mode by size'}"
    title += " [replayed]" if ladder.replayed else ""
    roofline, sizes = figure_files(path)
    written = []
    if shown := _under_roofline(ladder, levels):
        written.append(roofline)
        of = sizes_text(levels[-1].sizes)
        plot_roofline(shown, *_ceilings(ladder, levels), f"{title}; large points: {of}", roofline)
    if len(levels) > 1:
        written.append(sizes)
        _draw_sizes(ladder, levels, title, sizes)
    return written


# -- under the roofline


def _under_roofline(ladder: Ladder, levels: Sequence[Level]) -> list[Series]:
    """Return every step at all sizes, and every baseline at the largest."""
    shown = []
    steps = {step.name for step in ladder.steps}
    for name, timings in series_of(ladder, levels).items():
        timed = [one for one in timings if one is not None]
        if not timed:
            continue
        baseline = name not in steps or timed[-1][1].configuration is None
        points = [
            (comparison.roof.intensity, comparison.roof.flops / timing.time_ns * 1e9)
            for comparison, timing in timed
            if comparison.roof.flops > 0 and comparison.roof.bytes > 0
        ]
        if points:
            xs, ys = zip(*points[-1:] if baseline else points, strict=True)
            shown.append(Series(name, xs, ys, baseline=baseline))
    return shown


def _ceilings(ladder: Ladder, levels: Sequence[Level]) -> tuple[tuple[str, float] | None, dict[str, float]]:
    """Return the ceilings of the GPU, bytes and FLOP a second by their names; of the memory the measured, if it was."""
    comparisons = [comparison for level in levels for comparison in level.comparisons]
    calibration = next((comparison.calibration for comparison in comparisons if comparison.calibration), None)
    rates = ceilings(ladder.gpu, dict.fromkeys(one.problem.dtype for one in comparisons), calibration)
    memory = {name: rate for name, rate in rates.items() if name.startswith(MEMORY)}
    warm = all(comparison.conditions.mode is Mode.WARM for comparison in comparisons)
    cached = ", no limit to what is in the caches" if warm else ""
    bandwidths = [(f"{name}: {si(rate, 'B/s')}{cached}", rate) for name, rate in memory.items()]
    peaks = {f"{name}: {si(rate, 'FLOP/s')}": rate for name, rate in rates.items() if name not in memory}
    return next(reversed(bandwidths), None), peaks


def plot_roofline(
    shown: Sequence[Series],
    bandwidth: tuple[str, float] | None,
    peaks: Mapping[str, float],
    title: str,
    path: Path,
) -> None:
    """Draw contestants under the ceilings of a GPU (Williams, Waterman, Patterson 2009), on logarithmic axes.

    Args:
        shown: at least one; the last point of each is large, the others are faint.
        bandwidth: of the memory: its name, and bytes a second.
        peaks: of the arithmetic units: FLOP a second by name.
        title: above the figure.
        path: a ``.png`` or ``.svg`` file, which is replaced.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    xs = [x for one in shown for x in one.xs]
    ys = [y for one in shown for y in one.ys]
    highest = max(peaks.values(), default=max(ys))
    ridge = highest / bandwidth[1] if bandwidth else max(xs)
    left, right = min(xs) / 6, 4 * max(*xs, ridge)
    low, high = min(ys) / 3, 3 * max(*ys, highest)
    dots = itertools.cycle(DOTS)
    with sheet(path, 9.0, 7.0, grid="both") as (figure, (axes,)):
        make_logarithmic(axes, "x", (1.0, 2.0, 5.0) if right < NARROW * left else (1.0,))
        make_logarithmic(axes, "y", text=lambda value: si(value, ""))
        axes.set(xlim=(left, right), ylim=(low, high))
        for one, style in zip(shown, _styles(shown), strict=True):
            axes.plot(one.xs, one.ys, color=style["color"], linewidth=0.8, alpha=0.45)
            if len(one.xs) > 1:
                axes.scatter(one.xs[:-1], one.ys[:-1], s=14, alpha=0.35, **_marker(style))
            axes.scatter(one.xs[-1:], one.ys[-1:], s=60, zorder=4, label=short(one.name), **_marker(style))
        if bandwidth is not None:
            ends = [bandwidth[1] * left, highest]
            axes.plot([left, ridge], ends, color=GREY, linewidth=1.6, zorder=1, label=short(bandwidth[0]))
        for name, rate in peaks.items():
            start = max(left, rate / bandwidth[1]) if bandwidth else left
            line = {"color": GREY, "linestyle": next(dots), "linewidth": 1.6, "zorder": 1}
            axes.plot([start, right], [rate, rate], label=short(name), **line)
        axes.set_xlabel("arithmetic intensity (FLOP a byte), logarithmic")
        axes.set_ylabel("FLOP/s, logarithmic")
        axes.set_title(short(title), fontsize=11)
        _name_below(figure, axes)


def _name_below(figure: Figure, axes: Axes) -> None:
    """Write what a panel's lines and points are below a figure."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8.5
    )


# -- over the sizes


def _draw_sizes(ladder: Ladder, levels: Sequence[Level], title: str, path: Path) -> None:
    last = levels[-1].comparisons[0]
    arithmetic = last.roof.flops >= COMPUTE_BOUND_FROM * last.roof.bytes

    def series(name: str, points: Sequence[tuple[Level, StepComparison, float]]) -> Series:
        """Return the line through these times in nanoseconds."""
        roofs = [(comparison.roof, time_ns) for _, comparison, time_ns in points]
        return Series(
            name,
            [level.sizes[ladder.swept[0]] for level, _, _ in points],
            [time_ns for _, time_ns in roofs],
            [roof.flops / ns * 1e-3 if arithmetic else roof.bytes / ns for roof, ns in roofs],
        )

    shown = []
    for name, timings in series_of(ladder, levels).items():
        timed = [(level, *one) for level, one in zip(levels, timings, strict=True) if one is not None]
        if timed:
            line = series(name, [(level, comparison, timing.time_ns) for level, comparison, timing in timed])
            shown.append(replace(line, baseline=timed[-1][2].configuration is None))
    limits = [series(name, points) for name, points in _lights(levels).items()]
    names = list(ladder.swept)
    alike = all(len(set(level.sizes.values())) == 1 for level in levels)
    axis = " = ".join(names) if alike else f"{names[0]} (with {', '.join(names[1:])})"
    plot_sizes(shown, limits, "TFLOP/s" if arithmetic else "GB/s", axis, title, path)


def _lights(levels: Sequence[Level]) -> dict[str, list[tuple[Level, StepComparison, float]]]:
    """Return the speed of light of each kind of problem, where it is known, by its name in the figure."""
    lights: dict[str, list[tuple[Level, StepComparison, float]]] = {}
    for level in levels:
        for comparison in level.comparisons:
            kind = flavour(comparison, level.comparisons)
            name = f"speed of light ({kind})" if kind else "speed of light"
            if light_ns := comparison.roof.speed_of_light_ns:
                lights.setdefault(name, []).append((level, comparison, light_ns))
    return lights


def plot_sizes(
    shown: Sequence[Series], limits: Sequence[Series], unit: str, axis: str, title: str, path: Path
) -> None:
    """Draw time and rate over the sizes, one panel each, with a line for each contestant.

    Args:
        shown: steps in solid lines, baselines in dashed ones.
        limits: the speed of light and the like, in thin dotted lines.
        unit: of the rates.
        axis: what the sizes are.
        title: above the figure.
        path: a ``.png`` or ``.svg`` file, which is replaced.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    with sheet(path, 9.0, 8.4, rows=2, grid="both") as (figure, (times, rates)):
        for one, style in zip(shown, _styles(shown), strict=True):
            line = {
                **style,
                "linestyle": "dashed" if one.baseline else "solid",
                "linewidth": 1.4,
                "markersize": 4.5,
                "markerfacecolor": _marker(style)["facecolors"],
            }
            times.plot(one.xs, one.ys, label=short(one.name), **line)
            rates.plot(one.xs, one.rates, **line)
        for limit, dots in zip(limits, itertools.cycle(DOTS), strict=False):
            line = {"color": GREY, "linestyle": dots, "linewidth": 1.2}
            times.plot(limit.xs, limit.ys, label=short(limit.name), **line)
            rates.plot(limit.xs, limit.rates, **line)
        times_ns = [time_ns for one in shown for time_ns in one.ys]
        narrow = max(times_ns) < NARROW * min(times_ns)
        make_logarithmic(times, "y", (1.0, 2.0, 5.0) if narrow else (), duration)
        times.set_ylabel("time, logarithmic")
        times.set_ylim(min(times_ns) / 3, max(times_ns) * 3)
        rates.set_ylabel(unit)
        rates.set_ylim(bottom=0)
        rates.set_xscale("log", base=2)
        sizes = sorted({int(value) for one in shown for value in one.xs})
        ticks = sizes[:: max(1, math.ceil(len(sizes) / 12))]
        rates.set_xticks(ticks, [size_text(value) for value in ticks])
        rates.set_xticks([], minor=True)
        rates.set_xlabel(f"{axis}, logarithmic")
        times.set_title(short(title), fontsize=11)
        _name_below(figure, times)


def _styles(items: Sequence[Series]) -> list[dict[str, Any]]:
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
