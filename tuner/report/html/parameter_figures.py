"""What each parameter is worth: importance, the effect of each value, and configurations as lines."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core.model import Configuration, Trial, value_text
from tuner.report.html.effects import Worth, levels, worth
from tuner.report.html.subjects import Figure, TunedProblem
from tuner.report.tables import duration, percent

MOST_LINES = 400
"""Lines of the parallel coordinates: the fastest half as they are, and as many spread evenly over the others."""
MOST_PARAMETERS = 8
"""Parameters whose values are compared, and axes of the parallel coordinates: the most important ones."""
MOST_ROWS = 12
"""Configurations of the table beside them."""
WORTH_SHOWING = 0.005
"""Importance below which a parameter is named in the table alone."""
WEAK = 0.5
"""Share of the variance; where the model predicts less, the page says so."""


def parameter_figures(problem: TunedProblem) -> tuple[Figure | None, Figure | None, Figure | None]:
    """Return the importance of the parameters, the effects of their values, and the configurations as lines."""
    if problem.winner is None:
        return None, None, None
    best = problem.winner.winner.configuration
    fitted = worth(problem.timed, best)
    lines = _parallel(problem.timed, best, fitted)
    return (None, None, lines) if fitted is None else (_importance(fitted), _effects(fitted, best), lines)


def _importance(fitted: Worth) -> Figure:
    shown = [one for one in fitted.parameters if one.importance >= WORTH_SHOWING]
    first = ", ".join(f"{one.name} {percent(one.importance)}" for one in fitted.parameters[:3])
    weak = " That is little: interactions or noise matter more than single parameters."
    return Figure(
        "importance",
        "What each parameter is worth",
        f"Share of the differences in time that each parameter of {fitted.variant} explains: Pratt's measure in an "
        f"additive model of the logarithm of the time, over {fitted.trials} timed trials. The model predicts "
        f"{percent(fitted.explained)} of the variance of trials that it has not seen."
        + (weak if fitted.explained < WEAK else ""),
        f"The most important parameters: {first}.",
        ("parameter", ">share", ">values tried"),
        [(one.name, percent(one.importance), len(one.effects)) for one in fitted.parameters],
        {"parameter": [one.name for one in shown], "share": [one.importance for one in shown]},
        wide=False,
    )


def _effects(fitted: Worth, winner: Configuration) -> Figure:
    best = winner.values
    rows = []
    for one in fitted.parameters[:MOST_PARAMETERS]:
        for effect in one.effects:
            said = _change(effect.factor), f"{_change(effect.low)} .. {_change(effect.high)}"
            if effect.value == best.get(one.name):
                said = "the winner's", ""
            rows.append((one.name, value_text(effect.value), *said, effect.trials, duration(effect.best_ns)))
    shown = [one for one in fitted.parameters[:MOST_PARAMETERS] if one.importance >= WORTH_SHOWING]
    return Figure(
        "effects",
        "What another value would cost",
        "Time with each value, compared with the winner's (diamonds), all else equal, by the same model, even where "
        "that is not valid; lines are 95 % intervals. tune ablate measures it on the GPU.",
        f"The effects of the values of {', '.join(one.name for one in shown)}.",
        ("parameter", "value", ">time", ">95 % interval", ">trials", ">fastest"),
        rows,
        {
            "parameters": [
                {
                    "name": one.name,
                    "values": [value_text(effect.value) for effect in one.effects],
                    "best": [effect.value == best.get(one.name) for effect in one.effects],
                    "factor": [effect.factor for effect in one.effects],
                    "low": [effect.low for effect in one.effects],
                    "high": [effect.high for effect in one.effects],
                    "trials": [effect.trials for effect in one.effects],
                }
                for one in shown
            ]
        },
    )


def _change(factor: float) -> str:
    return f"{100 * (factor - 1):+.1f} %"


def _parallel(timed: Sequence[Trial], best: Configuration, fitted: Worth | None) -> Figure | None:
    """Return the winner's variant as lines; None if none of its parameters was varied."""
    own = [trial for trial in timed if trial.configuration.variant == best.variant]
    own.sort(key=lambda trial: trial.time_ns or 0.0)
    tried = levels(own, best.variant)
    names = ([one.name for one in fitted.parameters] if fitted else list(tried))[:MOST_PARAMETERS]
    if not names:
        return None
    half = MOST_LINES // 2
    others = own[half:]
    drawn = own[:half] + others[:: max(1, -(-len(others) // half))]
    values = [[trial.configuration.values.get(name) for name in names] for trial in drawn]
    which = f"All {len(own)} trials"
    if len(drawn) < len(own):
        which = f"{len(drawn)} of {len(own)} trials, the fastest and some of the others,"
    rows = [
        (trial.id, duration(trial.time_ns), *(value_text(value) for value in row if value is not None))
        for trial, row in zip(drawn[:MOST_ROWS], values, strict=False)
    ]
    return Figure(
        "parallel",
        "Configurations and their times",
        f"{which} of {best.variant}, a line each; the stronger its colour, the faster. The winner is the thick line. "
        "The axes are the most important parameters.",
        f"Parallel coordinates of {', '.join(names)} and the time.",
        (">trial", ">time", *names),
        rows,
        {
            "axes": [
                {"name": name, "values": [value_text(value) for value in tried[name]]} for name in names
            ],
            "lines": [
                [
                    tried[name].index(value)
                    for name, value in zip(names, row, strict=True)
                    if value is not None
                ]
                for row in values
            ],
            "time_ns": [trial.time_ns for trial in drawn],
            "trial": [trial.id for trial in drawn],
            "winner": next((i for i, trial in enumerate(drawn) if trial.configuration == best), None),
        },
    )
