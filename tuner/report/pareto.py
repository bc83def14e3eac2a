"""The Pareto front of time and error over the dtypes of a problem: as a table, as JSON, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tuner.core.model import value_text
from tuner.report.configurations import Texts
from tuner.report.plots import COLOURS, MARKERS, make_logarithmic, sheet, short
from tuner.report.tables import duration, percent, picked, show_rows, show_text, time_unit, trial_identity
from tuner.report.terminal import printable
from tuner.tuning.accuracy import Choice, Comparison, Point


def show_front(comparison: Comparison, texts: Texts = Texts()) -> None:  # noqa: B008 - nothing changes it
    """Print the front, the confirmed winners of dtypes that are not on it, and which of them is the answer."""
    bound = f"{comparison.max_error:g}"
    timed = f"; timed {comparison.conditions}" if comparison.conditions else ""
    click.echo()
    show_text(f"{title(comparison)}: time against error, at most {bound} allowed{timed}", "", "  ")
    head = f"configuration{texts.note}"
    rows = [
        {
            "dtype": point.problem.dtype,
            "time": duration(point.time_ns),
            "confirmed": duration(point.confirmed_ns),
            "error": error_text(point.error),
            "note": ", ".join(_marks(comparison, point)),
            "trial": point.trial.id,
            head: texts.cell(point.trial.configuration),
        }
        for point in (*comparison.front, *comparison.others)
    ]
    if rows:
        show_rows(rows, right=("time", "confirmed", "error", "trial"), stacked=(head,))
    for problem, reason in comparison.skipped:
        show_text(f"{problem.dtype}: {reason}", "  ", "    ")
    show_text(_answer(comparison), "  ", "    ")


def title(comparison: Comparison) -> str:
    """Return kernel, sizes and options, without a dtype."""
    truth = comparison.truth
    values = {**truth.sizes, **truth.options}
    return printable(
        " ".join([truth.kernel, *(f"{name}={value_text(value)}" for name, value in values.items())])
    )


def error_text(error: float) -> str:
    """Return an error in the one notation in which errors of all sizes can be compared at a glance."""
    return f"{error:.2e}"


def _marks(comparison: Comparison, point: Point) -> list[str]:
    choice = comparison.choice
    marks = {
        "winner": choice is not None and point is choice.winner,
        "tied": choice is not None and point in choice.tied,
        "too inaccurate": point.error > comparison.max_error,
        "not on the front": point not in comparison.front,
    }
    return [mark for mark, holds in marks.items() if holds]


def _answer(comparison: Comparison) -> str:
    choice = comparison.choice
    if choice is None:
        nearest = min(comparison.points, key=lambda point: point.error, default=None)
        text = f"no confirmed winner is within an error of {comparison.max_error:g}"
        if nearest is None:
            return text
        return f"{text}; the least error was {error_text(nearest.error)} ({nearest.problem.dtype})"
    winner = choice.winner
    text = (
        f"winner: {winner.problem.dtype}, {duration(winner.confirmed_ns)} in a fresh process, "
        f"error {error_text(winner.error)}"
    )
    return text + _ties(choice)


def _ties(choice: Choice) -> str:
    if not choice.tied:
        return ""
    names = ", ".join(point.problem.dtype for point in choice.tied)
    return f"; as fast as {names} within the noise ({percent(choice.noise)}), and more accurate"


def front_as_json(comparison: Comparison, *, complete: bool) -> dict[str, Any]:
    """Return the comparison for programs.

    Args:
        comparison: of the dtypes.
        complete: whether all dtypes are in it; where the run was stopped no winner is named.
    """
    choice = comparison.choice if complete else None
    return {
        "truth": comparison.truth.to_json(),
        "max_error": comparison.max_error,
        "mode": comparison.conditions.mode if comparison.conditions else None,
        "regime": comparison.conditions.regime if comparison.conditions else None,
        "noise_floor": comparison.noise_of(comparison.front[0].time_ns) if comparison.front else None,
        "complete": complete,
        "winner": _point(comparison, choice.winner) if choice else None,
        "tied": [_point(comparison, point) for point in choice.tied] if choice else [],
        "front": [_point(comparison, point) for point in comparison.front],
        "skipped": [{"dtype": problem.dtype, "reason": reason} for problem, reason in comparison.skipped],
    }


def _point(comparison: Comparison, point: Point) -> dict[str, Any]:
    return {
        "dtype": point.problem.dtype,
        "dtypes": dict(point.problem.dtypes),
        **trial_identity(point.trial),
        **picked(point, "time_ns confirmed_ns error"),
        "allowed": point.error <= comparison.max_error,
    }


def plot_front(comparison: Comparison, path: Path) -> None:
    """Draw every verified trial of every dtype on logarithmic axes, with the front as a staircase, and the winner.

    An error of 0 is drawn at the bottom of the figure.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    points, front = comparison.points, comparison.front
    unit, size = time_unit(min((point.time_ns for point in points), default=1.0))
    lowest = min((point.error for point in points if point.error > 0), default=1e-16) / 2

    def xy(drawn: Sequence[Point]) -> tuple[list[float], list[float]]:
        return [one.time_ns / size for one in drawn], [max(one.error, lowest) for one in drawn]

    with sheet(path, 8.0, 5.5) as (_, (axes,)):
        for i, dtype in enumerate(dict.fromkeys(point.problem.dtype for point in points)):
            own = [point for point in points if point.problem.dtype == dtype]
            strong = [point for point in own if any(point is one for one in front)]
            faint = [point for point in own if not any(point is one for one in front)]
            style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            name = short(dtype)
            axes.scatter(*xy(faint), s=14, alpha=0.35, label=None if strong else name, zorder=2, **style)
            axes.scatter(*xy(strong), s=55, label=name if strong else None, zorder=3, **style)
        if front:
            stairs = sorted(front, key=lambda one: (one.time_ns, one.error))
            line = {"color": "#333333", "linewidth": 1.0, "label": "Pareto front"}
            axes.step(*xy(stairs), where="post", zorder=1, **line)
        if choice := comparison.choice:
            ring = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.6}
            axes.scatter(*xy([choice.winner]), s=190, label="winner", zorder=4, **ring)
        allowed = f"error allowed: {comparison.max_error:g}"
        axes.axhline(comparison.max_error, color="#d55e00", linestyle="dashed", label=allowed)
        make_logarithmic(axes, "x")
        make_logarithmic(axes, "y")
        axes.set_xlabel(f"time ({unit}), logarithmic; further left is faster")
        axes.set_ylabel("error relative to the true result, logarithmic")
        axes.set_title(short(title(comparison)))
        axes.legend(frameon=False)
