"""What runs on recorded spaces come to: figures of each, and the tables of ``benchmark.py``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.search.cases import NEAR, Case
from tuner import __version__

BUDGETS = (25, 50, 100, 200)
"""Evaluations after which the best time is shown."""
SHARES = {"near": NEAR, "nearest": 1.01}
"""What is counted: evaluations until a time is within so much of the best."""
AFTER = 2000
"""Results after which the time of a suggestion is measured."""
MISSED = 1e9
"""Evaluations of a run that never came near, to be compared."""


def figures_of(trajectory: list[float], best: float) -> dict[str, Any]:
    """Return the best time after each evaluation, and when it was how near the best of all."""
    return {
        "trajectory": trajectory,
        **{
            name: next((i + 1 for i, t in enumerate(trajectory) if t <= share * best), None)
            for name, share in SHARES.items()
        },
        "fractions": [best / trajectory[min(b, len(trajectory)) - 1] for b in BUDGETS],
    }


def summarise(runs: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    near, nearest = ([run[name] or np.inf for run in runs] for name in SHARES)
    fractions = np.array([run["fractions"] for run in runs])
    return {
        "runs": len(runs),
        "to_5_percent": float(np.median(near)),
        "to_5_percent_p90": float(np.quantile(near, 0.9, method="lower")),
        "to_1_percent": float(np.median(nearest)),
        "to_1_percent_p90": float(np.quantile(nearest, 0.9, method="lower")),
        "hit_rate": float(np.mean([n <= trials for n in near])),
        "fraction_median": np.median(fractions, axis=0).tolist(),
        "fraction_p10": np.quantile(fractions, 0.1, axis=0).tolist(),
        "ms": float(np.mean([run["ms"] for run in runs])),
    }


def result_of(runs: list[dict[str, Any]], recorded: list[Case], trials: int) -> dict[str, Any]:
    """Return what the runs of one sampler say, by space and in all."""
    by_space: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_space.setdefault(run["space"], []).append(run)
    spaces = {name: summarise(of_space, trials) for name, of_space in by_space.items()}
    cases = {case.name: case for case in recorded}
    scores = [
        score(np.concatenate(cases[name].times), [run["trajectory"] for run in of_space], trials)
        for name, of_space in by_space.items()
    ]
    return {
        "headline": float(np.median([s["to_5_percent"] for s in spaces.values()])),
        "score": float(np.mean(scores)),
        "all": summarise(runs, trials),
        "spaces": spaces,
    }


def print_table(spaces: dict[str, dict[str, Any]], whole: dict[str, Any], shown: list[int]) -> None:
    wide = max(map(len, spaces), default=5)
    heads = "".join(f"{f'at {b}':>15}" for b in shown)
    print(f"{'space':{wide}}{'to 5 %':>8}{'p90':>7}{'hit':>6}{heads}{'ms':>7}")
    for name, s in [*spaces.items(), ("all runs", whole)]:
        pairs = zip(s["fraction_median"], s["fraction_p10"], strict=True)
        cells = "".join(f"{m:>8.3f} /{p:.3f}" for (m, p), _ in zip(pairs, shown, strict=False))
        p90, hit = number(s["to_5_percent_p90"]), f"{100 * s['hit_rate']:.0f}%"
        print(f"{name:{wide}}{number(s['to_5_percent']):>8}{p90:>7}{hit:>6}{cells}{s['ms']:>7.1f}")


def print_result(result: dict[str, Any], cold: dict[str, Any], shown: list[int]) -> None:
    """Print the runs of a sampler, and how they compare with those that were not taught, if these are given."""
    print_table(result["spaces"], result["all"], shown)
    medians = [s["to_1_percent"] for s in result["spaces"].values()]
    print(f"median over spaces of each space's median to 5 %: {number(result['headline'])}")
    print(
        f"the same to 1 %: {number(float(np.median(medians)))}; "
        f"9 of 10 runs: {number(result['all']['to_1_percent_p90'])}"
    )
    if not cold:
        print(f"score: {result['score']:.2f}")
        return
    before = {name: min(cold["spaces"][name]["to_5_percent"], MISSED) for name in result["spaces"]}
    ratios = {name: min(s["to_5_percent"], MISSED) / before[name] for name, s in result["spaces"].items()}
    worst = max(ratios, key=lambda name: ratios[name])
    untaught = number(float(np.median(list(before.values()))))
    print(f"untaught, on the same spaces: {untaught}; worst: {ratios[worst]:.2f} of it on {worst}")


def in_a_line(sampler: str, result: dict[str, Any], ms: float | None) -> str:
    """Return what a sampler's runs come to, with the time of a suggestion after many results if that is known."""
    taught = "".join(
        f"; taught by {count} {number(one['headline'])}" for count, one in result.get("taught", {}).items()
    )
    whole = result["all"]
    return (
        f"{sampler}: to 5 % {number(result['headline'])} evaluations (median over spaces), hit "
        f"{whole['hit_rate']:.0%}, 9 of 10 runs {number(whole['to_5_percent_p90'])}{taught}; "
        f"score {result['score']:.2f}" + (f"; {ms:.1f} ms a suggestion after {AFTER} results" if ms else "")
    )


