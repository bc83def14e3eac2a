"""What ``tune ladder`` printed: a table for each kernel, and single figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from scripts.page_figures.evidence import Rows, table, text

LINE = re.compile(
    r"(?P<name>\S+(?: \S+)*)\s+(?:(?P<kind>float32|float16|product=\w+)\s+)?"
    r"(?P<time>[\d.]+ [um]?s|-)(?=\s|$)(?:\s+[\d.]+ (?:[GTM]B|[GT]FLOP)/s)?(?:\s+(?P<peak>[\d.]+) ?%)?"
    r"(?:\s+(?P<over>[\d.e+]+)x(?P<star> \*)?)?"
    r"(?:\s+(?:(?P<verdict>slower|faster|launch latency): (?P<ratio>[\d.]+)x \("
    r"|(?P<unsure>(?:same|ambiguous) \(.*?\))))?"
)
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Step:
    """One line of a comparison."""

    name: str
    kind: str
    """Its dtype or option, where steps differ in it."""
    time: str
    peak: str
    over: str
    against: str
    launch: bool
    """Whether most of the time is the launch."""

    @property
    def seconds(self) -> float:
        number, unit = self.time.split()
        return float(number) * UNITS[unit]


@dataclass(frozen=True)
class Comparison:
    """All steps at one size."""

    size: str
    mode: str
    first: str
    """The step that all others are compared with."""
    library: str
    steps: dict[tuple[str, str], Step]
    own: list[str]
    """The names of the kernel's own steps, in order."""


@cache
def comparisons(kernel: str) -> tuple[Comparison, ...]:
    """Return what was printed for each size."""
    printed = text(f"ladder-{kernel}.txt")
    own = re.findall(r"^  (\S+(?: \S+)*?)  ", printed.split("\n\n")[0], re.MULTILINE)
    launched = set(
        re.findall(r"^(\S+(?: \S+)*?) {2,}(\S+ \S+) !", printed.partition("time, by n")[2], re.MULTILINE)
    )
    blocks = re.findall(
        rf"^{kernel} \S*?=?(2\^\d+|\d+) on .*\n((?:  .*\n)+)(?:rung|step) (.*)\n((?:\S.*\n)+)",
        printed,
        re.MULTILINE,
    )
    return tuple(_comparison(size, timed, head, lines, own, launched) for size, timed, head, lines in blocks)


def _comparison(
    size: str, timed: str, head: str, lines: str, own: list[str], launched: set[tuple[str, str]]
) -> Comparison:
    (mode,) = set(re.findall(r"(rotating|cold), rested", timed))
    names = re.search(r"over (\S+(?: \S+)*?) {2,}against (\w+)", head)
    assert names
    steps = {(step.name, step.kind): step for step in _steps(lines, launched)}
    return Comparison(size, mode, names[1], names[2], steps, own)


def _steps(lines: str, launched: set[tuple[str, str]]) -> Iterator[Step]:
    for line in lines.splitlines():
        if line.startswith("numpy "):  # on the host, which is compared with no more
            continue
        row = LINE.match(line)
        assert row, line
        yield Step(
            name=row["name"],
            kind=(row["kind"] or "").removeprefix("product="),
            time=row["time"],
            peak=f"{row['peak']} %" if row["peak"] else "-",
            over=f"{row['over']}{row['star'] or ''}" if row["over"] else "-",
            against=f"{row['ratio']}, {row['verdict']}" if row["verdict"] else row["unsure"] or "-",
            launch=(row["name"], row["time"]) in launched,
        )


def _timed(comparison: Comparison) -> list[Step]:
    return [step for step in comparison.steps.values() if step.time != "-"]


def gain(comparison: Comparison, step: Step) -> str:
    """Return how many times as fast as the step before; nothing where the launch decides both, or the kinds differ."""
    timed = _timed(comparison)
    index = timed.index(step)
    before = timed[index - 1] if index else None
    if before is None or before.kind != step.kind or (before.launch and step.launch):
        return ""
    ratio = before.seconds / step.seconds
    return f"{ratio:.{0 if ratio >= 100 else 1 if ratio >= 10 else 2}f}"


def _cell(comparison: Comparison, key: tuple[str, str]) -> str:
    step = comparison.steps[key]
    if step.time == "-" or step.name not in comparison.own:
        return step.time
    ratio = gain(comparison, step)
    return f"{step.time} ({ratio})" if ratio else step.time


def ladder(kernel: str, kind: str = "") -> str:
    """Return every step at every size, and the largest one's shares and verdicts; ``kind`` is a column's name."""
    sizes = comparisons(kernel)
    last = sizes[-1]
    kinds = [kind] if kind else []
    ends = (
        f"of peak, {last.size}",
        f"over {last.first}, {last.size}",
        f"against {last.library}, {last.size}",
    )
    rows: Rows = [["step", *kinds, *(f"{one.size}, {one.mode}" for one in sizes), *ends]]
    for key, step in last.steps.items():
        assert bool(step.kind) == bool(kind), f"{kernel}: name the column of {step.kind or 'nothing'}"
        times = [_cell(comparison, key) for comparison in sizes]
        rows.append([step.name, *([step.kind] if kind else []), *times, step.peak, step.over, step.against])
    return table(rows)


def _step(kernel: str, size: str, name: str) -> tuple[Comparison, Step]:
    (comparison,) = (one for one in comparisons(kernel) if one.size == size)
    step = next(step for (key, _), step in comparison.steps.items() if key == name)
    return comparison, step


def figure(kernel: str, size: str, name: str, what: str) -> str:
    """Return one figure of a step: ``time``, ``peak``, ``against`` (a library) or ``gain`` (over the step before)."""
    comparison, step = _step(kernel, size, name)
    figures = {
        "time": step.time,
        "peak": step.peak,
        "against": step.against.partition(",")[0],
        "gain": gain(comparison, step),
    }
    return figures[what]


def ratio(kernel: str, size: str, slower: str, faster: str, digits: str = "2") -> str:
    """Return one step's time over another's."""
    (_, first), (_, second) = _step(kernel, size, slower), _step(kernel, size, faster)
    return f"{first.seconds / second.seconds:.{digits}f}"


def percent(kernel: str, size: str, slower: str, faster: str, digits: str = "0") -> str:
    """Return by how much one step takes longer than another."""
    (_, first), (_, second) = _step(kernel, size, slower), _step(kernel, size, faster)
    return f"{100 * (first.seconds / second.seconds - 1):.{digits}f} %"
