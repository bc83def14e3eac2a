"""Beside other tuners: ``kernel-tuner.json``, ``kernel-tuner-examples.json`` and ``triton.json``."""

from __future__ import annotations

from scripts.page_figures.evidence import Rows, load, table

OURS = {"ours": "ours", "theirs": "kernel_tuner"}


def kernel_tuner(whose: str) -> str:
    """Return the configurations a second of the better round, of ``ours`` or of ``theirs``."""
    best = max(one[OURS[whose]]["per_second"] for one in load("kernel-tuner")["rounds"])
    return f"{best:.3g}"


def triton() -> str:
    """Return how long both take from nothing to a kernel, and how much longer Triton's kernel takes than ours."""
    rows: Rows = [
        ["problem", "mode", "`tune`", "Triton's autotuner", "Triton's kernel takes, times as long (verdict)"]
    ]
    for one in load("triton"):
        (bench,) = one["bench"]
        (theirs,) = (row for row in bench["contestants"] if ":" in row["contestant"])
        rows.append(
            [
                f"{one['kernel']} {' x '.join(map(str, one['sizes'].values()))}, {one['dtype']}",
                bench["mode"],
                f"{one['tune']['seconds']:.0f} s, {one['tune']['trials']} trials",
                f"{one['triton']['seconds']:.0f} s, {one['triton']['configurations']} configurations",
                f"{theirs['ratio']:.3f} ({theirs['verdict']})",
            ]
        )
    return table(rows)


def examples() -> str:
    """Return the table of Kernel Tuner's examples: lines changed, best times of both tools, and seconds."""
    rows: Rows = [
        ["example", "lines changed", "kernel", "here", "Kernel Tuner", "seconds here", "Kernel Tuner"]
    ]
    for name, sides in load("kernel-tuner-examples")["examples"].items():
        ours, theirs = sides["ours"], sides.get("theirs", {"calls": [], "seconds": None})
        for number, call in enumerate(ours["calls"] or [{"kernel": "", "best_ms": None}]):
            other = theirs["calls"][number] if number < len(theirs["calls"]) else {"best_ms": None}
            first = number == 0
            rows.append(
                [
                    name if first else "",
                    str(ours["lines"]) if first else "",
                    call["kernel"],
                    _milliseconds(call["best_ms"]),
                    _milliseconds(other["best_ms"]),
                    f"{ours['seconds']:.0f}" if first else "",
                    f"{theirs['seconds']:.0f}" if first and theirs["seconds"] else "",
                ]
            )
    return table(rows)


def _milliseconds(time_ms: float | None) -> str:
    return "-" if time_ms is None else f"{time_ms:.4g} ms"
