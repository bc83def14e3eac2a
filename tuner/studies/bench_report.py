"""The results of ``tune bench`` as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from msgspec import structs

from tuner.core.stats import ratio_record
from tuner.database.records import Benchmark
from tuner.devices.base import Timed
from tuner.report import tables
from tuner.report.configurations import ELSE_DEFAULT, Texts, builtin, launch_note
from tuner.report.terminal import printable
from tuner.studies.bench import Bench, SpeedCheck
from tuner.studies.interleaved import Compared, Comparison


def show_bench(result: Bench, *, full: bool = False) -> None:
    """Print how the contestants of one problem were timed, and their times; with ``full`` all of their parameters."""
    target, texts = result.target, Texts.of_kernel(result.target.kernel, full=full)
    show_head(result, target.why, result.notes)
    if not result.timings:
        return
    compared = f"speedup of {result.reference} over it" if result.reference else ""
    what = f"what{texts.note}"
    rows = [
        {
            "contestant": timing.name,
            what: texts.cell(timing.configuration) if timing.configuration else timing.contestant.text,
            "time": tables.duration(timing.time_ns),
            "95 % interval": tables.interval(*timing.interval_ns),
            "rate": tables.throughput(result.metrics(timing)),
            "of peak": tables.percent(result.metrics(timing).of_peak),
            compared: compared_text(result.compared(timing)),
            "verified": "yes" if timing.verified else "NO",
        }
        for timing in result.timings
    ]
    stacked = [head for head in (what, "verified", "95 % interval", compared, "of peak") if head]
    tables.show_rows(rows, right=("time", "rate", "of peak"), stacked=stacked)
    if note := _launch_note(result):
        tables.show_text(note, "  ", "  ")


def _launch_note(result: Bench) -> str:
    if not result.reference:
        return ""
    time_ns = result.timings[0].time_ns
    return launch_note(result.calibration, result.conditions, time_ns, tied=result.tied)


# -- what the reports of all studies share


def show_head(
    comparison: Comparison, why: str, notes: Sequence[str], before: Sequence[tuple[str, str]] = ()
) -> None:
    """Print the problem, and how it was timed.

    Args:
        comparison: what was timed.
        why: it was timed under these conditions.
        notes: what a reader should know besides.
        before: names and values that are printed first.
    """
    click.echo(printable(f"{comparison.problem} on {comparison.gpu.name}"))
    calibrated = comparison.calibration.notes if comparison.calibration is not None else ()
    noise = f"; noise floor {100 * comparison.reference_noise:.2g} %" if comparison.timings else ""
    tables.show_pairs(
        [
            *before,
            ("  timed", f"{comparison.conditions}: {why}{noise}"),
            *(("  note", note) for note in (*calibrated, *notes)),
            ("  clocks", f"held down by {', '.join(comparison.tags)}" if comparison.tags else ""),
        ]
    )


def compared_text(compared: Compared | None) -> str:
    """Return the speedup of a comparison; empty if there is none."""
    if compared is None:
        return ""
    ratio = compared.ratio
    return tables.speedup(ratio.median, ratio.low, ratio.high, compared.verdict)


def compared_record(compared: Compared | None) -> dict[str, Any]:
    """Return a comparison for programs; None for all of it where there is none."""
    if compared is None:
        return {**ratio_record(None), "verdict": None}
    return {**ratio_record(compared.ratio), "verdict": compared.verdict}


def head_record(comparison: Comparison, why: str) -> dict[str, Any]:
    """Return the problem, and how it was timed, for programs."""
    return {
        "problem": comparison.problem.to_json(),
        **tables.timing_record(comparison.gpu, comparison.conditions),
        "why": why,
        "noise_floor": comparison.reference_noise or None,
    }


def time_record(comparison: Comparison, timing: Timed) -> dict[str, Any]:
    """Return a time with its interval and rates for programs."""
    low, high = timing.interval_ns
    figures = structs.asdict(comparison.metrics(timing))
    return {"time_ns": timing.time_ns, "ci_low_ns": low, "ci_high_ns": high, **figures}


def contestant_record(comparison: Comparison, timing: Timed, **more: object) -> dict[str, Any]:
    """Return a contestant with its times for programs."""
    return {
        "contestant": timing.name,
        **tables.configuration_record(timing.configuration),
        "call": timing.contestant.text if timing.configuration is None else None,
        **time_record(comparison, timing),
        **more,
        "verified": timing.verified,
        "sm_clock_hz": timing.sm_clock_hz or None,
        "samples_ns": timing.samples_ns,
    }


# -- ``tune bench``


def show_check(result: SpeedCheck) -> None:
    """Print whether a stored winner is as fast as it was."""
    tables.show_text(
        f"{'SLOWER' if result.slower else 'as fast as it was'}: {check_text(result)}", "  ", "    "
    )


def check_text(result: SpeedCheck) -> str:
    """Return what was compared, and what was allowed."""
    before = f"{tables.duration(result.before_ns)} on {result.before[:10]}"
    if result.now_ns is None:
        return f"it cannot be run: {printable(result.reason)}; it took {before}"
    other = "another GPU or driver of the same name"
    machine = "the same GPU and driver" if result.same_machine else other
    change = result.now_ns / result.before_ns - 1.0
    return (
        f"{tables.duration(result.now_ns)} now, {before} ({100 * change:+.1f} %); "
        f"{100 * result.tolerance:.2g} % are allowed on {machine}"
    )


def bench_as_json(result: Bench, checked: SpeedCheck | None) -> dict[str, Any]:
    """Return the same for programs."""
    target = result.target
    stored = target.winner
    tuned_for = stored.run.problem if stored is not None and not target.broken else None
    return {
        **head_record(result, target.why),
        "calibration": result.calibration.to_json() if result.calibration is not None else None,
        **tables.picked(result, "notes tags"),
        "reference": result.reference or None,
        "launch_decides": bool(_launch_note(result)),
        "tuned_for": tuned_for.to_json() if tuned_for is not None else None,
        "contestants": [
            contestant_record(result, timing, **compared_record(result.compared(timing)))
            for timing in result.timings
        ],
        "failed": [failure.to_json() for failure in result.failures],
        "check": dict(vars(checked)) if checked is not None else None,
    }


def show_history(result: Sequence[Benchmark], *, full: bool = False) -> None:
    """Print earlier benches as one table; with ``full`` all parameters."""
    kernels = {row.problem.kernel: Texts() for row in result}
    if not full:
        kernels = {name: Texts.of_kernel(builtin(name)) for name in kernels}
    head = f"configuration{'' if full else ELSE_DEFAULT}"
    rows = [
        {
            "when": row.created_at[:16].replace("T", " "),
            "kernel": row.problem.kernel,
            "problem": tables.problem_text(row.problem),
            "gpu": row.gpu.name,
            "timed": row.conditions,
            "contestant": row.contestant,
            head: kernels[row.problem.kernel].cell(row.configuration) if row.configuration else "",
            "time": tables.duration(row.time_ns),
            "95 % interval": tables.interval(row.ci_low_ns, row.ci_high_ns),
            "speedup of best over it": tables.speedup(row.ratio, row.ratio_low, row.ratio_high, row.verdict),
        }
        for row in result
    ]
    tables.show_rows(rows, right=("time",), stacked=(head, "95 % interval", "timed", "gpu", "when"))


def history_as_json(row: Benchmark) -> dict[str, Any]:
    """Return one contestant of an earlier bench for programs."""
    return {
        **tables.picked(
            row, "id bench created_at contestant winner_id kernel_digest time_ns ci_low_ns ci_high_ns"
        ),
        **tables.picked(row, "ratio ratio_low ratio_high verdict noise_floor sm_clock_hz"),
        "problem": row.problem.to_json(),
        **tables.timing_record(row.gpu, row.conditions),
        **tables.configuration_record(row.configuration),
        **tables.picked(row, "tags versions samples_ns"),
    }
