"""Several problems and GPUs in one table and figure: the best of each, and how it compares with the default."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.database.records import StoredWinner
from tuner.report.html.figure import Figure, FigureTable
from tuner.report.tables import duration, percent, problem_text, speedup, throughput

HEADS = (
    *("kernel", "problem", "GPU", "timed", ">time", ">rate", ">of the speed of light"),
    *("versus the default", "source"),
)
MOST_DRAWN = 30
"""Problems of the figure; the table has all."""


def overview(winners: Sequence[StoredWinner]) -> Figure:
    """Return the best of each problem and GPU beside its default."""
    rows = []
    for stored in winners:
        run, winner, metrics = stored.run, stored.winner, stored.metrics
        compared = speedup(winner.ratio, winner.ratio_low, winner.ratio_high, winner.verdict)
        what = run.problem.kernel, problem_text(run.problem), run.gpu.name, run.conditions
        speed = duration(winner.time_ns), throughput(metrics), percent(metrics.speed_of_light)
        rows.append((*what, *speed, compared, "recording" if run.replayed else "measured"))
    drawn = [one for one in winners if one.winner.ratio][:MOST_DRAWN]
    several = len({one.run.gpu.name for one in drawn}) > 1
    rest = (
        f" Drawn are {len(drawn)} of {len(winners)}; the table has all." if len(drawn) < len(winners) else ""
    )
    return Figure(
        "overview",
        "overview",
        "The best of each problem",
        f"How many times as fast as the default configuration, with 95 % intervals; 1 is as fast as the default. "
        f"Hollow points are not surely faster.{rest}",
        f"The best of {len(winners)} problems, compared with their defaults.",
        FigureTable(HEADS, rows),
        {
            "entries": [
                {
                    "kernel": one.run.problem.kernel,
                    "problem": problem_text(one.run.problem),
                    "gpu": one.run.gpu.name if several else "",
                    "time_ns": one.winner.time_ns,
                    "ratio": one.winner.ratio,
                    "low": one.winner.ratio_low,
                    "high": one.winner.ratio_high,
                    "verdict": one.winner.verdict,
                }
                for one in drawn
            ]
        },
    )
