"""What the figures of ``plot.py`` share: an SVG that is the same again, an axis by factors, and numbers as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.report.plots import check_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@contextmanager
def sheet(
    path: Path, height: float, rows: int = 1, grid: str = "both", **shape: Any
) -> Iterator[Sequence[Axes]]:
    """Return panels below each other, and write them at the end, on white whatever is behind them."""
    check_plot(path)
    from matplotlib import style
    from matplotlib.figure import Figure

    # Text stays text, which is small and can be searched; identifiers come from the salt, not from chance.
    plain = {
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "kernel-tune",
        "font.size": 9.5,
    }
    with style.context(["default", plain]):
        figure = Figure(figsize=(9.0, height), layout="constrained", facecolor="white")
        panels = figure.subplots(rows, 1, squeeze=False, **shape)[:, 0]
        for axes in panels:
            axes.grid(axis=grid, color="#dddddd", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        yield panels
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def logarithmic(axes: Axes, low: float, high: float) -> None:
    """Scale the y axis by factors, with plain numbers beside it: more of them where the range is narrow."""
    digits = (1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)
    ticks = [digit * 10.0**power for power in range(-3, 7) for digit in digits]
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in ticks if low <= tick <= high])
    axes.set_yticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def signed(value: float, _: Any = None) -> str:
    return f"{value:+.3g} %".replace("-", "\u2212") if abs(value) > 1e-9 else "0"


def three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def raised(text: str) -> str:
    """Write 2^10 as one does by hand."""
    return re.sub(r"\^(\d+)", lambda power: power[1].translate(RAISED), text)


def in_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"
