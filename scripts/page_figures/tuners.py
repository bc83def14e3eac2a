"""Beside other tuners: ``kernel-tuner.json``, ``kernel-tuner-examples.json`` and ``triton.json``."""

from __future__ import annotations

from scripts.page_figures.evidence import Rows, load, table


def kernel_tuner() -> str:
    """Return how long a call of this tuner and one of Kernel Tuner take."""
    found = load("kernel-tuner")
    rows: Rows = [["elements", "answer given", "`tuner.tune`, s", "`tune_kernel`, s"]]
    for one in found["rows"]:
        seconds = [f"{one[whose]['seconds']:.1f}" for whose in ("ours", "kernel_tuner")]
        rows.append([f"{one['n']:,}".replace(",", " "), "yes" if one["answer"] else "no", *seconds])
    return table(rows)


def triton() -> str:
    """Return how long both take from nothing to a kernel, and the speedup of ours."""
    rows: Rows = [["problem", "GPU", "mode", "`tune`", "Triton's autotuner", "speedup over Triton's kernel"]]
    for one in load("triton"):
        (bench,) = one["bench"]
        (theirs,) = (row for row in bench["contestants"] if row["contestant"].startswith("kernels.py:"))
        rows.append(
            [
                f"{one['kernel']} {' x '.join(map(str, one['sizes'].values()))}, {one['dtype']}",
                bench["gpu"].removeprefix("NVIDIA ").partition(" ")[0],
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
