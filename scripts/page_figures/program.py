"""What winners are worth in a torch program: ``decoder.json``, ``block.json`` and ``torch-ops.json``."""

from __future__ import annotations

import re
from itertools import chain
from statistics import geometric_mean

from scripts.page_figures.evidence import Rows, load, table, without_empty_columns


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
