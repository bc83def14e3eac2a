"""The results of ``tune ladder`` as text, a table for each size and one over all sizes, and for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from tuner.core.groups import grouped
from tuner.core.model import value_text
from tuner.core.stats import UNDECIDED
from tuner.devices.base import Timed
from tuner.report import tables
from tuner.report.configurations import Texts, launch_note
from tuner.report.terminal import printable
from tuner.studies.bench_report import contestant_record
from tuner.studies.ladder import Ladder, Level, StepComparison, size_text, sizes_text


def flavour(comparison: StepComparison, others: Sequence[StepComparison]) -> str:
    """Return how a comparison's problem differs from those of others: its dtype, its options; empty if it does not."""
    if len({other.problem.key for other in others}) < 2:
        return ""
    problem = comparison.problem
    parts = [problem.dtype] if len({other.problem.dtype for other in others}) > 1 else []
    for name, value in problem.options.items():
        if len({other.problem.options.get(name) for other in others}) > 1:
            parts.append(f"{name}={value_text(value)}")
    if not parts:  # in another role than the first
        parts = [f"{role}={dtype}" for role, dtype in problem.dtypes.items()]
    return " ".join(parts)


def show_steps(ladder: Ladder) -> None:
    """Print the steps with their descriptions."""
    mark = " [replayed]" if ladder.replayed else ""
    click.echo(printable(f"the ladder of {ladder.kernel.name} on {ladder.gpu.name}{mark}"))
    tables.show_pairs((f"  {step.name}", step.doc or f"variant {step.variant}") for step in ladder.steps)
    click.echo()


def show_level(ladder: Ladder, level: Level, texts: Texts) -> None:
    """Print everything at one size."""
    mark = " [replayed]" if ladder.replayed else ""
    click.echo(printable(f"{ladder.kernel.name} {sizes_text(level.sizes)} on {ladder.gpu.name}{mark}"))
    first = level.first(ladder.steps)
    tables.show_pairs(("  timed", line) for line in _timed(level))
    if level.comparisons:
        alone = len(level.comparisons) == 1
        over = f"over {first}" if alone else f"over the first of its {_differing(level)}"
        against, what = _against_head(level), f"what{texts.note}"
        rows = _rows(level, ladder, (over, against, what), texts)
        shown = [head for head in rows[0] if any(row[head] for row in rows)]
        if all(row["verified"] == "yes" for row in rows):
            shown.remove("verified")
        stacked = [head for head in (what, against, "verified", "rate", "of peak") if head in shown]
        rows = [{head: row[head] for head in shown} for row in rows]
        tables.show_rows(rows, right=("time", "rate", "of peak", over), stacked=stacked)
    for line in _notes(ladder, level):
        tables.show_text(line, "  ", "    ")
    click.echo()


def _differing(level: Level) -> str:
    """Return in what the problems of a size differ."""
    return "dtype" if len({one.problem.dtype for one in level.comparisons}) > 1 else "kind"


def _against_head(level: Level) -> str:
    best = (comparison.best_baseline for comparison in level.comparisons)
    names = list(dict.fromkeys(baseline.name for baseline in best if baseline))
    return f"against {names[0]}" if len(names) == 1 else "against the best baseline"


def _timed(level: Level) -> list[str]:
    """Return how each comparison was timed, once if all were timed alike."""
    lines: dict[str, list[str]] = {}
    for comparison in level.comparisons:
        fastest = comparison.fastest
        noise = f"; noise floor {100 * comparison.noise_floor(fastest):.2g} %" if fastest else ""
        lines.setdefault(f"{comparison.conditions}: {comparison.why}{noise}", []).append(
            flavour(comparison, level.comparisons)
        )
    tags = sorted({tag for comparison in level.comparisons for tag in comparison.tags if tag != "replayed"})
    held = [f"clocks held down by {', '.join(tags)}"] if tags else []
    one = len(lines) == 1
    return [line if one else f"{' and '.join(names)}: {line}" for line, names in lines.items()] + held


