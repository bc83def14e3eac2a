"""How a portfolio does at sizes that did not make it: ``portfolio.json``."""

from __future__ import annotations

from scripts.harness import quantiles
from scripts.page_figures.evidence import Rows, load, table


def held_out() -> str:
    """Return the figures of held-out problems, beside what is asked."""
    data = load("portfolio")
    figures, asked = data["summary"], data["asked"]
    rows: Rows = [["over 40 sizes that did not make it", "measured", "asked"]]
    for name, text in (("median", "median"), ("p95", "95th percentile"), ("worst", "worst")):
        rows.append([f"chosen over tuned by itself, {text}", f"{figures[name]:.3f}", f"{asked[name]:.2f}"])
    for layout, values in figures["layouts"].items():
        texts = ", ".join(f"{values[key]:.3f}" for key in ("median", "p95", "worst"))
        rows.append([f"{layout} alone: median, 95th percentile, worst", texts, ""])
    timed = [row for row in data["problems"].values() if "error" not in row]
    members = {
        "the fastest member over tuned by itself": [
            row["over_tuned"] / row["over_best_kept"] for row in timed
        ],
        "chosen over the fastest member": [row["over_best_kept"] for row in timed],
    }
    for text, ratios in members.items():
        texts = ", ".join(f"{value:.3f}" for value in quantiles(ratios).values())
        rows.append([f"{text}: median, 95th percentile, worst", texts, ""])
    right = sum(row["over_best_kept"] <= 1.01 for row in timed)
    rows.append(["chosen within 1 % of the fastest member", f"{right} of {len(timed)}", ""])
    rows.append(["slowdown that was expected, median", f"{figures['said']['median']:.3f}", ""])
    for name, text in (("invalid", "invalid"), ("slower_than_default", "slower than the default")):
        rows.append([text, str(figures[name]), "0"])
    rows.append(["cubins", str(figures["cubins"]), str(asked["cubins"])])
    rows.append(["seconds of the GPU", f"{figures['seconds']:.0f}", f"{asked['seconds']:.0f}"])
    return f"{table(rows)}\n\n{data['gpu']['name']}, driver {data['gpu']['driver']}."


def decisions() -> str:
    """Return how ways to decide do on measured sizes that are left out."""
    rows: Rows = [["what decides", "median", "95th percentile", "worst"]]
    for name, figures in load("portfolio")["decisions"].items():
        rows.append([name, *(f"{figures[key]:.3f}" for key in ("median", "p95", "worst"))])
    return table(rows)
