"""What each parameter is worth: importance, the effect of each value, and configurations as lines.

By an additive model of the logarithm of the time, fitted to the trials of one variant. It gives every tried value of
every parameter one term, and adds them up; a term says by which factor a value changes the time while the other
parameters stay. It is fitted by ridge regression with the penalty that predicts best when each trial is left out in
turn. The raw means of a search would mislead: a sampler tries good values together.

A parameter's importance is Pratt's measure (Pratt 1987; Thomas, Hughes and Zumbo 1998): the covariance of its term with
the logarithm of the time, as a share of that one's variance. The shares add up to what the model explains; what is left
is interaction and noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.core.model import Configuration, Trial, Value, value_text
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


FEWEST_TRIALS = 20
"""Timed trials of a variant below which its parameters are not compared."""
MOST_VALUES, MOST_TERMS = 50, 200
"""Values of a parameter beyond which it is left out, and those of all parameters together: memory and time grow with
them."""
PENALTIES = tuple(float(value) for value in np.logspace(-3, 4, 29))
SIGMAS = 1.96
"""Standard errors to each side of a 95 % interval."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effect:
    """What a value of a parameter does to the time, compared with the winner's value."""

    value: Value
    trials: int
    """That have this value."""
    best_ns: float
    """The fastest of them."""
    factor: float
    """Time over the time with the winner's value, all else equal, by the model."""
    low: float
    high: float


@dataclass(frozen=True)
class ParameterWorth:
    """A parameter's importance, and the effect of each value that was tried."""

    name: str
    importance: float
    """Share of the variance of the logarithm of the time, from 0 to 1."""
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Worth:
    """What the parameters of a variant are worth."""

    variant: str
    parameters: tuple[ParameterWorth, ...]
    """The most important first."""
    trials: int
    explained: float
    """Share of the variance that the model predicts of trials that it has not seen; 0 where it predicts nothing."""


def levels(trials: Sequence[Trial], variant: str) -> dict[str, list[Value]]:
    """Return the tried values of a variant's parameters, sorted; those with one or very many values are left out."""
    tried: dict[str, dict[Value, None]] = {}
    for trial in trials:
        if trial.configuration.variant == variant:
            for name, value in trial.configuration.parameters:
                tried.setdefault(name, {})[value] = None
    kept: dict[str, list[Value]] = {}
    for name, values in tried.items():
        if 1 < len(values) <= min(MOST_VALUES, MOST_TERMS - sum(map(len, kept.values()))):
            kept[name] = sorted(values, key=_order)
    return kept


def _order(value: Value) -> tuple[bool, float, str]:
    return (True, 0.0, value) if isinstance(value, str) else (False, value, "")


def worth(trials: Sequence[Trial], best: Configuration) -> Worth | None:
    """Return what the parameters of the winner's variant are worth; None if too few trials tell.

    Args:
        trials: verified and timed.
        best: the winner, with whose values the others are compared.
    """
    own = [trial for trial in trials if trial.configuration.variant == best.variant]
    tried = levels(own, best.variant)
    if len(own) < FEWEST_TRIALS or not tried:
        return None
    values = [trial.configuration.values for trial in own]
    columns = [(name, value) for name, all_values in tried.items() for value in all_values]
    coded = np.array([[float(row.get(name) == value) for name, value in columns] for row in values])
    logs = np.log([float(trial.time_ns or 0.0) for trial in own])
    if not np.var(logs):
        return None
    fit = _Fit.of(coded, logs)
    parameters = []
    for name in tried:
        chosen = [i for i, column in enumerate(columns) if column[0] == name]
        effects = tuple(fit.effect(coded, own, columns, i, chosen, best.values.get(name)) for i in chosen)
        parameters.append(ParameterWorth(name, fit.share(chosen), effects))
    parameters.sort(key=lambda one: (-one.importance, one.name))
    return Worth(best.variant, tuple(parameters), len(own), fit.explained)


@dataclass(frozen=True)
class _Fit:
    """Ridge regression on centred columns."""

    centred: Floats
    logs: Floats
    coefficients: Floats
    covariance: Floats
    explained: float

    @classmethod
    def of(cls, coded: Floats, logs: Floats) -> _Fit:
        centred, left = coded - coded.mean(axis=0), logs - logs.mean()
        eigenvalues, vectors = np.linalg.eigh(centred.T @ centred)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        rotated = centred @ vectors
        projected = rotated.T @ left
        best: tuple[float, float] | None = None
        for penalty in PENALTIES:
            residuals = left - rotated @ (projected / (eigenvalues + penalty))
            leverage = 1 / len(logs) + (rotated**2 / (eigenvalues + penalty)).sum(axis=1)
            error = float(np.mean((residuals / np.maximum(1 - leverage, 1e-6)) ** 2))
            best = min(best or (error, penalty), (error, penalty))
        assert best is not None  # there is a penalty
        error, penalty = best
        inverse = (vectors / (eigenvalues + penalty)) @ vectors.T
        explained = max(0.0, 1 - error / float(np.mean(left**2)))
        return cls(centred, left, inverse @ (centred.T @ left), error * inverse, explained)

    def share(self, chosen: Sequence[int]) -> float:
        """Return Pratt's measure of the parameter that has these columns."""
        term = self.centred[:, chosen] @ self.coefficients[chosen]
        return max(0.0, float(term @ self.logs / (self.logs @ self.logs)))

    def effect(
        self,
        coded: Floats,
        trials: Sequence[Trial],
        columns: Sequence[tuple[str, Value]],
        index: int,
        chosen: Sequence[int],
        best: Value | None,
    ) -> Effect:
        """Return a column's contrast with the winner's value, with its 95 % interval."""
        contrast = np.zeros(len(columns))
        contrast[index] += 1
        for other in chosen:
            if columns[other][1] == best:
                contrast[other] -= 1
        middle = float(contrast @ self.coefficients)
        spread = SIGMAS * math.sqrt(max(0.0, float(contrast @ self.covariance @ contrast)))
        rows = np.flatnonzero(coded[:, index]).tolist()
        factors = np.exp([middle, middle - spread, middle + spread])
        fastest = min(trials[row].time_ns or 0.0 for row in rows)
        return Effect(columns[index][1], len(rows), fastest, *map(float, factors))
