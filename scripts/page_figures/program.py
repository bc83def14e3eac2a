"""What winners are worth in a torch program: ``decoder.json`` and ``torch-ops.json``."""

from __future__ import annotations

import re
from itertools import chain
from statistics import geometric_mean

from scripts.page_figures.evidence import Rows, load, table


def passes() -> str:
    """Return the time of each pass of the decoder by torch and with winners, and what was predicted."""
    data = load("decoder")
    rows: Rows = [["pass", "torch, us", "tuned, us", "torch / tuned", "predicted, us", "off by", "replaced"]]
    for name, case in data["cases"].items():
        ratio = f"{case['ratio']:.3f} ({case['ratio_low']:.3f} to {case['ratio_high']:.3f})"
        by_torch, tuned, predicted = (f"{case[key]:.0f}" for key in ("torch_us", "tuned_us", "predicted_us"))
        off, replaced = 100 * case["prediction_error"], 100 * case["shares"].get("replaced", 0.0)
        rows.append([name, by_torch, tuned, ratio, predicted, f"{off:+.1f} %", f"{replaced:.0f} %"])
    mean, where = geometric_mean(case["ratio"] for case in data["cases"].values()), data["where"]
    return f"{table(rows)}\n\n{where['gpu']}, torch {where['torch']}; geometric mean {mean:.3f}."


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


def blocks() -> str:
    """Return the times of a transformer's blocks by torch, by torch.compile and by the tuner's operators."""
    data = load("block")
    head = ["pass", "as", "torch, us", "compiled, us", "tuned, us", "torch / tuned", "compiled / tuned"]
    rows: Rows = [head]
    for name, case in data["cases"].items():
        for mode in sorted(case.keys() - {"errors"}, reverse=True):
            times, ratios = case[mode]["us"], case[mode]["over_tuned"]
            texts = ("{:.3f} ({:.3f} to {:.3f})".format(*ratios[one]) for one in ("torch", "compiled"))
            rows.append(
                [name, mode, *(f"{times[one]:.0f}" for one in ("torch", "compiled", "tuned")), *texts]
            )
    errors = "; ".join(
        f"{name} {', '.join(f'{one} {error:.1e}' for one, error in case['errors'].items())}"
        for name, case in data["cases"].items()
    )
    where = data["where"]
    return f"{table(rows)}\n\n{where['gpu']}, torch {where['torch']}. Errors beside float32: {errors}."
