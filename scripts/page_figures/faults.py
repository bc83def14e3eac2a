"""What became of the tuner when it was broken on purpose, of its referee, and of fleets: ``chaos.txt``,
``gpu-faults.txt``, ``hostile.txt``, ``exam.json``, ``by-hand.json``, ``judged-twins.json``, ``mutate.json``,
``fleet-simulation.json`` and ``fleet-2.json``."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from typing import Any

from scripts.page_figures.evidence import load, table, text, us


def chaos(section: str) -> str:
    """Return what a section of ``scripts/chaos.py`` counted."""
    for line in text("chaos.txt").splitlines():
        name, _, counts = line.partition(" ")
        if name == section:
            return re.sub(r" \(the last was gone after [^)]*\)|; \d+ s$", "", counts.strip())
    raise ValueError(f"chaos.txt has no section {section}")


def gpu_faults(section: str) -> str:
    """Return what a section of ``scripts/gpu_faults.py`` found."""
    lines = text("gpu-faults.txt").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{section}: "))
    found = []
    for line in lines[first + 1 :]:
        if not line.startswith(" "):
            break
        verdict, _, what = line.strip().partition("  ")
        if verdict in ("PASS", "FAIL"):
            found.append(what.strip() if verdict == "PASS" else f"**{what.strip()}**")
    return "; ".join(found)


def hostile() -> str:
    """Return how many commands read hostile input, and how many ended as they must not."""
    return re.sub(r" in \d+ s with \d+ jobs", "", text("hostile.txt").splitlines()[-2])


def exam() -> str:
    """Return what ``tests/gpu/test_exam.py`` found, by kinds of candidates."""
    found, rows = load("exam"), [["candidates", "asked", "as they must be", "judged"]]
    names = {"attacks": "attacks", "honest": "honest candidates"}
    kinds = [kind for kind in names if kind in found]
    for kind in kinds:
        for python in (False, True):
            asked = [one for one in found[kind]["candidates"] if one["name"].endswith(".py") is python]
            if asked:
                right = sum(one["as_expected"] for one in asked)
                which = f"{names[kind]}, {'Python' if python else 'compiled'}"
                rows.append([which, str(len(asked)), str(right), _reasons(asked)])
    every = [one for kind in kinds for one in found[kind]["candidates"]]
    known = next(one for one in every if "gpu" in one)
    lacks = sorted({what for one in every for what in one.get("not_isolated", ())})
    how = [
        f"{known['gpu']}, CUDA {known['versions']['driver']}",
        *(f"{kind} in {found[kind]['seconds']:.0f} s, {found[kind]['at_once']} at once" for kind in kinds),
        f"not isolated: {', '.join(lacks) or 'nothing'}",
    ]
    others = [f"{one['name']} was `{one['reason']}`" for one in every if not one["as_expected"]]
    return f"{table(rows)}\n\n{'; '.join([*how, *others])}."


def by_hand() -> str:
    """Return how many verdicts differ from those of races without the tuner."""
    found = load("by-hand")
    apart = f"{100 * statistics.median(row['apart'] for row in found['rows']):.1f} % apart in the median"
    return f"of {len(found['rows'])} verdicts {found['differ']} differ; the speedups are {apart}"


def tasks() -> str:
    """Return how many verdicts on modules' candidates were as they must be, and on which GPU."""
    lines = text("tasks.txt").splitlines()
    judged = [line for line in lines if line.startswith(("as asked", "NOT"))]
    right = sum(line.startswith("as asked") for line in judged)
    return f"{right} of {len(judged)} verdicts were as they must be ({lines[1].split(',')[0]})"


def judged_twins() -> str:
    """Return the verdicts on a kernel beside itself, and on pairs that were drawn from their rounds."""
    found = load("judged-twins")
    return f"{_counted(found['judged'])}; of pairs drawn from their rounds {_counted(found['drawn'])} ({found['gpu']})"


def _counted(verdicts: dict[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())


def mutated() -> str:
    """Return what a program gained that has its kernels judged."""
    found = load("mutate")
    first, *_, last = (us(1e3 * best["time_us"]) for best in found["bests"])
    right = sum(
        count for verdict, count in found["judged"].items() if verdict.startswith("meant to be right")
    )
    wrong = sum(found["judged"].values()) - right
    return (
        f"from {first} to {last} us in {found['minutes']:g} minutes, with {right} candidates that are right; "
        f"of {wrong} that are wrong on purpose {len(found['wrong called right'])} were called right"
    )


def _reasons(asked: list[dict[str, Any]]) -> str:
    counts = Counter(one["reason"] for one in asked)
    return ", ".join(f"`{reason}` {count}" for reason, count in counts.most_common())


def simulated(section: str) -> str:
    """Return what a section of ``scripts/fleet_simulation.py`` counted."""
    found: dict[str, Any] = load("fleet-simulation")
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
