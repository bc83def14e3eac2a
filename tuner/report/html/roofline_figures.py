"""Times under the ceilings of a GPU: the roofline of Williams, Waterman and Patterson (2009)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from tuner.core.groups import grouped
from tuner.database.records import StoredWinner
from tuner.report.html.drawing import (
    ACCENT,
    DIM,
    SECOND,
    THIRD,
    Figure,
    figure,
    inert,
    logarithmic,
)
from tuner.report.html.subjects import TunedProblem
from tuner.report.plots import MEASURED, MEMORY, ceilings
from tuner.report.tables import duration, percent


def roofline(problem: TunedProblem) -> Figure | None:
    """Return the roofline of one problem, with its winner and its default; None without a winner or its work."""
    if problem.winner is None:
        return None
    winner, run = problem.winner.winner, problem.run
    times = [("the winner", problem.winner, winner.time_ns)]
    if winner.default_trial_id != winner.trial_id and winner.default_time_ns:
        times.append(("the default", problem.winner, winner.default_time_ns))
    return _figure("roofline", "Roofline", times, ceilings(run.gpu, [run.problem.dtype], run.calibration))


def rooflines(winners: Sequence[StoredWinner]) -> list[Figure]:
    """Return a roofline for each GPU that has several winners."""
    by_gpu = grouped(winners, lambda stored: stored.run.gpu.name)
    figures = []
    for number, (name, own) in enumerate(by_gpu.items()):
        times = [(str(one.run.problem), one, one.winner.time_ns) for one in own]
        rates = ceilings(own[0].run.gpu, dict.fromkeys(one.run.problem.dtype for one in own), None)
        if len(own) > 1:
            figures.append(_figure(f"roofline-{number}", f"Roofline of {name}", times, rates))
    return [one for one in figures if one]


def _figure(
    key: str, title: str, times: Sequence[tuple[str, StoredWinner, float]], rates: Mapping[str, float]
) -> Figure | None:
    xs, ys, texts = [], [], []
    for name, stored, time_ns in times:
        metrics, slower = stored.metrics, time_ns / stored.winner.time_ns
        if metrics.tflops and metrics.gbytes_per_s:  # the database knows the problem's work
            xs.append(metrics.tflops * 1e3 / metrics.gbytes_per_s)
            ys.append(metrics.tflops / slower)
            text = f"{name}: {duration(time_ns)}, {ys[-1]:.4g} TFLOP/s"
            if share := metrics.speed_of_light:
                text += f", {percent(share / slower)} of the speed of light"
            texts.append(inert(text, 200))
    steep = {name: rate for name, rate in rates.items() if name.startswith(MEMORY)}
    flat = {name: rate for name, rate in rates.items() if name not in steep}
    if not xs or not flat:
        return None
    highest, widest = max(flat.values()), max(steep.values(), default=0.0)
    ridge = highest / widest if widest else xs[0]
    ends = [min(*xs, ridge) / 3, max(*xs, ridge) * 5]
    drawn = figure(x="FLOP per byte", y="TFLOP/s", showlegend=True)
    for name, rate in rates.items():
        line = {"color": DIM, "dash": "dash" if name.endswith(MEASURED) else "solid"}
        if name in steep:
            line["color"], label = THIRD, f"{rate / 1e9:.4g} GB/s"
            along, flops = [ends[0], highest / rate], [ends[0] * rate, highest]
        else:
            start = rate / widest if widest else ends[0]
            label, along, flops = f"{rate / 1e12:.4g} TFLOP/s", [start, ends[1]], [rate, rate]
        label, heights = inert(f"{name} {label}"), [one / 1e12 for one in flops]
        drawn.add_trace(go.Scatter(x=along, y=heights, mode="lines", name=label, line=line, hoverinfo="name"))
    one_problem = len({id(stored) for _, stored, _ in times}) == 1
    marker = {"size": 10, "color": [ACCENT, SECOND][: len(xs)] if one_problem else ACCENT}
    points = go.Scatter(x=xs, y=ys, text=texts, mode="markers", marker=marker, name="times", showlegend=False)
    drawn.add_trace(points.update(hovertemplate="%{text}<extra></extra>"))
    heights = [*ys, *(one / 1e12 for one in flat.values())]
    drawn.update_xaxes(**logarithmic(ends)).update_yaxes(**logarithmic(heights))
    said = "Rate over arithmetic intensity: work and bytes are the least that a problem takes. Lines are what the GPU "
    said += "can do by its data sheet; dashed, what was measured on it."
    return Figure(key, title, said, drawn, 380, wide=not one_problem)
