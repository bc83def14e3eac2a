"""What ``gemm_shapes.py`` makes of the command's answers: figures, whether they are what is asked, and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import today
from scripts.page_figures import evidence
from scripts.page_figures.evidence import table as markdown
from scripts.page_figures.gemm import ablation
from scripts.shape_notes import Notes, Problem

LISTED = "cublaslt"
"""Contestant's name, without its file's."""
LEAST_MEAN = 1.05
"""Geometric mean of cuBLAS's time over ours, over the shapes whose rows are whole 16 bytes."""
LEAST_ODD = 3.5
"""The same where they are not: cuBLAS has no fast path for them."""
LONGEST_SEARCH_S = 90.0
LEAST_COLD, LEAST_WARM = 1.00, 0.99
"""Of `torch.mm`'s time over ours: no interval is to be wholly below, as it was tuned and back to back."""
LEAST_DRAWN, LEAST_DRAWN_MEAN = 0.98, 1.04
"""The same of problems that were drawn, in either timing; and the mean of those with whole rows, as they were tuned."""
POWER_LIMITED = ("8192x8192x8192", "4096x4096x4096")
"""Shapes that are asked to be faster beyond the noise, not only as fast."""


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


TIMINGS = {"race": "as tuned", "warm": "back to back"}
"""Steps that time rested, and what the tables call them."""


@dataclass(frozen=True)
class Row:
    """One problem in the table."""

    problem: Problem
    steps: dict[str, dict[str, Any]]
    """What each found; empty where it was not done."""
    drawn: bool = False
    """Whether the problem was drawn, and not chosen."""

    @property
    def timed(self) -> bool:
        """Whether there are figures."""
        return bool(self.steps["race"].get("ours"))

    def asked(self) -> Iterator[tuple[str, bool]]:
        """Return what is asked of it, and whether that is met."""
        search, bits = self.steps["search"], self.steps["bits"]
        if not self.timed:
            yield "a race" if search.get("exportable") else "a winner", False
            return
        for step in ("race", "warm"):
            if (reached := self.reaches(step)) is not None:
                yield f"{self.least(step):.2f} of torch, {TIMINGS[step]}", reached
        for name, one in {} if self.drawn else self.steps["race"]["rivals"].items():
            if self.problem.odd:
                yield f"{LEAST_ODD:g} of {name}", one["ratio"] >= LEAST_ODD
            elif str(self.problem.shape) in POWER_LIMITED:
                yield f"faster than {name}", one["verdict"] == "faster"
            else:
                yield f"not slower than {name}", one["verdict"] != "slower"
        if "seconds" in search:
            yield f"found in {LONGEST_SEARCH_S:g} s", search["seconds"] <= LONGEST_SEARCH_S
        if bits:
            yield "the same bits", bool(bits["same"])

    def least(self, step: str) -> float:
        """Return what an interval is not to be wholly below."""
        return LEAST_DRAWN if self.drawn else LEAST_COLD if step == "race" else LEAST_WARM

    def reaches(self, step: str) -> bool | None:
        """Return whether a timing's interval against torch.mm is not wholly below that; None if it was not timed."""
        torch = self.steps[step].get("rivals", {}).get("torch")
        return None if torch is None else torch["ratio_high"] >= self.least(step)

    def to_json(self) -> dict[str, Any]:
        """Return everything for programs."""
        identity = {**vars(self.problem.shape), "dtype": self.problem.dtype, "layout": self.problem.layout}
        asked = [{"what": what, "met": met} for what, met in self.asked()]
        return {**identity, **self.steps, "asked": asked}


def rows_of(notes: Notes, problems: Sequence[Problem]) -> list[Row]:
    """Return the rows of what was at least searched."""
    steps = ("search", "race", "warm", "bits")
    chosen = [problem for problem in problems if notes.has(problem, "search")]
    return [Row(p, {step: notes.get(p, step) for step in steps}, bool(notes.data["drawn"])) for p in chosen]


