"""What a call of a winner costs: ``calls.json``."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from scripts.page_figures.evidence import Rows, load, table, us


def races() -> str:
    """Return how long a bundle's calls take in CUDA graphs, over the tuner's own launches of the same cubins."""
    timed = [row for row in load("calls")["races"].values() if "ratios" in row]
    rows: Rows = [["called from", "winners timed", "median ratio", "largest", "beyond the noise"]]
    for name in dict.fromkeys(way for row in timed for way in row["ratios"]):
        of = [row["ratios"][name] for row in timed if name in row["ratios"]]
        ratios = [one["median"] for one in of]
        slower = sum(one["verdict"] == "slower" for one in of)
        rows.append([name, str(len(of)), f"{median(ratios):.4f}", f"{max(ratios):.4f}", str(slower)])
    data = load("calls")
    shortest = min(row["times_ns"]["tuner"] for row in timed)
    longest = max(row["times_ns"]["tuner"] for row in timed)
    where = f"{data['where']['gpu']}, driver {data['where']['driver']}: winners of {us(shortest)} to {us(longest)} us."
    return f"{table(rows)}\n\n{where}"


def host() -> str:
    """Return what calls, imports and loading cost the host."""
    data: Mapping[str, Any] = load("calls")
    rows: Rows = [["", "median", "least", "largest"]]
    for step, what in (("imports", "import"), ("cold", "a bundle loaded, and its first plan prepared")):
        for name, values in data.get(step, {}).items():
            rows.append([f"{what}, {name}", *_spread(values, "ms")])
    rows.append(["a warm call, C++", *_spread(data["host"]["C++"], "us")])
    for name, value in data["host"].items():
        if isinstance(value, float):
            rows.append([f"a warm call, {name}", f"{value:.2f} us", "", ""])
    if size := data.get("size"):
        rows.append([f"a bundle of {size['winners']} products", f"{size['bytes'] / 1e6:.2f} MB", "", ""])
    return table(rows)


def _spread(values: list[float], unit: str) -> list[str]:
    return [f"{value:.2f} {unit}" for value in (median(values), min(values), max(values))]
