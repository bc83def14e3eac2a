"""What ``tune portfolio`` prints: its progress, and at its end what is kept and how it does."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.core.model import value_text
from tuner.report.tables import counted, show_line, show_text
from tuner.studies.portfolio import Built
from tuner.winners.portfolios import Portfolio

WORST = 5
"""Badly served problems that are listed."""


def show_built(built: Built) -> None:
    """Print what is kept of each computation, and how it does on problems that are left out."""
    for portfolio in built.portfolios:
        figures = figures_of(portfolio)
        kind = portfolio.problems[0]
        options = [f"{name}={value_text(value)}" for name, value in kind.options.items()]
        what = " ".join([kind.dtype, *options])
        members = counted(len(portfolio.members), "configuration")
        sizes = counted(len(portfolio.problems), "measured size")
        show_line(f"{kind.kernel} {what} on {portfolio.gpu.name}: {members} for {sizes}")
        kept = f"median {figures['kept_median']:.3f}, worst {figures['kept_worst']:.3f}"
        show_text(f"  the best kept, over the best timed: {kept}; allowed {portfolio.bound:g}", "", "    ")
        if figures["left_out_median"] is not None:
            out = (
                f"median {figures['left_out_median']:.3f}, 95 % {figures['left_out_p95']:.3f},"
                f" worst {figures['left_out_worst']:.3f}; expected: median {figures['expected_median']:.3f}"
            )
            show_text(f"  the chosen, where that size is left out: {out}", "", "    ")
        for row in figures["badly_served"]:
            sizes = " ".join(f"{name}={size}" for name, size in row["sizes"].items())
            show_text(f"    {row['slowdown']:.2f}  {sizes}")
    for problem, reason in built.untimed:
        show_line(f"not measured: {problem}: {reason}", err=True)
    show_line(f"{counted(built.cubins, 'cubin')}, with the defaults; tune bundle takes it along")


def built_as_json(built: Built) -> dict[str, Any]:
    """Return it for programs."""
    return {
        "portfolios": [
            {
                "kernel": portfolio.kernel.name,
                "gpu": portfolio.gpu.name,
                "dtypes": dict(portfolio.problems[0].dtypes),
                "options": dict(portfolio.problems[0].options),
                "bound": portfolio.bound,
                "members": [
                    {"variant": one.variant, "parameters": one.values} for one, _ in portfolio.members
                ],
                **figures_of(portfolio),
            }
            for portfolio in built.portfolios
        ],
        "cubins": built.cubins,
        "not_measured": [
            {"problem": problem.to_json(), "reason": reason} for problem, reason in built.untimed
        ],
    }


def figures_of(portfolio: Portfolio) -> dict[str, Any]:
    """Return slowdowns as factors: of the best kept, and of what is chosen where a size is left out."""
    fit = portfolio.fit
    left_out = [
        (float(slow), problem)
        for slow, problem in zip(np.exp2(fit.chosen), portfolio.problems, strict=True)
        if np.isfinite(slow)
    ]
    slowdowns = [slow for slow, _ in left_out]
    said = np.exp2(fit.said[np.isfinite(fit.said)])
    return {
        "sizes": len(portfolio.problems),
        "kept_median": float(np.median(fit.kept)),
        "kept_worst": float(np.max(fit.kept)),
        "left_out_median": float(np.median(slowdowns)) if slowdowns else None,
        "left_out_p95": float(np.quantile(slowdowns, 0.95)) if slowdowns else None,
        "left_out_worst": max(slowdowns) if slowdowns else None,
        "expected_median": float(np.median(said)) if len(said) else None,
        "badly_served": [
            {"sizes": dict(problem.sizes), "slowdown": slow}
            for slow, problem in sorted(left_out, key=lambda item: -item[0])[:WORST]
            if slow > portfolio.bound
        ],
    }
