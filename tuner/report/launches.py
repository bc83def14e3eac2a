"""Launches for people and for programs: grid, block, shared memory and arguments; and where their cost decides."""

from __future__ import annotations

import json
from typing import Any

from tuner.core.conditions import Calibration, Conditions
from tuner.core.model import Value
from tuner.report.tables import duration, picked
from tuner.runtime.launches import Buffer, Launch


def shape_text(launch: Launch) -> str:
    """Return grid, block and whatever else a launch has besides its arguments."""
    shared = f"{launch.shared_bytes} bytes of dynamic shared memory" if launch.shared_bytes else ""
    cluster = f"clusters of {_sides(launch.cluster)}" if launch.cluster else ""
    carveout = f"carveout {launch.carveout} %" if launch.carveout is not None else ""
    cooperative = "cooperative" if launch.cooperative else ""
    programmatic = "begins before the kernel before it ends" if launch.programmatic else ""
    parts = [
        f"grid {_sides(launch.grid)}",
        f"block {_sides(launch.block)}",
        cluster,
        shared,
        cooperative,
        programmatic,
        carveout,
    ]
    return ", ".join(filter(None, parts))


def arguments_text(launch: Launch) -> str:
    """Return a launch's arguments in order, each as its name or as its type and value."""
    return ", ".join(_argument(*argument) for argument in launch.arguments)


def launch_record(entry: str, launch: Launch) -> dict[str, Any]:
    """Return a launch for ``--json``."""
    return {
        "entry": entry,
        **picked(
            launch, "grid block cluster shared_bytes cooperative carveout alignment resident programmatic"
        ),
        "arguments": [_argument_record(*argument) for argument in launch.arguments],
    }


def buffer_record(buffer: Buffer) -> dict[str, Any]:
    """Return scratch memory for ``--json``."""
    return picked(buffer, "name shape dtype size_bytes zeroed zeroed_once")


def _sides(sides: tuple[int, int, int]) -> str:
    return " x ".join(map(str, sides))


def _argument(kind: str, name: str, value: Value) -> str:
    if kind == "buffer":
        return name
    if kind == "map":
        return f"tensor map of {name}"
    return f"order of clusters, by {value}" if kind == "cluster_order" else f"{name} {value}"


def _argument_record(kind: str, name: str, value: Value) -> dict[str, Any]:
    if kind == "buffer":
        return {"kind": kind, "name": name}
    if kind == "map":
        return {"kind": kind, "name": name, "map": json.loads(str(value))}
    if kind == "cluster_order":
        return {"kind": "cluster_order", "size": value}
    return {"kind": kind, "dtype": name, "value": value}


def launch_note(
    calibration: Calibration | None, conditions: Conditions, time_ns: float, *, tied: bool = False
) -> str:
    """Return the note that launch latency decides, with its time; empty if it does not, or was not measured.

    Args:
        calibration: of the GPU, where there is one.
        conditions: under which the time was taken.
        time_ns: of the fastest.
        tied: whether others are statistically tied with it.
    """
    if calibration is None or not calibration.launch_decides(conditions, time_ns, tied=tied):
        return ""
    empty = duration(calibration.launch_ns[str(conditions.mode)])
    same = ", and the fastest are statistically tied" if tied else ""
    return f"launch latency decides: {duration(time_ns)}, where a kernel that copies 512 bytes takes {empty}{same}"
