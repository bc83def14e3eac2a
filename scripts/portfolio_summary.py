"""What is asked of a portfolio that ``portfolio.py`` measures, and which of it is missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.harness import quantiles

LIMIT_S = 900.0
"""For a portfolio."""
ASKED = {
    "median": 1.02,
    "p95": 1.10,
    "worst": 1.25,
    "cubins": 32,
    "seconds": LIMIT_S,
    "invalid": 0,
    "unmatched": 0,
}
LEAST = {"held_out": 40, "trials": 120, "time_s": 10.0}
"""Of a measurement that counts: fewer problems, or poorer searches to compare with, prove nothing."""


def summary(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the held-out problems, and which of them miss what is asked."""
    rows = list(data["problems"].values())
    timed = [row for row in rows if "error" not in row]
    if not timed:
        return {"held_out": len(rows), "invalid": len(rows), "missed": ["invalid"]}
    figures = {
        "held_out": len(rows),
        **quantiles([row["over_tuned"] for row in timed]),
        "invalid": len(rows) - len(timed),
        "unmatched": sum(row["match"] != "portfolio" for row in timed),
        "slower_than_default": sum(row["slower_than_default"] for row in timed),
        "layouts": {
            layout: quantiles([row["over_tuned"] for row in timed if row["layout"] == layout])
            for layout in sorted({row["layout"] for row in timed})
        },
        "over_best_kept": quantiles([row.get("over_best_kept", 1.0) for row in timed]),
        "said": quantiles([row["expected"] or 1.0 for row in timed]),
        "cubins": data["cubins"],
        "seconds": data["seconds"],
        "trials": data["how"]["trials"],
        "time_s": data["how"]["time_s"],
    }
    missed = [name for name, most in ASKED.items() if not figures[name] <= most]  # nor is NaN enough
    missed += [name for name, least in LEAST.items() if not figures[name] >= least]
    missed += ["slower_than_default"] if figures["slower_than_default"] else []
    return {**figures, "missed": missed}
