"""What winners are worth in a program: ``decoder.json``, ``block.json``, ``torch-ops.json`` and ``calls.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from statistics import geometric_mean, median
from typing import Any

from scripts.page_figures.evidence import Rows, load, table, us, without_empty_columns


def passes(name: str = "decoder") -> str:
    """Return the time of each pass of the decoder by torch and with winners, and what was predicted of replacements."""
    data = load(name)
    head = ["pass", "torch, us", "compiled, us", "tuned, us", "torch / tuned", "compiled / tuned"]
    rows: Rows = [[*head, "predicted, us", "off by", "replaced"]]
    for row, case in data["cases"].items():
        times = (
            f"{case[key]:.0f}" if key in case else "-" for key in ("torch_us", "compiled_us", "tuned_us")
        )
        ratios = (_interval(case, key) if key in case else "-" for key in ("ratio", "compiled_ratio"))
        predicted = ["-"] * 3
        if "predicted_us" in case:
            off, replaced = 100 * case["prediction_error"], 100 * case["shares"].get("replaced", 0.0)
            predicted = [f"{case['predicted_us']:.0f}", f"{off:+.1f} %", f"{replaced:.0f} %"]
        rows.append([row, *times, *ratios, *predicted])
    mean, where = geometric_mean(case["ratio"] for case in data["cases"].values()), data["where"]
    table_of = table(without_empty_columns(rows))
    return f"{table_of}\n\n{where['gpu']}, torch {where['torch']}; geometric mean {mean:.3f}."


def _interval(case: dict[str, float], key: str) -> str:
    return f"{case[key]:.3f} ({case[f'{key}_low']:.3f} to {case[f'{key}_high']:.3f})"


def ratio(name: str) -> str:
    """Return the time of a pass by torch over that with winners."""
    return f"{load('decoder')['cases'][name]['ratio']:.3f}"


def products() -> str:
    """Return torch's time over the winner's for each product of the decoder; in brackets where torch's is kept."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for case in load("decoder")["cases"].values():
        for one in case["products"]:
            ((m, n, k),) = re.findall(r"m=(\d+) n=(\d+) k=(\d+)", one["problem"])
            ratio = f"{one['decision']['ratio']:.3f}"
            found.setdefault((n, k), {})[int(m)] = ratio if one["outcome"] == "replaced" else f"({ratio})"
    ms = sorted(set(chain(*found.values())))
    rows: Rows = [["n x k", *(f"m = {m}" for m in ms)]]
    rows += [[f"{n} x {k}", *(row.get(m, "") for m in ms)] for (n, k), row in found.items()]
    return table(rows)


def operators() -> str:
    """Return what a warm call of torch's operators costs the host."""
    data = load("torch-ops")
    done = {key: row for key, row in data["rows"].items() if "error" not in row}
    hosts = {key.removeprefix("host "): row["us"] for key, row in done.items() if key.startswith("host ")}
    names = [name for name in dict.fromkeys(chain(*hosts.values())) if not re.search("in.place", name)]
    rows: Rows = [["us", *names]]
    for key, row in hosts.items():
        rows.append([f"`{re.sub(r' b?float.*', '', key)}`", *(f"{row[name]:.1f}" for name in names)])
    in_place = next(row for key, row in hosts.items() if key.startswith("saxpy "))
    ours, torchs = (f"{in_place[name]:.1f}" for name in ("op.torch().in_place", "torch, in place"))
    where = data["where"]
    return f"""{table(rows)}

{where["gpu"]}, torch {where["torch"]}, Python {where["python"]}. `saxpy.in_place` takes the host {ours} us,
`torch.add` with `out=` {torchs}."""


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
