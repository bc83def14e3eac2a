"""What ``tune ladder`` found: a table for each size, one over all sizes, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import click

from tuner.bench.report import comparison
from tuner.ladder.ladder import UNDECIDED, Contest, Ladder, Level, Place, SpeedUp
from tuner.report.launch import launch_note
from tuner.report.tables import duration, percent, printable, show, show_pairs, throughput

OTHER = " *"
"""Behind a speed-up over times of another contest."""
BY_LAUNCH = " !"
"""Behind a time that is the launch's more than the kernel's."""


def size_text(value: int) -> str:
    """Write a size: a large power of two as such."""
    exponent = value.bit_length() - 1
    return f"2^{exponent}" if value == 1 << exponent and exponent >= 14 else str(value)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Name a level by its sizes: ``m=n=k=4096``, or ``m=16 n=8192``."""
    if len(sizes) > 1 and len(set(sizes.values())) == 1:
        return f"{'='.join(sizes)}={size_text(next(iter(sizes.values())))}"
    return " ".join(f"{name}={size_text(value)}" for name, value in sizes.items())


def flavour(contest: Contest, others: Sequence[Contest]) -> str:
    """Say in what a contest's problem differs from those of others: its dtype, its options; empty where in nothing."""
    if len({other.problem.key for other in others}) < 2:
        return ""
    problem = contest.problem
    parts = [problem.dtype] if len({other.problem.dtype for other in others}) > 1 else []
    for name, value in problem.options.items():
        if len({other.problem.options.get(name) for other in others}) > 1:
            parts.append(f"{name}={value}")
    if not parts:  # in another role than the first
        parts = [f"{role}={dtype}" for role, dtype in problem.dtypes.items()]
    return " ".join(parts)


def show_story(ladder: Ladder) -> None:
    """Print the rungs, and what each of them is about."""
    mark = " [replayed]" if ladder.replayed else ""
    click.echo(printable(f"the ladder of {ladder.kernel.name} on {ladder.gpu.name}{mark}"))
    show_pairs((f"  {rung.name}", rung.doc or f"variant {rung.variant}") for rung in ladder.rungs)
    click.echo()


def show_level(ladder: Ladder, level: Level) -> None:
    """Print everything at one size."""
    mark = " [replayed]" if ladder.replayed else ""
    click.echo(printable(f"{ladder.kernel.name} {sizes_text(level.sizes)} on {ladder.gpu.name}{mark}"))
    first = level.first(ladder.rungs)
    show_pairs(("  timed", line) for line in _timed(level))
    if level.contests:
        rows = _rows(ladder, level, first)
        rivals = dict.fromkeys(contest.rival.name for contest in level.contests if contest.rival)
        against = f"against {next(iter(rivals))}" if len(rivals) == 1 else "against the best other"
        table = {
            "rung": [row["name"] for row in rows],
            "in": [row["flavour"] for row in rows],
            "time": [row["time"] for row in rows],
            "rate": [row["rate"] for row in rows],
            "of peak": [row["of_peak"] for row in rows],
            f"over {first}": [row["over"] for row in rows],
            against: [row["against"] for row in rows],
            "verified": [row["verified"] for row in rows],
            "what": [row["what"] for row in rows],
        }
        shown = {head: cells for head, cells in table.items() if any(cells)}
        if all(row["verified"] == "yes" for row in rows):
            del shown["verified"]
        show(
            list(shown),
            zip(*shown.values(), strict=True),
            right=("time", "rate", "of peak", f"over {first}"),
        )
    for line in _notes(ladder, level, first):
        click.echo(f"  {printable(line)}")
    click.echo()


def _timed(level: Level) -> list[str]:
    """Say how each contest was timed, once where all were alike."""
    lines: dict[str, list[str]] = {}
    for contest in level.contests:
        fastest = contest.fastest
        noise = f"; noise floor {100 * contest.noise_floor(fastest):.2g} %" if fastest else ""
        lines.setdefault(f"{contest.conditions}: {contest.why}{noise}", []).append(
            flavour(contest, level.contests)
        )
    tags = sorted({tag for contest in level.contests for tag in contest.tags if tag != "replayed"})
    held = [f"clocks held down by {', '.join(tags)}"] if tags else []
    one = len(lines) == 1
    return [line if one else f"{' and '.join(names)}: {line}" for line, names in lines.items()] + held


def _rows(ladder: Ladder, level: Level, first: str) -> list[dict[str, str]]:
    """Return a row for each rung in the order of the story, then for each baseline."""
    found = [(rung.name, level.find(rung.name)) for rung in ladder.rungs]
    rows = [
        _row(level, *place, first) if place is not None else _empty(name)
        for name, place in found
        if place is not None or name in level.absent
    ]
    for contest in level.contests:
        rows += [_row(level, contest, place, first) for place in contest.baselines]
    return rows


def _empty(name: str) -> dict[str, str]:
    blank = dict.fromkeys(("flavour", "rate", "of_peak", "over", "against", "what"), "")
    return {"name": name, **blank, "time": "-", "verified": "yes"}


