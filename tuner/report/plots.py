"""Figures as PNG or SVG, where matplotlib is installed: what all of them share."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.core.errors import TunerError, UsageError
from tuner.core.files import whole_file
from tuner.report.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000")
"""Told apart with any common colour blindness (Okabe and Ito 2008); the first is the one that matters."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MAX_LABEL = 90
"""Characters of a label; a longer one is cut."""
LINE_PT = 12.0
"""Points from one line of small text to the next."""
LETTER_PT = 5.2
"""Width of one of its letters, generously."""
ASIDE_PT = 16.0
"""From a point to its name."""


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


def draw_bar(
    axes: Axes, at: float, length: float, interval: tuple[float, float], colour: str, text: str
) -> None:
    """Draw a horizontal bar with its interval, and a text behind both.

    Args:
        axes: the panel.
        at: where the bar stands.
        length: in the unit of the axis, as the ends of the interval; equal ends are not drawn.
        interval: its ends.
        colour: of the bar.
        text: its time.
    """
    low, high = interval
    axes.barh(at, length, height=0.8, color=colour)
    if low < high:
        ends = [[max(0.0, length - low)], [max(0.0, high - length)]]
        axes.errorbar(length, at, xerr=ends, color="#333333", capsize=3, linewidth=1.2)
    write(axes, text, (max(length, high), at), (5, 0), va="center", fontsize=8)


def write(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Write a text beside a point of the data, so many points away, in the style of an annotation of matplotlib."""
    axes.annotate(short(text), at, xytext=offset, textcoords="offset points", **style)


def name_points(figure: Figure, axes: Axes, names: Sequence[tuple[float, float, str, str]]) -> None:
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
    for column, to_the_left in columns_of_names(
        xs, [len(name[2]) * LETTER_PT for name in names], scale * bounds.x1
    ):
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


def columns_of_names(
    xs: Sequence[float], widths: Sequence[float], end: float
) -> list[tuple[list[int], bool]]:
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
