"""What fleets did: ``fleet-simulation.json``, and on GPUs ``fleet-2.json`` and ``same-table-gpu.json``."""

from __future__ import annotations

import json
from typing import Any

from scripts.page_figures.evidence import load, table, text


def simulated(section: str) -> str:
    """Return what a section of ``scripts/fleet_simulation.py`` counted."""
    found: dict[str, Any] = json.loads(text("fleet-simulation.json"))
    if section == "table":
        table = found["table"]
        return f"{table['the_same_winner']} of {table['problems']} winners are those of one device"
    if section == "overlap":
        return f"{found['overlap']['times_as_fast']:.2f} times as fast"
    if section == "linear":
        parts = [found[name] for name in sorted(found) if name.startswith("linear_")]
        parts.sort(key=lambda part: part["devices"])
        return ", ".join(f"{part['of_linear']:.2f} with {part['devices']} devices" for part in parts)
    counted = found[section]
    return (
        f"{counted['killed']} kill -9, {counted['trials']} trials, {counted['acknowledged']} acknowledged, "
        f"{counted['lost']} lost, {counted['doubled']} doubled, {counted['left_behind']} left behind"
    )


def measured() -> str:
    """Return how long a list takes on two GPUs and on one."""
    data = load("fleet-2")
    options = {
        "fleet": (f"{len(data['about']['gpus'])} GPUs", data["about"]["jobs"]),
        "one": ("one GPU", data["about"]["share_of_one"]),
        "serial": ("one GPU, `--no-overlap`", data["about"]["share_of_one"]),
    }
    first = data["fleet"]["seconds"]
    trials = data["fleet"]["trials"] // data["problems"]
    head = f"a list of {data['problems']} products, {trials} trials each"
    rows = [[head, "`--jobs`", "seconds", "times as long"]]
    for step, (name, jobs) in options.items():
        seconds = data[step]["seconds"]
        rows.append([name, str(jobs), f"{seconds:.0f}", f"{seconds / first:.2f}"])
    return table(rows)


def same_table() -> str:
    """Return how far two runs on two cards agree, products and other kernels apart."""
    rows = [["chosen", "problems", "the same configuration", "within 1 % of each other", "furthest apart"]]
    named = {
        "tuned": "winners",
        "again": "winners, the different ones tuned again",
        "initial": "the fastest initial configuration alone",
    }
    races = load("same-table-gpu")["races"]
    for kind in ("products", "others"):
        for way, name in named.items():
            those = [
                race
                for race in races
                if way in race["same"] and (race["problem"].split()[0] == "gemm") == (kind == "products")
            ]
            if not those:
                continue
            same = {race["problem"]: race["same"][way] for race in those}
            pairs = [race["means_ns"][way] for race in those]
            apart = [abs(first / second - 1) for first, second in pairs if first and second]
            within = sum(one <= 0.01 for one in apart)
            rows.append(
                [
                    f"{kind}: {name}",
                    str(len(same)),
                    f"{sum(same.values())} ({sum(same.values()) / len(same):.0%})",
                    f"{within} of {len(apart)} races ({within / len(apart):.0%})",
                    f"{max(apart):.1%}",
                ]
            )
    return table(rows)


def simulated_table() -> str:
    """Return how far two simulated runs agree, by how far cards deviate."""
    rows = [
        [
            "a configuration's own deviation from card to card",
            "same winner if the fastest wins",
            "same winner with the margin",
            "with the margin the winner is slower than the fastest by, on average",
        ]
    ]
    for study in load("same-table"):
        own, totals = study["study"]["own"], study["totals"]
        rows.append(
            [
                f"{own:.1%}" if own else "none",
                f"{totals['fastest']['same']:.0%}",
                f"{totals['decision']['same']:.0%}",
                f"{totals['decision']['behind'] - totals['fastest']['behind']:.2%}",
            ]
        )
    return table(rows)
