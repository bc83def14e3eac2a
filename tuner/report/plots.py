"""Figures as PNG or SVG, where matplotlib is installed: times side by side, and time against error."""

from __future__ import annotations

import importlib.util
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.core.errors import TunerError, UsageError
from tuner.core.files import whole_file
from tuner.report.tables import duration, time_unit
from tuner.report.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000")
"""Told apart with any common colour blindness (Okabe and Ito 2008); the first is the one that matters."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LOG_FROM = 20.0
"""Largest over smallest time above which bars on a linear axis would hide the short ones."""
MAX_LABEL = 90
"""Characters of a label; a longer one is cut."""


@dataclass(frozen=True)
class Bar:
    """One contestant's time for one problem, in nanoseconds, with the ends of its interval."""

    contestant: str
    time_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class BarGroup:
    """The bars of one problem."""

    label: str
    bars: Sequence[Bar]
    speed_of_light_ns: float = 0.0
    """The least time that the hardware allows; 0 where it is not known."""


@dataclass(frozen=True)
class ParetoPoint:
    """A verified configuration: how long it takes, and how far its result is from the true one."""

    series: str
    """What it is drawn and named with: its dtype."""
    time_ns: float
    error: float
    """Norm of the difference from the true result over the norm of that."""
    front: bool = False
    """Nothing is both faster and more accurate."""
    winner: bool = False


