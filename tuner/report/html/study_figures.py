"""What the search has found: its convergence; by Optuna importances, slices, parallel coordinates, contours.

Optuna gets a study made for this, not the run's own: times in a unit, the parameters of one variant, and names and
values whose tags are none (:func:`tuner.report.html.drawing.inert`), for it hands them to Plotly as they are.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import optuna
import plotly.graph_objects as go
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from plotly.colors import sample_colorscale

from tuner.core.model import Trial, Value, value_text
from tuner.report.html.drawing import (
    ACCENT,
    DIM,
    SCALE,
    SECOND,
    THIRD,
    Figure,
    figure,
    inert,
    is_number,
    line_at,
    logarithmic,
)
from tuner.report.html.subjects import TunedProblem
from tuner.report.tables import duration, row_number, time_unit

# Optuna would import matplotlib, too, which takes most of a second, and fails where its settings are wrong.
_UNUSED = "matplotlib" not in sys.modules
if _UNUSED:
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
from optuna.visualization import (  # noqa: E402
    plot_contour,
    plot_parallel_coordinate,
    plot_param_importances,
    plot_slice,
)

if _UNUSED:
    del sys.modules["matplotlib"]

FAR = 10.0
"""Times the best, above which the height of a point says nothing that matters."""
FEWEST_TRIALS = 20
"""Timed trials of a variant below which its parameters are not compared."""
MOST_VALUES = 50
"""Values of a parameter beyond which it is no axis."""
MOST_FITTED, MOST_DRAWN, MOST_LINES = 2000, 1500, 240
"""Trials that importances, slices and lines are made of: of more, evenly from the fastest to the slowest."""
MOST_POINTS = 3000
"""Of the convergence: more take seconds to draw."""
MOST_SLICES, MOST_AXES = 5, 7
"""Parameters: the most important ones."""
TARGET = 0.1
"""Share of the trials that PED-ANOVA takes for the fast ones."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Optuna's logs and warnings about experimental parts to itself."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


