"""What ``gemm_shapes.py`` makes of the command's answers: figures, and the pages' tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.page_figures import evidence, gemm
from scripts.shape_notes import Notes

LISTED = "cublaslt"
"""Contestant's name, without its file's."""
STEPS = ("search", "race", "warm", "bits")


def searched(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up `tune run --json`."""
    winner = found[0]["winner"] if found else None
    if winner is None:
        return {"variant": "", "parameters": {}}
    return {
        "variant": winner["variant"],
        "parameters": winner["configuration"],
        "time_ns": winner["time_ns"],
        "edges": winner["edge_sizes_verified"],
        "exportable": winner["exportable"],
        "reason": winner["reason"],
        "stats": found[0]["stats"],
        "warm": winner.get("warm"),
    }


def raced(bench: dict[str, Any]) -> dict[str, Any]:
    """Sum up `tune bench --json` of one problem."""
    entries = {one["contestant"].rpartition(":")[2]: one for one in bench["contestants"]}
    best = entries.get("best", {})
    names = ("time_ns", "ratio", "ratio_low", "ratio_high", "verdict", "verified", "sm_clock_hz")
    return {
        "mode": bench["mode"],
        "regime": bench["regime"],
        "noise_floor": bench["noise_floor"],
        "variant": best.get("variant"),
        "parameters": best.get("parameters"),
        "ours": {name: best[name] for name in (*names, "tflops", "gbytes_per_s", "speed_of_light") if best},
        "rivals": {
            name: {what: entries[name][what] for what in names}
            for name in ("torch", LISTED)
            if name in entries
        },
        "failed": {one["contestant"].rpartition(":")[2]: one["error"] for one in bench["failed"]},
        "tags": bench["tags"],
    }


def raced_text(race: dict[str, Any]) -> str:
    """Say a race in a line."""
    parts = [f"{one['ratio']:.3f} of {name}, {one['verdict']}" for name, one in race["rivals"].items()]
    parts += [f"{name} failed: {error}" for name, error in race["failed"].items()]
    return "; ".join(parts)


def rows_of(notes: Notes) -> list[dict[str, Any]]:
    """Return what is known of each problem that was at least searched."""
    return [
        {
            **{**vars(problem.shape), "dtype": problem.dtype, "layout": problem.layout},
            **{step: notes.get(problem, step) for step in STEPS},
        }
        for problem in notes.problems()
        if notes.has(problem, "search")
    ]


def text_of(name: str, data: dict[str, Any]) -> str:
    """Return the pages' tables of what was timed, and what went wrong."""
    timed = [one for one in data["problems"] if one["race"].get("ours")]
    kinds = dict.fromkeys((one["dtype"], one["layout"]) for one in timed)
    figures: list[Callable[[], str]] = [partial(gemm.shapes, *kind, name) for kind in kinds]
    if data.get("drawn"):
        figures = [gemm.drawn] if timed else []
    return "\n".join([evidence.shown(name, data, *figures), *_wrong(data["problems"])])


def _wrong(problems: Sequence[dict[str, Any]]) -> Iterator[str]:
    for one in problems:
        race, bits = one["race"], one["bits"]
        name = f"{one['dtype']}, layout {one['layout']}, {gemm.size(one)}"
        if not race.get("ours"):
            yield f"{name}: not timed: {one['search'].get('reason') or race.get('failed') or 'not raced'}"
        for library, error in race.get("failed", {}).items():
            yield f"{name}: {library} failed: {error}"
        if not all(step["ours"]["verified"] for step in (race, one["warm"]) if step.get("ours")):
            yield f"{name}: NOT VERIFIED"
        if bits and not bits["same"]:
            yield f"{name}: other bits: {bits['error']}"


def report(notes: Notes, out: Path | None) -> str:
    """Write the evidence, if there is a folder for it; gives the tables."""
    drawn = {"drawn": notes.data["drawn"]} if notes.data["drawn"] else {}
    name = "gemm-random" if drawn else "gemm-shapes"
    data = {**notes.data["where"], **drawn, "problems": rows_of(notes)}
    text = text_of(name, data)
    harness.write(out, name, data, text)
    if taken_apart := [notes.get(p, "ablate") for p in notes.problems() if notes.has(p, "ablate")]:
        variants = dict.fromkeys(one["variant"] for one in taken_apart)
        figures = (partial(gemm.ablation, variant) for variant in variants)
        harness.write(
            out, "gemm-ablation", taken_apart, evidence.shown("gemm-ablation", taken_apart, *figures)
        )
    return text