def check_plot(path: Path) -> None:
    """Make sure, before anything is measured, that a figure can be drawn there.

    Raises:
        UsageError: another kind of file, no such folder, or nothing can be written there.
        TunerError: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}", f"the file's name ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}", "make it first")
    try:
        _try_writing(path)
    except OSError as error:
        problem = f"--plot {path}: cannot write there: {error.strerror}"
        raise UsageError(problem, "choose a file in a folder of your own") from None
    if importlib.util.find_spec("matplotlib") is None:
        raise TunerError("figures need matplotlib", "in the checkout: pip install '.[plot]'")


def _try_writing(path: Path) -> None:
    """Open a file for writing and leave it as it was: permissions alone do not tell for every file system and user."""
    new = not path.exists()
    with path.open("ab"):
        pass
    if new:
        path.unlink()


def plot_times(groups: Sequence[BarGroup], title: str, path: Path) -> None:
    """Draw the times of several contestants, problem by problem, as horizontal bars.

    Each bar ends in its 95 % interval; a black mark is the speed of light of its problem.

    Args:
        groups: from top to bottom; a contestant has the same colour in all of them.
        title: above the figure.
        path: a ``.png`` or ``.svg`` file, which is replaced.

    Raises:
        UsageError, TunerError: as :func:`check_plot`.
    """
    names = list(dict.fromkeys(bar.contestant for group in groups for bar in group.bars))
    times = [bar.time_ns for group in groups for bar in group.bars]
    logarithmic = bool(times) and max(times) > LOG_FROM * min(times)
    unit, size = time_unit(min(times) if logarithmic else max(times, default=1.0))
    bars = sum(len(group.bars) for group in groups)
    with sheet(path, 9.0, 1.6 + 0.3 * bars + 0.3 * len(groups)) as (figure, (axes,)):
        position, ticks = 0.0, []
        for group in groups:
            first = position
            for bar in group.bars:
                _bar(axes, position, bar, COLOURS[names.index(bar.contestant) % len(COLOURS)], size)
                position += 1.0
            ticks.append((first + position - 1.0) / 2)
            if group.speed_of_light_ns > 0:
                axes.vlines(
                    group.speed_of_light_ns / size,
                    first - 0.5,
                    position - 0.5,
                    colors="black",
                    linestyles="dashed",
                )
            position += 0.8
        if logarithmic:
            make_logarithmic(axes, "x")
        axes.margins(x=0.12)
        axes.set_yticks(ticks, ["\n".join(textwrap.wrap(short(group.label), 32)) for group in groups])
        axes.invert_yaxis()
        axes.set_xlabel(f"time ({unit}){', logarithmic' if logarithmic else ''}; shorter is better")
        axes.set_title(short(title))
        _times_legend(figure, names, any(group.speed_of_light_ns > 0 for group in groups))


def _bar(axes: Axes, position: float, bar: Bar, colour: str, size: float) -> None:
    low, high = max(0.0, bar.time_ns - bar.low_ns), max(0.0, bar.high_ns - bar.time_ns)
    axes.barh(
        position,
        bar.time_ns / size,
        height=0.86,
        color=colour,
        xerr=[[low / size], [high / size]],
        error_kw={"elinewidth": 1.2, "capsize": 3, "ecolor": "#333333"},
    )
    axes.annotate(
        duration(bar.time_ns),
        (bar.high_ns / size, position),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
    )


def _times_legend(figure: Figure, names: Sequence[str], limit: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(color=COLOURS[i % len(COLOURS)], label=short(name)) for i, name in enumerate(names)
    ]
    if limit:
        handles.append(Line2D([], [], color="black", linestyle="dashed", label="speed of light"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False)


def plot_pareto(
    points: Sequence[ParetoPoint],
    path: Path,
    title: str = "",
    max_error: float | None = None,
) -> None:
    """Draw time against error on logarithmic axes, with the Pareto front as a staircase.

    Args:
        points: at least one; those with ``front`` are joined and drawn strongly, the others faintly. An error of 0 is
            drawn at the bottom of the figure.
        path: a ``.png`` or ``.svg`` file, which is replaced.
        title: above the figure.
        max_error: the largest error allowed, drawn as a line.

    Raises:
        UsageError, TunerError: as :func:`check_plot`.
    """
    unit, size = time_unit(min((point.time_ns for point in points), default=1.0))
    positive = [point.error for point in points if point.error > 0]
    lowest = min(positive, default=1e-16) / 2

    def xy(drawn: Sequence[ParetoPoint]) -> tuple[list[float], list[float]]:
        return [one.time_ns / size for one in drawn], [max(one.error, lowest) for one in drawn]

    with sheet(path, 8.0, 5.5) as (_, (axes,)):
        for i, name in enumerate(dict.fromkeys(point.series for point in points)):
            own = [point for point in points if point.series == name]
            _scatter_series(axes, own, xy, COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
        front = sorted((one for one in points if one.front), key=lambda one: (one.time_ns, one.error))
        if front:
            axes.step(
                *xy(front), where="post", color="#333333", linewidth=1.0, label="Pareto front", zorder=1
            )
        for point in points:
            if point.winner:
                ring = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.6}
                axes.scatter(*xy([point]), s=190, label="winner", zorder=4, **ring)
        if max_error is not None:
            label = f"error allowed: {max_error:g}"
            axes.axhline(max_error, color="#d55e00", linestyle="dashed", label=label)
        make_logarithmic(axes, "x")
        make_logarithmic(axes, "y")
        axes.set_xlabel(f"time ({unit}), logarithmic; further left is faster")
        axes.set_ylabel("error relative to the true result, logarithmic")
        axes.set_title(short(title))
        axes.legend(frameon=False)


def _scatter_series(
    axes: Axes,
    points: Sequence[ParetoPoint],
    xy: Callable[[Sequence[ParetoPoint]], tuple[list[float], list[float]]],
    colour: str,
    marker: str,
) -> None:
    """Draw the points of one series, those on the front strongly; the legend names it once."""
    on_front = [point for point in points if point.front]
    faint = [point for point in points if not point.front]
    name = short(points[0].series)
    common = {"color": colour, "marker": marker}
    axes.scatter(*xy(faint), s=14, alpha=0.35, label=None if on_front else name, zorder=2, **common)
    axes.scatter(*xy(on_front), s=55, alpha=1.0, label=name if on_front else None, zorder=3, **common)


def make_logarithmic(
    axes: Axes, which: str, steps: Sequence[float] = (), text: Callable[[float], str] = "{:g}".format
) -> None:
    """Scale one axis by powers of ten, with plain numbers beside it; times, whose range is narrow, get 2 and 5, too.

    Args:
        axes: the panel.
        which: ``x`` or ``y``.
        steps: between powers of ten; by default of an ``x`` axis 1, 2 and 5, for that has times, else 1.
        text: what is written beside a value.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=steps or ((1.0, 2.0, 5.0) if which == "x" else (1.0,))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def short(text: str) -> str:
    """Return a label that fits, without what a renderer would choke on."""
    text = printable(text)
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 3]}..."


@contextmanager
def sheet(
    path: Path,
    width: float,
    height: float,
    rows: int = 1,
    grid: str = "x",
    heights: Sequence[float] | None = None,
) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Return an empty figure of panels below each other, and write it at the end; equal content gives an equal SVG.

    Args:
        path: a ``.png`` or ``.svg`` file, which is replaced.
        width: in inches, as the height.
        height: of all panels together.
        rows: panels, which share what is to the left and right.
        grid: ``x``, ``y`` or ``both``: the lines behind the data.
        heights: of the panels, relative to each other; with these they share nothing.

    Raises:
        UsageError, TunerError: as :func:`check_plot`.
    """
    check_plot(path)
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "kernel-tune"}
    with style.context(["default", plain]):  # whatever the user's own settings are
        # Not by pyplot: nothing global is left behind, and no display is looked for.
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(rows, 1, squeeze=False, sharex=heights is None, height_ratios=heights)[:, 0]
        for axes in panels:
            axes.grid(axis=grid, color="#dddddd")
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels
        kind = path.suffix.lower().removeprefix(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn as a box
            with whole_file(path, replace=True) as partial:
                figure.savefig(
                    partial, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
                )