def _row(level: Level, contest: Contest, place: Place, first: str) -> dict[str, str]:
    found = contest.metrics(place)
    return {
        "name": place.name,
        "flavour": flavour(contest, level.contests),
        "time": duration(place.time_ns),
        "rate": throughput(found),
        "of_peak": percent(found.speed_of_light) if not place.on_host else "",
        "over": _over(level.speed_up(contest, place, first)),
        "against": _against(contest, place),
        "verified": "yes" if place.verified else "NO",
        "what": place.text,
    }


def _against(contest: Contest, place: Place) -> str:
    """Compare a rung with the fastest baseline; where both are a launch and little else, that is the verdict."""
    rival = contest.rival
    if rival is None or place.tuned is None:
        return ""
    found = contest.against(place, rival)
    launch = contest.by_launch(place) and contest.by_launch(rival) and found.verdict not in UNDECIDED
    return comparison(
        found.ratio.median, found.ratio.low, found.ratio.high, "launch latency" if launch else found.verdict
    )


def _over(found: SpeedUp | None) -> str:
    if found is None:
        return ""
    times = found.ratio.median
    text = f"{times:.2f}x" if 0.1 <= times < 100 else f"{times:.3g}x"
    return text if found.paired else f"{text}{OTHER}"


def _notes(ladder: Ladder, level: Level, first: str) -> list[str]:
    """Say what the numbers do not: where the launch decides, who is tied, who is missing and why."""
    notes = []
    for contest in level.contests:
        name = flavour(contest, level.contests)
        text = _undecided(contest)
        notes += [f"{name}: {text}" if name else text] if text else []
    base = level.find(first)
    if base is not None and any(contest is not base[0] for contest in level.contests):
        notes.append(
            f"{OTHER.strip()} another problem than {first}'s: both times were taken, but not in turn"
        )
    reasons: dict[str, list[str]] = {}
    for name, absence in level.absent.items():
        reasons.setdefault(absence.reason, []).append(name)
    for reason, names in reasons.items():
        every = len(names) == len(ladder.rungs) > 1
        notes.append(f"{'every rung' if every else '; '.join(names)}: {reason}")
    failures = (failure for contest in level.contests for failure in contest.failures)
    notes += dict.fromkeys(f"{failure.name} could not be timed: {failure.error}" for failure in failures)
    if ladder.replayed:
        notes.append("recorded samples: nothing was measured here, and there are no others to compare with")
    return notes


def _undecided(contest: Contest) -> str:
    first, tied = contest.fastest, contest.tied
    if first is None:
        return ""
    launch = launch_note(contest.calibration, contest.conditions, first.time_ns, tied=bool(tied))
    if launch or not tied:
        return launch
    return f"{first.name} cannot be told from {_listed([place.name for place in tied])}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# -- over all sizes


def show_summary(ladder: Ladder) -> None:
    """Print the times of every rung and baseline over all sizes, and the shares of the speed of light."""
    levels = [level for level in ladder.levels if level.contests]
    if len(levels) < 2:
        return
    by, heads = _heads(ladder, levels)
    series = series_of(ladder, levels)

    def table(title: str, cell: Callable[[Contest, Place], str]) -> None:
        rows = [
            (name, *(cell(*found) if found is not None else "-" for found in places))
            for name, places in series.items()
        ]
        if any(any(text not in ("", "-") for text in row[1:]) for row in rows):
            click.echo(f"{title}, by {by}")
            show(("rung", *heads), rows, right=heads)
            click.echo()

    table("time", lambda contest, place: f"{duration(place.time_ns)}{_mark(contest, place)}")
    table(
        "of the speed of light",
        lambda contest, place: "" if place.on_host else percent(contest.metrics(place).speed_of_light),
    )
    if any(contest.launch_decides for level in levels for contest in level.contests):
        click.echo(f"{BY_LAUNCH.strip()} launch latency decides: most of this is the launch, not the kernel")


def _heads(ladder: Ladder, levels: Sequence[Level]) -> tuple[str, list[str]]:
    """Name what was swept, and each level by it; by itself where several sizes move and differ."""
    names = [name for name in ladder.swept if any(name in level.sizes for level in levels)]
    if all(len(set(level.sizes.values())) == 1 for level in levels):
        return "=".join(names), [size_text(next(iter(level.sizes.values()))) for level in levels]
    return ", ".join(names), [sizes_text(level.sizes) for level in levels]


def _mark(contest: Contest, place: Place) -> str:
    return BY_LAUNCH if contest.launch_decides and contest.by_launch(place) else ""


def series_of(ladder: Ladder, levels: Sequence[Level]) -> dict[str, list[tuple[Contest, Place] | None]]:
    """Return each rung, and each baseline of each kind of problem, by name: what it took at every level."""
    series: dict[str, list[tuple[Contest, Place] | None]] = {
        rung.name: [level.find(rung.name) for level in levels] for rung in ladder.rungs
    }
    for place, level in enumerate(levels):
        for contest in level.contests:
            kind = flavour(contest, level.contests)
            for baseline in contest.baselines:
                name = f"{baseline.name} ({kind})" if kind else baseline.name
                series.setdefault(name, [None] * len(levels))[place] = (contest, baseline)
    return series
