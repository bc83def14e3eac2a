"""What the evidence says, as the tables and sentences of docs/kernels/ have it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "results" / "evidence"
PAGES = ROOT / "docs" / "kernels"

Table = list[list[str]]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def tables(page: Path) -> Iterator[tuple[str, Table]]:
    """Return each table with what stands between it and the heading above it."""
    above, table = "", []
    for line in [*page.read_text().splitlines(), ""]:
        if line.startswith("|"):
            table.append(cells(line))
            continue
        if table:
            yield above, [table[0], *table[2:]]
        table = []
        above = "" if line.startswith("#") else f"{above}\n{line}"


def measured(page: str) -> list[Table]:
    """Return the tables under headings that name a file of the evidence."""
    return [table for above, table in tables(PAGES / f"{page}.md") if "results/evidence/" in above]


# -- what the evidence says, as a table


def raced() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((EVIDENCE / "teaching.json").read_text())
    return rows


def beside(kernel: str, dtype: str, problem: str, *options: str) -> dict[str, dict[str, Any]]:
    """Return what one winner was timed in turn with, by the rival's name; none is there twice."""
    wanted = (kernel, dtype, problem, list(options))
    rows = [row for row in raced() if (row["kernel"], row["dtype"], row["problem"], row["options"]) == wanted]
    found = {row["rival"]: row for row in rows}
    assert found and len(found) == len(rows)
    return found


def layout(configuration: dict[str, Any]) -> str:
    name = f"`{configuration['variant']}`"
    if "stream_warps" in configuration:
        tile = f"{configuration['block_m']} x {configuration['block_n']}"
        return f"{name}, {configuration['stream_warps']} streaming warps, tiles of {tile}"
    if "tile_bytes" in configuration:
        stages, size = configuration["stages"], configuration["tile_bytes"]
        ring = f"{stages} stages of {size} bytes" if stages > 1 else f"one tile of {size} bytes"
        return f"{name}, {ring}{', and a bulk store' if configuration['bulk_store'] else ''}"
    side = ", side by side" if configuration.get("arrangement") == "blocked" else ""
    return f"{name}, {configuration['items_per_thread']} x {configuration['vector_width']}{side}"


def rival(row: dict[str, Any] | None) -> str:
    if row is None:
        return "it is the default"
    return f"{row['rival_ns'] / 1e3:.2f} ({row['ratio']:.3f}, {row['verdict']})"


def line(found: dict[str, dict[str, Any]], *names: str) -> list[str]:
    best = next(iter(found.values()))
    figures = [f"{best['ours_ns'] / 1e3:.2f}", f"{best['gbytes_per_s']:.0f}"]
    return [*figures, *(rival(found.get(name)) for name in names), layout(best["configuration"])]


# -- what `tune ladder` printed


@dataclass(frozen=True)
class Rung:
    """One line of a contest."""

    name: str
    kind: str
    """Its dtype or option, where rungs differ in it."""
    time: str
    peak: str
    over: str
    against: str
    launch: bool
    """Whether most of the time is the launch."""

    @property
    def seconds(self) -> float:
        number, unit = self.time.split()
        return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


@dataclass(frozen=True)
class Contest:
    """One size."""

    label: str
    mode: str
    first: str
    """The rung that all others are compared with."""
    library: str
    rungs: dict[tuple[str, str], Rung]
    own: list[str]
    """The names of the kernel's own rungs, in order."""


RUNG = re.compile(
    r"(?P<name>\S+(?: \S+)*)\s+(?:(?P<kind>float32|float16|product=\w+)\s+)?"
    r"(?P<time>[\d.]+ [um]?s|-)(?=\s|$)(?:\s+[\d.]+ (?:[GTM]B|[GT]FLOP)/s)?(?:\s+(?P<peak>[\d.]+)%)?"
    r"(?:\s+(?P<over>[\d.e+]+)x(?P<star> \*)?)?"
    r"(?:\s+(?:(?P<verdict>slower|faster|launch latency): (?P<ratio>[\d.]+)x \("
    r"|(?P<unsure>(?:same|ambiguous) \(.*?\))))?"
)


def ladder_text(kernel: str) -> str:
    return (EVIDENCE / f"ladder-{kernel}.txt").read_text()


def contests(kernel: str) -> list[Contest]:
    text = ladder_text(kernel)
    own = re.findall(r"^  (\S+(?: \S+)*?)  ", text.split("\n\n")[0], re.MULTILINE)
    launched = set(
        re.findall(r"^(\S+(?: \S+)*?) {2,}(\S+ \S+) !", text.partition("time, by n")[2], re.MULTILINE)
    )
    found = []
    blocks = re.findall(
        rf"^{kernel} \S*?=?(2\^\d+|\d+) on .*\n((?:  timed .*\n)+)rung (.*)\n((?:\S.*\n)+)",
        text,
        re.MULTILINE,
    )
    for label, timed, head, lines in blocks:
        (mode,) = set(re.findall(r"(rotating|cold), rested", timed))
        rungs = {}
        for text_ in lines.splitlines():
            row = RUNG.match(text_)
            assert row, text_
            kind = (row["kind"] or "").removeprefix("product=")
            against = f"{row['ratio']}, {row['verdict']}" if row["verdict"] else row["unsure"] or "-"
            rungs[row["name"], kind] = Rung(
                name=row["name"],
                kind=kind,
                time=row["time"],
                peak=f"{row['peak']} %" if row["peak"] else "-",
                over=f"{row['over']}{row['star'] or ''}" if row["over"] else "-",
                against=against,
                launch=(row["name"], row["time"]) in launched,
            )
        names = re.search(r"over (\S+(?: \S+)*?) {2,}against (\w+)", head)
        assert names
        found.append(Contest(label, mode, names[1], names[2], rungs, own))
    assert found
    return found


def worth(before: Rung | None, rung: Rung) -> str:
    """Say how many times as fast as the step before, of the same contest; nothing where the launch decides both."""
    if before is None or before.kind != rung.kind or (before.launch and rung.launch):
        return ""
    ratio = before.seconds / rung.seconds
    return f" ({ratio:.{0 if ratio >= 100 else 1 if ratio >= 10 else 2}f})"


def cell(contest: Contest, key: tuple[str, str]) -> str:
    rung = contest.rungs[key]
    if rung.time == "-" or rung.name not in contest.own:
        return rung.time
    before = [one for one in contest.rungs.values() if one.name in contest.own and one.time != "-"]
    place = before.index(rung)
    return f"{rung.time}{worth(before[place - 1] if place else None, rung)}"


def ladder(kernel: str, kind: str = "") -> Table:
    """Every rung at every size, and the largest one's shares and verdicts."""
    sizes = contests(kernel)
    last = sizes[-1]
    kinds = [kind] if kind else []
    head = ["rung", *kinds, *(f"{one.label}, {one.mode}" for one in sizes)]
    ends = (
        f"of peak, {last.label}",
        f"over {last.first}, {last.label}",
        f"against {last.library}, {last.label}",
    )
    found: Table = [[*head, *ends]]
    for key, rung in last.rungs.items():
        assert bool(rung.kind) == bool(kind)
        times = [cell(contest, key) for contest in sizes]
        found.append([rung.name, *([rung.kind] if kind else []), *times, rung.peak, rung.over, rung.against])
    return found


def seconds(kernel: str, contest: int, *names: str) -> list[float]:
    rungs = {name: rung for (name, _), rung in contests(kernel)[contest].rungs.items() if name in names}
    return [rungs[name].seconds for name in names]


# -- the pages


def prose(page: Path) -> str:
    return " ".join(page.read_text().split())
