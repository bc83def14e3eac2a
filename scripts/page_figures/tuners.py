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
    """Return how long each takes from nothing to a kernel, and the speedups of ours over the others'."""
    rows: Rows = [
        ["problem", "GPU", "`tune`", "Triton's autotuner", "Helion"]
        + [f"speedup over {name}" for name in ("Triton", "Helion", "torch")]
    ]
    for one in load("triton"):
        (bench,) = one["bench"]
        by_name = {row["contestant"].partition(".py:")[0]: row for row in bench["contestants"]}
        over = [by_name.get(name) for name in ("kernels", "helion_kernels", "torch")]
        helion = one.get("helion")
        rows.append(
            [
                f"{one['kernel']} {' x '.join(map(str, one['sizes'].values()))}, {one['dtype']}",
                bench["gpu"].removeprefix("NVIDIA ").partition(" ")[0],
                f"{one['tune']['seconds']:.0f} s, {one['tune']['trials']} trials",
                f"{one['triton']['seconds']:.0f} s, {one['triton']['configurations']} configurations",
                f"{helion['seconds']:.0f} s, effort {helion['effort']}" if helion else "",
                *(f"{row['ratio']:.3f} ({row['verdict']})" if row else "" for row in over),
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
