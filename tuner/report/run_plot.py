"""``tune run --plot``: a run as one figure, how the best time fell and what the winner was raced against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.core.errors import TunerError
from tuner.core.files import temporary_folder
from tuner.core.model import Status, Trial
from tuner.core.stats import Ratio
from tuner.report.plots import COLOURS, MARKERS, make_logarithmic, sheet, short
from tuner.report.result_record import trajectory
from tuner.report.tables import duration, time_unit
from tuner.tuning.state import Finish, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 8
FAR = 10.0
"""Times the best time, above which the height of a point says nothing that matters."""
FAILED, FINALIST = COLOURS[5], "#bbbbbb"


RacedBar = tuple[str, float, Ratio | None]
"""A contestant of the final race and its time; of those that were compared with the winner, the ratio to its time."""


def plot_run(result: Result, path: Path) -> None:
    """Draw the trials in their order with the best so far, and below the winner beside what it was raced against.

    Raises:
        UsageError, TunerError: as :func:`tuner.report.plots.check_plot`.
    """
    run, light_ns = result.state.run, result.state.roof.speed_of_light_ns
    light_ns = light_ns if math.isfinite(light_ns) and result.state.roof.flops else 0.0
    bars = _bars(result.finish) if result.finish else []
    heights = [3.6, 0.9 + 0.3 * len(bars)] if bars else [3.6]
    with sheet(path, 9.0, sum(heights) + 0.8, len(heights), "both", heights) as (figure, panels):
        figure.suptitle(short(f"{run.problem} on {run.gpu.name}{' [replayed]' if run.replayed else ''}"))
        _draw_trials(panels[0], result.state.trials, light_ns)
        if bars:
            _draw_bars(panels[1], bars, light_ns)


def run_svg(result: Result) -> bytes:
    """Return the same figure as SVG; nothing where matplotlib is not installed, or does not start."""
    with temporary_folder() as folder, suppress(TunerError):
        plot_run(result, file := folder / "run.svg")
        return file.read_bytes()
    return b""


def _draw_trials(axes: Axes, trials: Sequence[Trial], light_ns: float) -> None:
    evaluations = trajectory(trials)
    most_ns = _drawn_up_to([one["time_ns"] for one in evaluations if one["time_ns"]])
    styles = {Status.OK: (COLOURS[4], MARKERS[0]), Status.SLOW: (COLOURS[6], MARKERS[2])}
    for status, (colour, marker) in styles.items():
        own = [one for one in evaluations if one["status"] == status and 0 < (one["time_ns"] or 0) <= most_ns]
        if own:
            numbers, times = [one["evaluation"] for one in own], [one["time_ns"] for one in own]
            style = {"color": colour, "marker": marker, "label": str(status)}
            axes.scatter(numbers, times, s=16, alpha=0.7, zorder=2, **style)
    edge = axes.get_xaxis_transform()
    if far := [one["evaluation"] for one in evaluations if (one["time_ns"] or 0) > most_ns]:
        label = f"> {duration(most_ns)}"
        axes.plot(far, [0.94] * len(far), "^", color=COLOURS[4], ms=4, transform=edge, label=label)
    failed = [one["evaluation"] for one in evaluations if not one["time_ns"]]
    if failed:  # along the upper edge, whatever the times are
        axes.plot(failed, [0.98] * len(failed), "x", color=FAILED, ms=5, transform=edge, label="failed")
    best = [(one["evaluation"], one["best_ns"]) for one in evaluations if one["best_ns"]]
    if best:
        axes.step(*zip(*best, strict=True), where="post", color=COLOURS[0], linewidth=2, label="best so far")
        if light_ns:
            axes.axhline(light_ns, color="black", linestyle="dashed", linewidth=1.2, label="speed of light")
        make_logarithmic(axes, "y", (1.0, 2.0, 5.0), duration)
        if math.isfinite(most_ns):
            axes.set_ylim(top=1.4 * most_ns)
    axes.margins(x=0.01)
    axes.set_xlabel("trial")
    axes.locator_params(axis="x", integer=True)  # no trial 2.5
    axes.set_ylabel("time, logarithmic")
    axes.legend(frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.14), fontsize=9)


def _drawn_up_to(times_ns: Sequence[float]) -> float:
    """Return a time beyond which trials are drawn at the upper edge; infinity if that would be none or most of them."""
    far_ns = FAR * min(times_ns, default=math.inf)
    beyond = sum(time_ns > far_ns for time_ns in times_ns)
    return far_ns if 0 < beyond < len(times_ns) / 2 else math.inf


def _bars(finish: Finish) -> list[RacedBar]:
    """Return the winner, the default, the best known before, and other finalists."""
    shown = [finish.winner.configuration]
    same = finish.default is not None and finish.default.configuration in shown
    bars: list[RacedBar] = [("winner: the default" if same else "winner", finish.time_ns, None)]
    compared = {
        "default": (finish.default, finish.default_ns, finish.ratio),
        "best known before": (finish.incumbent, finish.incumbent_ns, finish.versus_incumbent),
    }
    for name, (trial, time_ns, ratio) in compared.items():
        if trial and time_ns and trial.configuration not in shown:
            bars.append((name, time_ns, ratio))
            shown.append(trial.configuration)
    others = [time_ns for configuration, time_ns in finish.medians_ns if configuration not in shown]
    bars += [(f"finalist {number}", time_ns, None) for number, time_ns in enumerate(others, 2)]
    return bars[:MOST_BARS]


def _draw_bars(axes: Axes, bars: Sequence[RacedBar], light_ns: float) -> None:
    winner_ns = bars[0][1]
    unit, size = time_unit(winner_ns)
    style = {"textcoords": "offset points", "va": "center", "fontsize": 8}
    for row, (_, time_ns, ratio) in enumerate(bars):
        colour = COLOURS[0] if not row else COLOURS[5] if ratio else FINALIST
        length = end = time_ns / size
        times = f"{time_ns / winner_ns:.3f}x"
        axes.barh(row, length, height=0.8, color=colour)
        if ratio is not None and math.isfinite(ratio.high):
            low, end = (at * winner_ns / size for at in (ratio.low, ratio.high))
            ends = [[max(0.0, length - low)], [max(0.0, end - length)]]
            if low < end:
                axes.errorbar(length, row, xerr=ends, color="#333333", capsize=3, linewidth=1.2)
            times = f"{ratio.median:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"
        text = duration(time_ns) if time_ns == winner_ns else f"{duration(time_ns)}, {times}"
        axes.annotate(text, (max(length, end), row), xytext=(5, 0), **style)
    if light_ns:
        axes.axvline(light_ns / size, color="black", linestyle="dashed", linewidth=1.2)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, max(time_ns for _, time_ns, _ in bars) / size * 1.4)
    axes.set_xlabel(f"time ({unit}) in the final race; lines are 95 % intervals of the ratio to the winner")
