"""What ``gemm_shapes.py`` makes of the command's answers: figures, whether they are what is asked, and tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shape_notes import Notes, Problem

LISTED = "cublaslt"
"""Contestant's name, without its file's."""
LEAST_MEAN = 1.05
"""Geometric mean of cuBLAS's time over ours, over the shapes whose rows are whole 16 bytes."""
LEAST_ODD = 3.5
"""The same where they are not: cuBLAS has no fast path for them."""
LONGEST_SEARCH_S = 90.0
WITHIN = 1.02
"""The first winner's time over that of what a longer search finds."""
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


def longer(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Say how far the first winner is from what the longer search ended with, both timed in turn."""
    winner = found[0]["winner"] if found else None
    if winner is None:
        return {"ratio": None}
    before = found[0].get("versus_incumbent") or {"ratio": 1.0, "low": 1.0, "high": 1.0, "verdict": "same"}
    return {
        **before,
        "variant": winner["variant"],
        "parameters": winner["configuration"],
        "time_ns": winner["time_ns"],
        "trials": found[0]["stats"].get("trials"),
    }


TIMINGS = {"race": "as tuned", "warm": "back to back"}
"""Steps that time rested, and what the tables call them."""


@dataclass(frozen=True)
class Row:
    """One problem in the table."""

    problem: Problem
    search: dict[str, Any]
    race: dict[str, Any]
    warm: dict[str, Any]
    sustained: dict[str, Any]
    longer: dict[str, Any]
    bits: dict[str, Any]
    drawn: bool = False
    """Whether the problem was drawn, and not chosen."""

    @property
    def timed(self) -> bool:
        """Whether there are figures."""
        return bool(self.race.get("ours"))

    def asked(self) -> Iterator[tuple[str, bool]]:
        """Return what is asked of it, and whether that is met."""
        shape = self.problem.shape
        if not self.timed:
            yield "a race" if self.search.get("exportable") else "a winner", False
            return
        for step in ("race", "warm"):
            if (reached := self.reaches(step)) is not None:
                yield f"{self.least(step):.2f} of torch, {TIMINGS[step]}", reached
        for name, one in {} if self.drawn else self.race["rivals"].items():
            if self.problem.odd:
                yield f"{LEAST_ODD:g} of {name}", one["ratio"] >= LEAST_ODD
            elif str(shape) in POWER_LIMITED:
                yield f"faster than {name}", one["verdict"] == "faster"
            else:
                yield f"not slower than {name}", one["verdict"] != "slower"
        seconds = self.search.get("seconds")
        if seconds is not None:
            yield f"found in {LONGEST_SEARCH_S:g} s", seconds <= LONGEST_SEARCH_S
        if self.longer.get("ratio") is not None:
            yield f"within {100 * (WITHIN - 1):.0f} % of a longer search", self.longer["ratio"] <= WITHIN
        if self.bits:
            yield "the same bits", bool(self.bits["same"])

    def least(self, step: str) -> float:
        """Return what an interval is not to be wholly below."""
        return LEAST_DRAWN if self.drawn else LEAST_COLD if step == "race" else LEAST_WARM

    def reaches(self, step: str) -> bool | None:
        """Return whether a timing's interval against torch.mm is not wholly below that; None if it was not timed."""
        torch = getattr(self, step).get("rivals", {}).get("torch")
        return None if torch is None else torch["ratio_high"] >= self.least(step)

    def to_json(self) -> dict[str, Any]:
        """Return everything for programs."""
        return {
            **vars(self.problem.shape),
            "dtype": self.problem.dtype,
            "layout": self.problem.layout,
            "search": self.search,
            "race": self.race,
            "warm": self.warm,
            "sustained": self.sustained,
            "longer": self.longer,
            "bits": self.bits,
            "asked": [{"what": what, "met": met} for what, met in self.asked()],
        }


def rows_of(notes: Notes, problems: Sequence[Problem]) -> list[Row]:
    """Return the rows of what was at least searched."""
    steps = ("search", "race", "warm", "sustained", "longer", "bits")
    chosen = [problem for problem in problems if notes.has(problem, "search")]
    drawn = bool(notes.data["drawn"])
    return [Row(p, **{step: notes.get(p, step) for step in steps}, drawn=drawn) for p in chosen]


def means(rows: Sequence[Row], step: str = "race", *, odd: bool = False) -> dict[str, float]:
    """Return the geometric mean of each library's ratio over the shapes with whole rows, or all, where it was timed."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        race = getattr(row, step)
        if race and (odd or not row.problem.odd):
            for name, one in race["rivals"].items():
                ratios.setdefault(name, []).append(one["ratio"])
    return {name: math.exp(sum(map(math.log, found)) / len(found)) for name, found in ratios.items()}


def table(rows: Sequence[Row], where: dict[str, Any]) -> str:
    """Write the rows for people."""
    known = [f"{name} {number}" for name, number in where.items() if name not in ("gpu", "drawn")]
    searches = dict.fromkeys(row.search["command"] for row in rows if "command" in row.search)
    lines = [
        ", ".join([where.get("gpu", "no GPU"), *known, str(datetime.now(UTC).date())]),
        f"each search: {'; '.join(searches)}",
        "",
        "Ratios are a library's time over ours, timed in turn on the same buffers, with the ends of a 95 % interval;",
        "sustained: without pauses, against both. search s: from the start of the command to the confirmed winner.",
        "back to back: the same two ratios in the mode warm, many calls on the same buffers.",
        "edges: edge-case sizes at which the winner was verified.",
    ]
    if drawn := where.get("drawn"):
        lines.append("{count} problems drawn by seed {seed}, dtypes {dtypes}".format(**drawn))
    for kind in dict.fromkeys((row.problem.dtype, row.problem.layout) for row in rows):
        chosen = [row for row in rows if (row.problem.dtype, row.problem.layout) == kind]
        lines += ["", *_block(*kind, chosen)]
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


def _block(dtype: str, layout: str, rows: Sequence[Row]) -> Iterator[str]:
    yield f"{dtype}, layout {layout}"
    gone_on = [row for row in rows if row.longer.get("ratio") is not None]
    if not gone_on or any(row.race for row in rows):
        yield from _raced(rows)
    if gone_on:
        yield "The first winner's time over that of what a longer search from there ends with, in turn:"
        yield from map(_longer_line, gone_on)


def _raced(rows: Sequence[Row]) -> Iterator[str]:
    yield (
        f"{'m x n x k':20s} {'mode':8s} {'ours us':>9s} {'TFLOP/s':>7s}  {'torch.mm us':>11s} "
        f"{'ratio':28s} {'cuBLASLt us':>11s} {'ratio':28s} {'back to back us':>15s} {'torch.mm':28s} {'cuBLASLt':28s} "
        f"{'sustained':>15s} {'search s':>8s} {'edges':>5s}  asked"
    )
    yield from map(_line, rows)
    for step, how in (("race", "rested"), ("warm", "back to back"), ("sustained", "sustained")):
        for name, mean in means(rows, step).items():
            whole = [row for row in rows if not row.problem.odd and getattr(row, step)]
            count = sum(name in getattr(row, step)["rivals"] for row in whole)
            is_asked = step == "race" and not rows[0].drawn
            asked = f"; asked {LEAST_MEAN:g}: {_met(mean >= LEAST_MEAN)}" if is_asked else ""
            verdicts = [
                getattr(row, step)["rivals"][name]["verdict"]
                for row in whole
                if name in getattr(row, step)["rivals"]
            ]
            said = ", ".join(
                f"{verdicts.count(one)} {one}"
                for one in ("faster", "same", "ambiguous", "slower")
                if one in verdicts
            )
            yield f"geometric mean against {name}, {how}, {count} shapes: {mean:.3f} ({said}){asked}"


def _longer_line(row: Row) -> str:
    longer = row.longer
    within = _met(longer["ratio"] <= WITHIN)
    first = f"{row.search['time_ns'] / 1e3:9.2f} us in {row.search['seconds']:2.0f} s"
    then = f"{longer['time_ns'] / 1e3:9.2f} us after {longer['trials']:4d} trials and {longer['seconds']:2.0f} s more"
    ratio = f"{longer['ratio']:.3f} ({longer['low']:.3f}..{longer['high']:.3f}) {longer['verdict']}"
    return f"{_shape(row):20s} {first}, {then}: {ratio}; asked {WITHIN:g}: {within}"


def _shape(row: Row) -> str:
    return " x ".join(map(str, vars(row.problem.shape).values()))


def _line(row: Row) -> str:
    shape = _shape(row)
    missed = [what for what, met in row.asked() if not met]
    asked = "met" if not missed else f"MISSED: {'; '.join(missed)}"
    if not row.timed:
        return f"{shape:20s} {row.search.get('reason') or row.race.get('failed') or 'not raced'}  {asked}"
    ours, libraries = row.race["ours"], row.race["rivals"]
    cells = [
        f"{libraries[name]['time_ns'] / 1e3:11.2f} {_ratio(libraries[name]):28s}"
        if name in libraries
        else f"{'-':>11s} {row.race['failed'].get(name, '')[:28]:28s}"
        for name in ("torch", LISTED)
    ]
    wrong = "" if ours["verified"] and row.warm.get("ours", ours)["verified"] else "  NOT VERIFIED"
    return (
        f"{shape:20s} {row.race['mode']:8s} {ours['time_ns'] / 1e3:9.2f} {ours['tflops'] or 0:7.1f}  "
        f"{cells[0]} {cells[1]} {_back_to_back(row.warm)} {_sustained(row.sustained):>15s} "
        f"{row.search['seconds']:8.1f} {row.search['edges']:5d}  {asked}{wrong}"
    ).rstrip()


def _back_to_back(race: dict[str, Any]) -> str:
    if not race.get("ours"):
        return f"{'':15s} {'':28s} {'':28s}"
    ratios = [_ratio(race["rivals"][name]) if name in race["rivals"] else "" for name in ("torch", LISTED)]
    return f"{race['ours']['time_ns'] / 1e3:15.2f} {ratios[0]:28s} {ratios[1]:28s}"


def _sustained(race: dict[str, Any]) -> str:
    ratios = [race["rivals"][name]["ratio"] for name in ("torch", LISTED) if race and name in race["rivals"]]
    return " / ".join(f"{ratio:.3f}" for ratio in ratios)


def _ratio(one: dict[str, Any]) -> str:
    return f"{one['ratio']:.3f} ({one['ratio_low']:.3f}..{one['ratio_high']:.3f}) {one['verdict']}"


def _met(met: bool) -> str:
    return "met" if met else "MISSED"


def configurations(rows: Sequence[Row]) -> str:
    """List what won."""
    lines = ["", "What won:"]
    for row in rows:
        values = " ".join(f"{name}={value}" for name, value in (row.search.get("parameters") or {}).items())
        lines.append(f"  {row.problem.key:32s} {row.search.get('variant') or 'nothing'} {values}")
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
        f"{found[0]['gpu']}, driver {found[0]['driver']}, {datetime.now(UTC).date()}\n\n"
        "One parameter at a time takes another value: the time with it over the time without, in turn, and the\n"
        "verdict of the chosen value; * no search tries it. Without a time: why it is not valid with the others.\n\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gemm-ablation.txt").write_text(head + "\n\n".join(map(ablation_text, found)) + "\n")
    (folder / "gemm-ablation.json").write_text(json.dumps(list(found), indent=1) + "\n")


def report(notes: Notes, out: Path | None) -> str:
    """Write the evidence, if there is a folder for it; gives the table."""
    rows = rows_of(notes, notes.problems())
    where = notes.data["where"] | ({"drawn": notes.data["drawn"]} if notes.data["drawn"] else {})
    if out:
        write(rows, where, out)
        write_ablations(ablations(notes, notes.problems()), out)
        if notes.data["sanitized"]:
            (out / "gemm-sanitize.txt").write_text("\n".join(notes.data["sanitized"].values()))
    return table(rows, where)


def write(rows: Sequence[Row], where: dict[str, Any], folder: Path) -> None:
    """Write both files of the evidence."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "gemm-random" if where.get("drawn") else "gemm-shapes"
    (folder / f"{name}.txt").write_text(f"{table(rows, where)}\n{configurations(rows)}\n")
    data = {**where, "problems": [row.to_json() for row in rows]}
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