def means(rows: Sequence[Row], step: str = "race", *, odd: bool = False) -> dict[str, float]:
    """Return the geometric mean of each library's ratio over the shapes with whole rows, or all, where it was timed."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        race = row.steps[step]
        if race and (odd or not row.problem.odd):
            for name, one in race["rivals"].items():
                ratios.setdefault(name, []).append(one["ratio"])
    return {name: math.exp(sum(map(math.log, found)) / len(found)) for name, found in ratios.items()}


def table(rows: Sequence[Row], where: dict[str, Any]) -> str:
    """Write the rows for people."""
    known = [f"{name} {number}" for name, number in where.items() if name not in ("gpu", "drawn")]
    searches = dict.fromkeys(row.steps["search"].get("command", "") for row in rows)
    lines = [
        ", ".join([where.get("gpu", "no GPU"), *known, today()]),
        f"each search: {'; '.join(filter(None, searches))}",
        "Ratios are a library's time over ours, timed in turn on the same buffers, with the ends of a 95 % interval.",
    ]
    if drawn := where.get("drawn"):
        lines.append("{count} problems drawn by seed {seed}, dtypes {dtypes}".format(**drawn))
    libraries = [f"{name}, {how}" for how in TIMINGS.values() for name in ("torch.mm", "cuBLASLt")]
    head = ["problem", "mode", "ours, us", "TFLOP/s", *libraries, "search, s", "edges", "asked", "what won"]
    return "\n".join([*lines, "", markdown([head, *map(_cells, rows)]), "", *_all(rows)])


def _all(rows: Sequence[Row]) -> Iterator[str]:
    """Return what all of them come to, in both timings."""
    for step, timing in TIMINGS.items():
        timed = [row for row in rows if row.reaches(step) is not None]
        if not timed:
            continue
        below, least = [row.problem.key for row in timed if not row.reaches(step)], timed[0].least(step)
        names = f": {', '.join(below)}" if below else ""
        yield f"{timing}: {len(below)} of {len(timed)} intervals against torch.mm wholly below {least:.2f}{names}"
        for odd, which in ((False, "with whole 16-byte rows"), (True, "in all")):
            found = means(timed, step, odd=odd)
            said = ", ".join(f"{mean:.3f} to {name}" for name, mean in found.items())
            asked = ""
            if not odd and step == "race":
                least = LEAST_DRAWN_MEAN if timed[0].drawn else LEAST_MEAN
                asked = (
                    f"; asked {least:g}: {'met' if min(found.values(), default=0.0) >= least else 'MISSED'}"
                )
            count = sum(odd or not row.problem.odd for row in timed)
            yield f"{timing}: geometric mean of {count} {which}: {said}{asked}"


def _cells(row: Row) -> list[str]:
    search, race, warm = (row.steps[step] for step in ("search", "race", "warm"))
    missed = [what for what, met in row.asked() if not met]
    asked = "met" if not missed else f"MISSED: {'; '.join(missed)}"
    values = [f"{name}={value}" for name, value in (search.get("parameters") or {}).items()]
    won = " ".join([search.get("variant") or "nothing", *values])
    if not row.timed:
        why = search.get("reason") or race.get("failed") or "not raced"
        return [row.problem.key, str(why), *6 * [""], "", "", asked, won]
    ours = race["ours"]
    wrong = "" if ours["verified"] and warm.get("ours", ours)["verified"] else "  NOT VERIFIED"
    return [
        *(row.problem.key, race["mode"], f"{ours['time_ns'] / 1e3:.2f}", f"{ours['tflops'] or 0:.1f}"),
        *(_ratio(step, name) for step in (race, warm) for name in ("torch", LISTED)),
        *(f"{search['seconds']:.1f}", str(search["edges"]), asked + wrong, won),
    ]


def _ratio(race: dict[str, Any], name: str) -> str:
    if one := race.get("rivals", {}).get(name):
        return f"{one['ratio']:.3f} ({one['ratio_low']:.3f}..{one['ratio_high']:.3f}) {one['verdict']}"
    return str(race.get("failed", {}).get(name, "-"))[:28]


def report(notes: Notes, out: Path | None) -> str:
    """Write the evidence, if there is a folder for it; gives the table."""
    rows = rows_of(notes, notes.problems())
    where = notes.data["where"] | ({"drawn": notes.data["drawn"]} if notes.data["drawn"] else {})
    table_text = table(rows, where)
    name = "gemm-random" if where.get("drawn") else "gemm-shapes"
    harness.write(out, name, {**where, "problems": [row.to_json() for row in rows]}, table_text)
    if taken_apart := [notes.get(p, "ablate") for p in notes.problems() if notes.has(p, "ablate")]:
        variants = dict.fromkeys(one["variant"] for one in taken_apart)
        text = evidence.shown("gemm-ablation", taken_apart, *(partial(ablation, name) for name in variants))
        harness.write(out, "gemm-ablation", taken_apart, text)
    return table_text
