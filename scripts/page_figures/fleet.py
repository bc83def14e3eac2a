"""What fleets did: ``fleet-simulation.json``, and on GPUs ``fleet-2.json``."""

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