def _rows(level: Level, ladder: Ladder, heads: tuple[str, str, str], texts: Texts) -> list[dict[str, str]]:
    """Return a row for each step in the ladder's order, then for each baseline; ``heads`` differ by level."""
    over, against, what = heads

    def row(name: str, timed: tuple[StepComparison, Timed] | None) -> dict[str, str]:
        if timed is None:
            heads = ("step", "in", "time", "rate", "of peak", over, against, "verified", what)
            return {**dict.fromkeys(heads, ""), "step": name, "time": "-", "verified": "yes"}
        comparison, timing = timed
        figures, configuration = comparison.metrics(timing), timing.configuration
        return {
            "step": name,
            "in": flavour(comparison, level.comparisons),
            "time": tables.duration(timing.time_ns),
            "rate": tables.throughput(figures),
            "of peak": tables.percent(figures.of_peak),
            over: _over(comparison, timing),
            against: _against(comparison, timing),
            "verified": "yes" if timing.verified else "NO",
            what: timing.contestant.text if configuration is None else texts.cell(configuration),
        }

    steps = [(step.name, level.find(step.name)) for step in ladder.steps]
    others = [(one.name, (each, one)) for each in level.comparisons for one in each.baselines]
    return [
        row(name, timed) for name, timed in (*steps, *others) if timed is not None or name in level.absent
    ]


def _against(comparison: StepComparison, timing: Timed) -> str:
    """Return a step compared with the fastest baseline; if both are little more than a launch, the verdict says so."""
    best_baseline = comparison.best_baseline
    if best_baseline is None or timing.configuration is None:
        return ""
    compared = comparison.against(timing, best_baseline)
    short = comparison.by_launch(timing) and comparison.by_launch(best_baseline)
    launch = short and compared.verdict not in UNDECIDED
    ratio = compared.ratio
    text = tables.speedup(ratio.median, ratio.low, ratio.high, "" if launch else compared.verdict)
    return f"{text}; launch latency" if launch else text


def _over(comparison: StepComparison, timing: Timed) -> str:
    """Return the speedup over the first step of the same dtype and options: others do other work."""
    if not comparison.steps:
        return ""
    times = comparison.against(timing, comparison.steps[0]).ratio.median
    return f"{times:.2f}x" if 0.1 <= times < 100 else f"{times:.3g}x"


def _notes(ladder: Ladder, level: Level) -> list[str]:
    """Return what the table does not show: where the launch decides, which steps are tied or missing, and why."""
    notes = []
    for comparison in level.comparisons:
        name = flavour(comparison, level.comparisons)
        text = _undecided(comparison)
        notes += [f"{name}: {text}" if name else text] if text else []
    kinds = {flavour(one, level.comparisons): one.steps[0].name for one in level.comparisons if one.steps}
    if len(kinds) > 1:
        firsts = "; ".join(f"{kind} {name}" for kind, name in kinds.items())
        notes.append(f"speedups are over the first step of the same {_differing(level)}: {firsts}")
    reasons = grouped(level.absent, lambda name: level.absent[name].reason)
    for reason, names in reasons.items():
        every = len(names) == len(ladder.steps) > 1
        notes.append(f"{'every step' if every else '; '.join(names)}: {reason}")
    failures = (failure for comparison in level.comparisons for failure in comparison.failures)
    notes += dict.fromkeys(f"{failure.name} could not be timed: {failure.error}" for failure in failures)
    if ladder.replayed:
        notes.append("recorded samples: nothing was measured here, and there are no others to compare with")
    return notes


def _undecided(comparison: StepComparison) -> str:
    first, tied = comparison.fastest, comparison.tied
    if first is None:
        return ""
    launch = launch_note(comparison.calibration, comparison.conditions, first.time_ns, tied=bool(tied))
    if launch or not tied:
        return launch
    return f"{first.name} is tied with {_listed([timing.name for timing in tied])}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# -- over all sizes


def show_summary(ladder: Ladder) -> None:
    """Print the times of every step and baseline over all sizes, and the shares of the peak."""
    levels = [level for level in ladder.levels if level.comparisons]
    if len(levels) < 2:
        return
    by, heads = _heads(ladder, levels)
    series = series_of(ladder, levels)

    def table(title: str, cell: Callable[[StepComparison, Timed], str]) -> None:
        rows = [
            (name, *(cell(*one) if one is not None else "-" for one in timings))
            for name, timings in series.items()
        ]
        if any(any(text not in ("", "-") for text in row[1:]) for row in rows):
            click.echo(f"{title}, by {by}")
            tables.show(("step", *heads), rows, right=heads)
            click.echo()

    table("time", lambda _, timing: tables.duration(timing.time_ns))
    table("of peak", lambda comparison, timing: tables.percent(comparison.metrics(timing).of_peak))


