"""What ``gemm_shapes.py`` makes of the command's answers: figures, whether they are what is asked, and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import today
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
    searches = dict.fromkeys(
        one["command"] for one in (row.steps["search"] for row in rows) if "command" in one
    )
    lines = [
        ", ".join([where.get("gpu", "no GPU"), *known, today()]),
        f"each search: {'; '.join(searches)}",
        "",
        "Ratios are a library's time over ours, timed in turn on the same buffers, with the ends of a 95 % interval;",
        "search s: from the start of the command to the confirmed winner.",
        "back to back: the same two ratios in the mode warm, many calls on the same buffers.",
        "edges: edge-case sizes at which the winner was verified.",
    ]
    if drawn := where.get("drawn"):
        lines.append("{count} problems drawn by seed {seed}, dtypes {dtypes}".format(**drawn))
    for kind in dict.fromkeys((row.problem.dtype, row.problem.layout) for row in rows):
        chosen = [row for row in rows if (row.problem.dtype, row.problem.layout) == kind]
        lines += ["", f"{kind[0]}, layout {kind[1]}", *_raced(chosen)]
    return "\n".join([*lines, "", *_all(rows)])


def _all(rows: Sequence[Row]) -> Iterator[str]:
    """Return what all of them come to, in both timings."""
    for step, timing in TIMINGS.items():
        timed = [row for row in rows if row.reaches(step) is not None]
        below = [row.problem.key for row in timed if not row.reaches(step)]
        if not timed:
            continue
        least = timed[0].least(step)
        names = f": {', '.join(below)}" if below else ""
        yield (
            f"{timing}: {len(below)} of {len(timed)} intervals against torch.mm wholly below {least:.2f}{names}"
        )
        for whole in (True, False):
            chosen = [row for row in timed if not (whole and row.problem.odd)]
            said = ", ".join(
                f"{mean:.3f} to {name}" for name, mean in means(chosen, step, odd=not whole).items()
            )
            which = "with whole 16-byte rows" if whole else "in all"
            asked = ""
            if whole and timed[0].drawn and step == "race":
                mean = means(chosen, step).get("torch", 0.0)
                asked = f"; asked {LEAST_DRAWN_MEAN:g}: {_met(mean >= LEAST_DRAWN_MEAN)}"
            yield f"{timing}: geometric mean of {len(chosen)} {which}: {said}{asked}"


def _raced(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        f"{'m x n x k':20s} {'mode':8s} {'ours us':>9s} {'TFLOP/s':>7s}  {'torch.mm us':>11s} "
        f"{'ratio':28s} {'cuBLASLt us':>11s} {'ratio':28s} {'back to back us':>15s} {'torch.mm':28s} {'cuBLASLt':28s} "
        f"{'search s':>8s} {'edges':>5s}  asked"
    )
    yield from map(_line, rows)
    for step, how in (("race", "rested"), ("warm", "back to back")):
        for name, mean in means(rows, step).items():
            races = [row.steps[step] for row in rows if not row.problem.odd and row.steps[step]]
            verdicts = [race["rivals"][name]["verdict"] for race in races if name in race["rivals"]]
            is_asked = step == "race" and not rows[0].drawn
            asked = f"; asked {LEAST_MEAN:g}: {_met(mean >= LEAST_MEAN)}" if is_asked else ""
            counts = {one: verdicts.count(one) for one in ("faster", "same", "ambiguous", "slower")}
            said = ", ".join(f"{count} {one}" for one, count in counts.items() if count)
            yield f"geometric mean against {name}, {how}, {len(verdicts)} shapes: {mean:.3f} ({said}){asked}"


def _line(row: Row) -> str:
    search, race, warm = (row.steps[step] for step in ("search", "race", "warm"))
    shape = " x ".join(map(str, vars(row.problem.shape).values()))
    missed = [what for what, met in row.asked() if not met]
    asked = "met" if not missed else f"MISSED: {'; '.join(missed)}"
    if not row.timed:
        return f"{shape:20s} {search.get('reason') or race.get('failed') or 'not raced'}  {asked}"
    ours, libraries = race["ours"], race["rivals"]
    cells = [
        f"{libraries[name]['time_ns'] / 1e3:11.2f} {_ratio(libraries[name]):28s}"
        if name in libraries
        else f"{'-':>11s} {race['failed'].get(name, '')[:28]:28s}"
        for name in ("torch", LISTED)
    ]
    wrong = "" if ours["verified"] and warm.get("ours", ours)["verified"] else "  NOT VERIFIED"
    return (
        f"{shape:20s} {race['mode']:8s} {ours['time_ns'] / 1e3:9.2f} {ours['tflops'] or 0:7.1f}  "
        f"{cells[0]} {cells[1]} {_back_to_back(warm)} "
        f"{search['seconds']:8.1f} {search['edges']:5d}  {asked}{wrong}"
    ).rstrip()


def _back_to_back(race: dict[str, Any]) -> str:
    if not race.get("ours"):
        return f"{'':15s} {'':28s} {'':28s}"
    ratios = [_ratio(race["rivals"][name]) if name in race["rivals"] else "" for name in ("torch", LISTED)]
    return f"{race['ours']['time_ns'] / 1e3:15.2f} {ratios[0]:28s} {ratios[1]:28s}"


def _ratio(one: dict[str, Any]) -> str:
    return f"{one['ratio']:.3f} ({one['ratio_low']:.3f}..{one['ratio_high']:.3f}) {one['verdict']}"


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


def configurations(rows: Sequence[Row]) -> str:
    """List what won."""
    lines = ["", "What won:"]
    for row in rows:
        search = row.steps["search"]
        values = " ".join(f"{name}={value}" for name, value in (search.get("parameters") or {}).items())
        lines.append(f"  {row.problem.key:32s} {search.get('variant') or 'nothing'} {values}")
    return "\n".join(lines)


def ablations(notes: Notes, problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """Return what `tune ablate --json` said of each winner."""
    return [notes.get(p, "ablate") for p in problems if notes.has(p, "ablate")]


def ablation_text(found: dict[str, Any]) -> str:
    """Write one for people, the choice whose loss costs most first."""
    sizes = " x ".join(str(size) for size in found["problem"]["sizes"].values())
    values = " ".join(f"{name}={value}" for name, value in found["parameters"].items())
    lines = [
        f"{sizes} {found['problem']['dtypes']['input']}, {found['mode']}, {found['regime']}: "
        f"{(found['time_ns'] or 0) / 1e3:.2f} us, noise floor {100 * (found['noise_floor'] or 0):.2g} %",
        f"{found['variant']} {values}",
    ]
    for choice in sorted(found["choices"], key=lambda one: -(one["worth"] or 0)):
        name = f"{choice['parameter']}={choice['value']}"
        for one in choice["alternatives"]:
            said = one["error"] if one["ratio"] is None else f"{_ratio(one)}"
            besides = "".join(f", with {what}={value}" for what, value in one["besides"].items())
            besides += " *" if one["unsearched"] else ""
            lines.append(f"  {name:28s} {one['value']!s:>12s}{besides:28s}  {said}")
            name = ""
    return "\n".join(lines)


def write_ablations(found: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write both files of what the choices are worth."""
    if not found:
        return
    head = (
        f"{found[0]['gpu']}, driver {found[0]['driver']}, {today()}\n\n"
        "One parameter at a time takes another value: the time with it over the time without, in turn, and the\n"
        "verdict of the chosen value; * no search tries it. Without a time: why it is not valid with the others.\n\n"
    )
    harness.write(folder, "gemm-ablation", list(found), head + "\n\n".join(map(ablation_text, found)))


def report(notes: Notes, out: Path | None) -> str:
    """Write the evidence, if there is a folder for it; gives the table."""
    rows = rows_of(notes, notes.problems())
    where = notes.data["where"] | ({"drawn": notes.data["drawn"]} if notes.data["drawn"] else {})
    if out:
        write(rows, where, out)
        write_ablations(ablations(notes, notes.problems()), out)
    return table(rows, where)


def write(rows: Sequence[Row], where: dict[str, Any], folder: Path) -> None:
    """Write both files of the evidence."""
    data = {**where, "problems": [row.to_json() for row in rows]}
    name = "gemm-random" if where.get("drawn") else "gemm-shapes"
    harness.write(folder, name, data, f"{table(rows, where)}\n{configurations(rows)}")
