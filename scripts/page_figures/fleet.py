"""What a simulated fleet did: ``fleet-simulation.json``."""

from __future__ import annotations

import json
from typing import Any

from page_figures.evidence import text


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