def compare(sampler: str, first: str, runs: list[dict[str, Any]], trials: int) -> None:
    """Print the ratio of a sampler's evaluations to those of the first, on the same spaces with the same seeds."""
    for kind, share in SHARES.items():
        counts = {(r["sampler"], r["space"], r["seed"]): r[kind] or 1.5 * trials for r in runs}
        ratios: dict[str, list[float]] = {}
        for (name, space, seed), count in counts.items():
            if name == sampler:
                ratios.setdefault(space, []).append(np.log(count / counts[first, space, seed]))
        rng = np.random.default_rng(0)
        drawn = [np.mean([rng.choice(r, len(r)).mean() for r in ratios.values()]) for _ in range(1000)]
        low, high = np.exp(np.quantile(drawn, [0.025, 0.975]))
        ratio = np.exp(np.mean([np.mean(r) for r in ratios.values()]))
        print(
            f"{sampler}: to {share - 1:.0%} {ratio:.3f} of the evaluations of {first}, "
            f"95 %: {low:.3f} to {high:.3f}"
        )


def stopping_table(runs: list[dict[str, Any]], names: list[str]) -> None:
    """Print what stopping saves and loses, for each noise floor and patience."""
    wide = max(map(len, names), default=5)
    for index, rule in enumerate(runs[0]["stops"]):
        floor = rule["noise_floor"]
        print(f"\nnoise floor {100 * floor:g} %, {rule['patience']} proposals in a row")
        heads = (
            f"{'stopped after':>15}{'earliest':>10}{'latest':>8}{'saved':>7}{'same best':>11}{'> floor':>9}"
        )
        print(f"{'space':{wide}}{heads}{'mean loss':>11}{'p90':>8}{'worst':>8}")
        for name in [*names, "all runs"]:
            stops = [run["stops"][index] for run in runs if name in (run["space"], "all runs")]
            trials, losses = [stop["trials"] for stop in stops], [stop["loss"] for stop in stops]
            saved = 1 - sum(trials) / sum(stop["of"] for stop in stops)
            counts = (
                f"{sum(loss <= 0 for loss in losses)}/{len(losses)}",
                sum(loss > floor for loss in losses),
            )
            late = 100 * np.mean(losses), 100 * np.quantile(losses, 0.9, method="higher"), 100 * max(losses)
            print(
                f"{name:{wide}}{np.median(trials):>15.1f}{min(trials):>10}{max(trials):>8}{saved:>7.0%}"
                f"{counts[0]:>11}{counts[1]:>9}{late[0]:>9.2f} %{late[1]:>6.2f} %{late[2]:>6.2f} %"
            )


def number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def runs_of_others(file: Path, recorded: list[Case]) -> list[dict[str, Any]]:
    """Return the runs that another program has made on these recordings."""
    cases = {case.name: case for case in recorded}
    return [
        {**run, "taught": 0, **figures_of(run["trajectory"], cases[run["space"]].best)}
        for run in json.loads(file.read_text())
        if run["space"] in cases
    ]


def print_heading(given: argparse.Namespace, cases: list[Case]) -> None:
    compile_s, measure_s = given.seconds
    first = "a random one first" if given.first == "random" else "the default first"
    how = f"batches of {given.batch}"
    if given.compilers:
        how = f"{given.compilers} compilers, {compile_s:g} s to compile and {measure_s:g} s to time"
    print(
        f"kernel-tune {__version__}: {given.seeds} seeds from {given.first_seed}, {how}, {first}"
        + (f", taught by {given.warm} trials each of others" if given.taught else "")
    )
    for case in cases:
        sure = np.concatenate(case.times)
        near = int(np.sum(sure <= NEAR * case.best))
        print(
            f"  {case.name}: {len(sure)} configurations, {int(np.isnan(sure).sum())} fail, {near} within 5 %"
        )


Times = NDArray[np.float64]
CUTOFF = 0.95


def of_random_order(times: Times, count: int) -> Times:
    """Return the expected best after 1 to ``count`` draws without replacement; a failure has the median time."""
    ranked = np.sort(np.where(np.isnan(times), np.nanmedian(times), times))
    size = len(ranked)
    worse = size - np.arange(1, size, dtype=float)  # than each but the last
    none_better, expected = np.ones(size - 1), np.empty(min(count, size))
    for drawn in range(len(expected)):
        none_better *= np.maximum(worse - drawn, 0.0) / (size - drawn)
        expected[drawn] = ranked[0] + np.diff(ranked) @ none_better
    return expected


def score(times: Times, trajectories: Sequence[Sequence[float]], count: int) -> float:
    """Return how far runs on a space are between random order and the best, on average over a budget: the score of

    Willemsen et al., "A methodology for comparing optimization algorithms for auto-tuning", Future Generation Computer
    Systems 159, 2024. The budget ends where random order is expected to be within 5 % of the way from the median to the
    best, here at the latest with the evaluations of the runs. Score 0 is random order, 1 is the best at once.

    Args:
        times: of all of its configurations, not a number for a failure.
        trajectories: of each run the best time after each evaluation, infinite before the first; one that ends early
            has found the best.
        count: evaluations of a run, at most.
    """
    best, middle = float(np.nanmin(times)), float(np.nanmedian(times))
    expected = of_random_order(times, count)
    reached = np.flatnonzero(expected <= middle - CUTOFF * (middle - best))
    budget = int(reached[0]) + 1 if len(reached) else len(expected)
    found = np.full((len(trajectories), budget), best)
    for row, trajectory in zip(found, trajectories, strict=True):
        part = np.array(trajectory[:budget])
        row[: len(part)] = np.where(np.isinf(part), middle, part)
    gap = expected[:budget] - best
    of_mean = (expected[:budget] - found.mean(axis=0))[gap > 0] / gap[gap > 0]
    return float(of_mean.mean()) if len(of_mean) else 1.0
