"""The results of ``tune bench`` as tables, as JSON, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from tuner.core.stats import UNDECIDED
from tuner.database.records import Benchmark
from tuner.kernel.roofline import Roof
from tuner.report.configurations import Texts, builtin, head_of
from tuner.report.launch_note import launch_note
from tuner.report.plots import Bar, BarGroup, plot_times
from tuner.report.tables import (
    comparison_record,
    configuration_record,
    duration,
    interval,
    percent,
    picked,
    problem_text,
    show,
    show_pairs,
    show_text,
    throughput,
    timing_record,
)
from tuner.report.terminal import printable
from tuner.studies.bench.bench import Bench, Entry, SpeedCheck
from tuner.tuning.ceiling import roof_under
from tuner.tuning.trials import metrics

HISTORY_HEADS = (
    *("when", "kernel", "problem", "gpu", "timed", "contestant", "configuration", "time", "95 % interval"),
    "best is",
)


def show_bench(result: Bench, *, full: bool = False) -> None:
    """Print how the contestants of one problem were timed, and their times; with ``full`` all of their parameters."""
    target, texts = result.target, Texts.of_kernel(result.target.kernel, full=full)
    click.echo(printable(f"{target.problem} on {result.gpu.name}"))
    calibration = result.calibration.notes if result.calibration is not None else ()
    noise = f"; noise floor {100 * result.noise_floor:.2g} %" if result.entries else ""
    pairs: list[tuple[str, object]] = [
        ("  timed", f"{target.conditions}: {target.why}{noise}"),
        *(("  note", note) for note in (*calibration, *result.notes)),
        ("  clocks", f"held down by {', '.join(result.tags)}" if result.tags else ""),
    ]
    show_pairs(pairs)
    if not result.entries:
        return
    compared = f"{result.reference} is" if result.reference else ""
    what = head_of("what", full=full)
    heads = ("contestant", what, "time", "95 % interval", "rate", "of peak", compared, "verified")
    roof = _roof(result)
    rows = [
        (
            entry.contestant.name,
            texts.cell(entry.contestant.configuration)
            if entry.contestant.configuration
            else entry.contestant.text,
            duration(entry.time_ns),
            interval(*entry.interval_ns),
            throughput(metrics(roof, entry.time_ns)),
            percent(metrics(roof, entry.time_ns).speed_of_light),
            _compared(entry),
            "yes" if entry.verified else "NO",
        )
        for entry in result.entries
    ]
    show(
        heads,
        rows,
        right=("time", "rate", "of peak"),
        stacked=[head for head in (what, "verified", "95 % interval", compared, "of peak") if head],
    )
    note = launch_note(result.calibration, target.conditions, result.entries[0].time_ns, tied=_tied(result))
    if result.reference and note:
        show_text(note, "  ", "  ")


def _tied(result: Bench) -> bool:
    """Return whether another contestant is statistically tied with the reference."""
    return any(entry.verdict in UNDECIDED for entry in result.entries[1:])


def _launch_decides(result: Bench) -> bool:
    if result.calibration is None or not result.reference:
        return False
    conditions, first = result.target.conditions, result.entries[0]
    return result.calibration.launch_decides(conditions, first.time_ns, tied=_tied(result))


def _roof(result: Bench) -> Roof:
    return roof_under(result.roof, result.target.conditions.mode)


def comparison_text(ratio: float | None, low: float | None, high: float | None, verdict: str) -> str:
    """Return how much faster the reference is, unless the difference is within the noise or not sure."""
    if ratio is None or low is None or high is None:
        return verdict
    ends = f"({_factor(low)} .. {_factor(high)})"
    return f"{verdict} {ends}" if verdict in UNDECIDED else f"{verdict}: {_factor(ratio)}x {ends}"


def _factor(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"


def _compared(entry: Entry) -> str:
    ratio = entry.ratio
    if ratio is None or entry.verdict is None:
        return ""
    return comparison_text(ratio.median, ratio.low, ratio.high, entry.verdict)


def show_check(result: SpeedCheck) -> None:
    """Print whether a stored winner is as fast as it was."""
    show_text(f"{'SLOWER' if result.slower else 'as fast as it was'}: {check_text(result)}", "  ", "    ")


def check_text(result: SpeedCheck) -> str:
    """Return what was compared, and what was allowed."""
    before = f"{duration(result.before_ns)} on {result.before[:10]}"
    if result.now_ns is None:
        return f"it cannot be run: {printable(result.reason)}; it took {before}"
    machine = (
        "on the same GPU and driver" if result.same_machine else "on another GPU or driver of the same name"
    )
    change = result.now_ns / result.before_ns - 1.0
    return (
        f"{duration(result.now_ns)} now, {before} ({100 * change:+.1f} %); "
        f"{100 * result.tolerance:.2g} % are allowed {machine}"
    )


def bench_as_json(result: Bench, checked: SpeedCheck | None) -> dict[str, Any]:
    """Return the same for programs."""
    target = result.target
    stored = target.winner
    tuned_for = stored.run.problem if stored is not None and not target.broken else None
    return {
        "problem": target.problem.to_json(),
        **timing_record(result.gpu, target.conditions),
        "why": target.why,
        "noise_floor": result.noise_floor or None,
        "calibration": result.calibration.to_json() if result.calibration is not None else None,
        **picked(result, "notes tags"),
        "reference": result.reference or None,
        "launch_decides": _launch_decides(result),
        "tuned_for": tuned_for.to_json() if tuned_for is not None else None,
        "contestants": [_entry(result, entry) for entry in result.entries],
        "failed": [failure.to_json() for failure in result.failures],
        "check": dict(vars(checked)) if checked is not None else None,
    }


def _entry(result: Bench, entry: Entry) -> dict[str, Any]:
    contestant = entry.contestant
    return {
        "contestant": contestant.name,
        **configuration_record(contestant.configuration),
        "call": contestant.text if contestant.baseline is not None else None,
        "time_ns": entry.time_ns,
        "ci_low_ns": entry.interval_ns[0],
        "ci_high_ns": entry.interval_ns[1],
        **structs.asdict(metrics(_roof(result), entry.time_ns)),
        **comparison_record(entry.ratio, entry.verdict),
        "verified": entry.verified,
        "sm_clock_hz": entry.sm_clock_hz or None,
        "samples_ns": entry.samples_ns,
    }


def show_history(result: Sequence[Benchmark], *, full: bool = False) -> None:
    """Print earlier benches as one table; with ``full`` all parameters."""
    kernels: dict[str, Texts] = {}
    for row in result:
        name = row.problem.kernel
        kernels[name] = kernels.get(name) or Texts.of_kernel(builtin(name), full=full)
    rows = [
        (
            row.created_at[:16].replace("T", " "),
            row.problem.kernel,
            problem_text(row.problem),
            row.gpu.name,
            row.conditions,
            row.contestant,
            kernels[row.problem.kernel].cell(row.configuration) if row.configuration else "",
            duration(row.time_ns),
            interval(row.ci_low_ns, row.ci_high_ns),
            comparison_text(row.ratio, row.ratio_low, row.ratio_high, row.verdict),
        )
        for row in result
    ]
    head = head_of("configuration", full=full)
    heads = [head if name == "configuration" else name for name in HISTORY_HEADS]
    show(heads, rows, right=("time",), stacked=(head, "95 % interval", "timed", "gpu", "when"))


def history_as_json(row: Benchmark) -> dict[str, Any]:
    """Return one contestant of an earlier bench for programs."""
    return {
        **picked(row, "id bench created_at contestant winner_id kernel_digest time_ns ci_low_ns ci_high_ns"),
        **picked(row, "ratio ratio_low ratio_high verdict noise_floor sm_clock_hz"),
        "problem": row.problem.to_json(),
        **timing_record(row.gpu, row.conditions),
        **configuration_record(row.configuration),
        **picked(row, "tags versions samples_ns"),
    }


def draw(benches: Sequence[Bench], path: Path) -> None:
    """Draw the times of all contestants of several problems."""
    shown = [result for result in benches if result.entries]
    timed = list(dict.fromkeys(str(result.target.conditions) for result in shown))
    groups = [
        BarGroup(
            str(result.target.problem) + (f" ({result.target.conditions})" if len(timed) > 1 else ""),
            [Bar(e.contestant.name, e.time_ns, *e.interval_ns) for e in result.entries],
            _roof(result).speed_of_light_ns,
        )
        for result in shown
    ]
    gpus = list(dict.fromkeys(result.gpu.name for result in shown))
    plot_times(groups, f"{', '.join(gpus)}; {timed[0] if len(timed) == 1 else 'several conditions'}", path)