def _heads(ladder: Ladder, levels: Sequence[Level]) -> tuple[str, list[str]]:
    """Return the swept sizes' name, and a head for each level: its size, or all of its sizes if they differ."""
    names = [name for name in ladder.swept if any(name in level.sizes for level in levels)]
    if all(len(set(level.sizes.values())) == 1 for level in levels):
        return "=".join(names), [size_text(next(iter(level.sizes.values()))) for level in levels]
    return ", ".join(names), [sizes_text(level.sizes) for level in levels]


def series_of(
    ladder: Ladder, levels: Sequence[Level]
) -> dict[str, list[tuple[StepComparison, Timed] | None]]:
    """Return by name the timings at every level of each step, and of each baseline of each kind of problem."""
    series: dict[str, list[tuple[StepComparison, Timed] | None]] = {
        step.name: [level.find(step.name) for level in levels] for step in ladder.steps
    }
    for index, level in enumerate(levels):
        for comparison in level.comparisons:
            kind = flavour(comparison, level.comparisons)
            for baseline in comparison.baselines:
                name = f"{baseline.name} ({kind})" if kind else baseline.name
                series.setdefault(name, [None] * len(levels))[index] = (comparison, baseline)
    return series


# -- for programs


def ladder_as_json(ladder: Ladder) -> dict[str, Any]:
    """Return everything for programs, samples included."""
    return {
        "kernel": ladder.kernel.name,
        "gpu": ladder.gpu.name,
        "gpu_uuid": ladder.gpu.uuid,
        "driver": ladder.gpu.driver,
        **tables.picked(ladder, "device replayed complete swept"),
        "rungs": [tables.picked(step, "name doc variant parameters dtypes options") for step in ladder.steps],
        "levels": [_level_record(ladder, level) for level in ladder.levels],
    }


def _level_record(ladder: Ladder, level: Level) -> dict[str, Any]:
    absent = {name: tables.picked(absence, "reason failed") for name, absence in level.absent.items()}
    first = level.first(ladder.steps)
    comparisons = [_comparison_record(level, comparison, first) for comparison in level.comparisons]
    return {"sizes": dict(level.sizes), "first": first or None, "contests": comparisons, "absent": absent}


def _comparison_record(level: Level, comparison: StepComparison, first: str) -> dict[str, Any]:
    fastest, best_baseline = comparison.fastest, comparison.best_baseline
    launch_ns = comparison.calibration.launch_ns if comparison.calibration else {}
    return {
        "problem": comparison.problem.to_json(),
        **tables.picked(comparison.conditions, "mode regime"),
        "why": comparison.why,
        **tables.picked(comparison.roof, "flops bytes"),
        "noise_floor": comparison.noise_floor(fastest) if fastest else None,
        "launch_ns": launch_ns.get(str(comparison.conditions.mode)),
        "launch_decides": comparison.launch_decides,
        "fastest": fastest.name if fastest else None,
        "tied": [timing.name for timing in comparison.tied],
        "against": best_baseline.name if best_baseline else None,
        "tags": list(comparison.tags),
        "contestants": [_timing_record(level, comparison, timing, first) for timing in comparison.timings],
        "failed": [failure.to_json() for failure in comparison.failures],
    }


def _timing_record(level: Level, comparison: StepComparison, timing: Timed, first: str) -> dict[str, Any]:
    tuned = comparison.tuned.get(timing.name) if timing.configuration else None
    best_baseline = comparison.best_baseline
    over = level.speed_up(comparison, timing, first)
    against = comparison.against(timing, best_baseline) if tuned and best_baseline else None
    return contestant_record(
        comparison,
        timing,
        rung=tuned is not None,
        trial=tuned.trial_id if tuned else None,
        run=tuned.run if tuned else None,
        trials=tuned.trials if tuned else None,
        known=tuned.reused if tuned else None,
        over_first={**vars(over[0]), "paired": over[1]} if over else None,
        versus={**vars(against.ratio), "verdict": against.verdict} if against else None,
        by_launch=comparison.by_launch(timing),
    )