class _Study(optuna.Study):
    """A study that hands out its trials as they are: Optuna's figures copy all of them for each parameter."""

    def __init__(self) -> None:
        storage = InMemoryStorage()
        name = storage.get_study_name_from_id(storage.create_new_study([StudyDirection.MINIMIZE]))
        super().__init__(name, storage)

    def get_trials(
        self,
        deepcopy: bool = False,  # noqa: ARG002
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        return super().get_trials(False, states)


def study_figures(problem: TunedProblem) -> list[Figure]:
    """Return the figures of a search that it has trials enough for."""
    timed = sorted(problem.timed, key=lambda trial: trial.time_ns or 0.0)
    if not timed:
        return []
    with _quiet():
        return [_convergence(problem, [one.time_ns or 0.0 for one in timed]), *_parameters(problem, timed)]


def _convergence(problem: TunedProblem, timed: Sequence[float]) -> Figure:
    """Return the times in their order with the best so far, failures, the default and the speed of light.

    Args:
        problem: whose run it is.
        timed: times that count, the shortest first.
    """
    trials, (unit, size) = problem.trials, time_unit(timed[0])
    counted = set(map(id, problem.timed))
    numbers = [one.number + 1 for one in trials]
    times = [(one.time_ns or 0.0) / size if id(one) in counted else math.inf for one in trials]
    best = [least if least < math.inf else None for least in itertools.accumulate(times, min)]
    every = -(-len(trials) // MOST_POINTS)
    points = [i for i, time in enumerate(times) if time < math.inf][::every]
    said = f"{{y:.4g}} {unit}<extra></extra>"
    marker = {"color": ACCENT, "opacity": 0.55, "size": 6 if len(trials) < MOST_POINTS else 4}
    line = {"shape": "hv", "color": SECOND, "width": 2.2}
    drawn = figure(
        go.Scatter(x=[numbers[i] for i in points], y=[times[i] for i in points], mode="markers", marker=marker,
                   text=[row_number(trials[i].id) for i in points], name="trial",
                   hovertemplate=f"trial %{{text}}: %{said}"),
        go.Scatter(x=numbers, y=best, mode="lines", line=line, name="best so far",
                   hovertemplate=f"best so far %{said}"),
        x="trials", y=f"time ({unit})", showlegend=True,
    )  # fmt: skip
    marks = {"speed of light": (problem.speed_of_light_ns, THIRD)}
    marks["default"] = problem.default.time_ns if problem.default else None, DIM
    known = {name: (ns, colour) for name, (ns, colour) in marks.items() if ns}
    for name, (ns, colour) in known.items():
        label = f"{name} {duration(ns)}"
        drawn.add_trace(line_at(ns / size, [0, max(numbers)], label, colour, label=label))
    edge = max([FAR * timed[0], *(1.2 * ns for ns, _ in known.values())])
    beyond = sum(ns > edge for ns in timed)
    if beyond >= len(timed) / 2:
        edge, beyond = timed[-1], 0
    shown = [*(ns for ns in timed if ns <= edge), *(ns for ns, _ in known.values())]
    axis = logarithmic([ns / size for ns in shown], above=len(trials) > len(timed))
    failed = [one for one in trials if not one.status.ranked]
    crossed = failed[:: -(-len(failed) // MOST_POINTS) or 1]
    top = [10 ** axis["range"][1]] * len(crossed)
    cross = {"symbol": "x-thin", "size": 7, "line": {"width": 1.6, "color": "#d0455b"}}
    drawn.add_trace(
        go.Scatter(x=[one.number + 1 for one in crossed], y=top, mode="markers", marker=cross, cliponaxis=False,
                   text=[f"{row_number(one.id)}: {one.status}" for one in crossed], name="failed",
                   hovertemplate="trial %{text}<extra></extra>")
    )  # fmt: skip
    drawn.update_yaxes(**axis)
    caption = f"Each trial in its order, and the best so far. {len(failed) or 'None'} of {len(trials)} trials failed"
    caption += ": the crosses above." if failed else "."
    caption += f" The points are one in {every}." if every > 1 else ""
    caption += f" {beyond} slower ones are above the figure; a double click shows them." if beyond else ""
    caption += f" {problem.left_out} further trials are left out." if problem.left_out else ""
    return Figure("convergence", "Convergence", caption, drawn, 380)


# -- parameters


def _parameters(problem: TunedProblem, timed: Sequence[Trial]) -> list[Figure]:
    """Return what the parameters of one variant do to the time: of the winner's, else of the fastest trial's."""
    best = (problem.winner.winner if problem.winner else timed[0]).configuration
    own = [one for one in timed if one.configuration.variant == best.variant]
    tried: dict[str, dict[Value, None]] = {}
    for trial in own:
        for name, value in trial.configuration.parameters:
            tried.setdefault(inert(name), {})[_choice(value)] = None
    several = {name: values for name, values in tried.items() if 1 < len(values) <= MOST_VALUES}
    choices = {n: sorted(v, key=lambda one: (isinstance(one, str), one)) for n, v in several.items()}
    if len(own) < FEWEST_TRIALS or not choices:
        return []
    dists = {name: CategoricalDistribution(values) for name, values in choices.items()}
    fitted = _study_of(_thinned(own, MOST_FITTED), dists)
    evaluator = PedAnovaImportanceEvaluator(target_quantile=TARGET)
    names = list(get_param_importances(fitted, evaluator=evaluator))
    figures = [_importance(plot_param_importances(fitted, evaluator), best.variant, len(own))]
    near = [one for one in own if (one.time_ns or 0.0) <= FAR * (own[0].time_ns or 0.0)]
    study = _study_of(_thinned(near, MOST_DRAWN), dists)
    names = [name for name in names if len({one.params.get(name) for one in study.trials}) > 1]
    if names:
        some = _thinned(near[MOST_LINES // 2 :], MOST_LINES // 2)
        lines = _study_of([*near[: MOST_LINES // 2], *some], dists)
        figures += [_slices(study, names[:MOST_SLICES], best.variant), _parallel(lines, names[:MOST_AXES])]
    return [*figures, _contour(study, names[:2])] if len(names) > 1 else figures


def _thinned(trials: Sequence[Trial], most: int) -> Sequence[Trial]:
    return trials[:: -(-len(trials) // most)] if trials else trials


def _choice(value: Value) -> Value:
    return value if is_number(value) else inert(value_text(value))


def _study_of(trials: Sequence[Trial], dists: Mapping[str, BaseDistribution]) -> optuna.Study:
    """Return a study of trials whose value is the time over that of the first, the fastest."""
    best = trials[0].time_ns or 1.0
    study = _Study()
    for trial in trials:
        values = {inert(name): _choice(value) for name, value in trial.configuration.parameters}
        own = {name: value for name, value in values.items() if name in dists}
        value, distributions = (trial.time_ns or 0.0) / best, {name: dists[name] for name in own}
        study.add_trial(create_trial(value=value, params=own, distributions=distributions))
    return study


OVER_BEST = "time / best"


def _importance(drawn: go.Figure, variant: str, count: int) -> Figure:
    shares = drawn.data[0].x if drawn.data else ()
    drawn.update_traces(marker_color=ACCENT, hoverinfo="skip", hovertemplate=None)
    drawn.update_xaxes(title_text="importance", range=[0, 1.18 * max(shares, default=1.0)])
    drawn.update_yaxes(title_text="", tickmode="linear")
    said = f"How much its value decides if one of {count} trials of {variant} is of the fastest {100 * TARGET:.0f} %: "
    said += "PED-ANOVA; the sum is 1. It cannot tell parameters apart that the search varied together."
    height = 90 + 22 * len(shares)
    return Figure("importance", "What each parameter is worth", said, drawn, height, wide=False)


def _slices(study: optuna.Study, names: Sequence[str], variant: str) -> Figure:
    drawn = plot_slice(study, list(names), target_name=OVER_BEST)
    marker = {"color": ACCENT, "showscale": False, "size": 5, "opacity": 0.6, "line": {"width": 0}}
    drawn.update_traces(marker=marker, hovertemplate="%{x}: %{y:.3f}<extra></extra>")
    for trace in drawn.data:  # a text has its quotes
        trace.x = [value.strip("'") for value in trace.x]
    drawn.for_each_xaxis(
        lambda axis: axis.update(categoryarray=[one.strip("'") for one in axis.categoryarray])
    )
    drawn.update_yaxes(**logarithmic([one.value or 1.0 for one in study.trials]))
    said = f"Timed trials of {variant} up to {FAR:.0f} times the best, by the values of its most important parameters. "
    said += "The others differ, so compare the lowest points; tune ablate measures one value against another."
    return Figure("slices", "Times with each value", said, drawn, 340, least=170 * len(names))


def _contour(study: optuna.Study, names: Sequence[str]) -> Figure:
    drawn = plot_contour(study, list(names), target_name=OVER_BEST)
    drawn.update_xaxes(type="category", range=None).update_yaxes(type="category", range=None)
    field, z = drawn.data[0], np.array(drawn.data[0].z)
    rows, columns = (~np.isnan(z).all(axis=axis) for axis in (1, 0))  # without the margins of numbers
    field.update(x=np.array(field.x)[columns], y=np.array(field.y)[rows], z=z[rows][:, columns])
    field.update(colorscale=SCALE, reversescale=False, zmin=1, zmax=min(3.0, float(np.nanmax(z))))
    drawn.update_traces(selector={"type": "scatter"}, marker={"size": 5, "color": "white"}, hoverinfo="skip")
    said = "The fastest trial of each pair of values, interpolated where there is none; dots are tried pairs."
    return Figure("contour", "The two most important together", said, drawn, 340, wide=False)


def _parallel(study: optuna.Study, names: Sequence[str]) -> Figure:
    drawn = plot_parallel_coordinate(study, list(names), target_name=OVER_BEST)
    drawn.update_annotations(font_color=None).update_layout(plot_bgcolor=None)
    content = drawn.to_plotly_json()  # an object of Plotly's takes 3 ms for each line
    for trace in content["data"]:
        if trace["mode"] == "lines":  # the first axis is the time, 0 the fastest
            trace["line"] |= {"color": sample_colorscale(SCALE, trace["y"][0])[0], "width": 1.3}
            trace["opacity"] = 0.7
        else:
            trace["marker"] |= {"colorscale": SCALE, "reversescale": False}
    content["data"].sort(key=lambda trace: -(trace["y"][0] or 0.0))  # the fastest above the others
    said = f"{len(study.trials)} trials, the fastest and some of the others, a line each."
    least = 100 * (len(names) + 1)
    return Figure("parallel", "Configurations and their times", said, content, 380, least=least)
