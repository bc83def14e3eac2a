"""Tables of replayed searches: how soon each was near the best time, and what stopping saves and loses."""

from __future__ import annotations

from typing import Any

import numpy as np

BUDGETS = (25, 50, 100, 200)
"""Evaluations after which the best time is shown."""


def summarise(runs: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    near = [run["near"] or np.inf for run in runs]
    fractions = np.array([run["fractions"] for run in runs])
    return {
        "runs": len(runs),
        "to_5_percent": float(np.median(near)),
        "to_5_percent_p90": float(np.quantile(near, 0.9, method="lower")),
        "hit_rate": float(np.mean([n <= trials for n in near])),
        "fraction_median": np.median(fractions, axis=0).tolist(),
        "fraction_p10": np.quantile(fractions, 0.1, axis=0).tolist(),
        "ms": float(np.mean([run["ms"] for run in runs])),
    }


def number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def table(runs: list[dict[str, Any]], samplers: list[str], names: list[str], trials: int) -> dict[str, Any]:
    shown = [b for b in BUDGETS if b <= trials]
    wide = max(map(len, names), default=5)
    result: dict[str, Any] = {}
    for sampler in samplers:
        print(f"\n{sampler}")
        heads = "".join(f"{f'at {b}':>15}" for b in shown)
        print(f"{'space':{wide}}{'to 5 %':>8}{'p90':>7}{'hit':>6}{heads}{'ms':>7}")
        spaces = {
            n: summarise([r for r in runs if (r["sampler"], r["space"]) == (sampler, n)], trials)
            for n in names
        }
        whole = summarise([r for r in runs if r["sampler"] == sampler], trials)
        headline = float(np.median([s["to_5_percent"] for s in spaces.values()]))
        for name, s in [*spaces.items(), ("all runs", whole)]:
            pairs = zip(s["fraction_median"], s["fraction_p10"], strict=True)
            cells = "".join(f"{m:>8.3f} /{p:.3f}" for (m, p), _ in zip(pairs, shown, strict=False))
            p90, hit = number(s["to_5_percent_p90"]), f"{100 * s['hit_rate']:.0f}%"
            print(f"{name:{wide}}{number(s['to_5_percent']):>8}{p90:>7}{hit:>6}{cells}{s['ms']:>7.1f}")
        print(f"median over spaces of each space's median to 5 %: {number(headline)}")
        result[sampler] = {"headline": headline, "all": whole, "spaces": spaces}
    return result


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
