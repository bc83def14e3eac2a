"""What ``tune profile`` and ``tune sanitize`` found, for people and for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tuner.children.job import CaseOutcome
from tuner.core.model import Gpu, Problem
from tuner.inspect.check.findings import shown_path
from tuner.inspect.tools.cases import Case, LeftOut
from tuner.inspect.tools.checking import ToolVerdict
from tuner.inspect.tools.figures import Figures, Stall, figures_of, limit_of, top_stalls, worth_looking_at
from tuner.inspect.tools.nsight import LaunchMetrics
from tuner.report.configurations import ChosenConfiguration
from tuner.report.tables import configuration_record, duration, picked, problem_text, show, show_pairs
from tuner.report.terminal import printable

# -- tune profile

WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class Profile(ChosenConfiguration):
    """A configuration with what Nsight Compute counted; its time is as the tuner measured it, if it did."""

    warm: bool
    spill_bytes: int
    """That the compiler said."""
    report: Path
    launches: Sequence[LaunchMetrics]

    @property
    def caches(self) -> str:
        """What the caches hold when a launch starts."""
        if self.warm:
            return "as the launch before left them (--cache-control none)"
        return "emptied before each pass (--cache-control all)"


def profile_as_json(profile: Profile) -> dict[str, Any]:
    """Return everything as plain data; percentages are numbers up to 100."""
    return {
        **profile.problem.to_json(),
        "gpu": profile.gpu.name,
        **configuration_record(profile.configuration),
        "source": profile.source,
        "time_ns": profile.time_ns,
        "mode": profile.conditions.mode if profile.conditions else None,
        "caches": "warm" if profile.warm else "cold",
        "clock_control": "none",
        "spill_bytes": profile.spill_bytes,
        "report": str(profile.report),
        "launches": [_launch_as_json(launch) for launch in profile.launches],
        "notes": profile.notes,
    }


def _launch_as_json(launch: LaunchMetrics) -> dict[str, Any]:
    figures = figures_of(launch.metrics)
    return {
        **picked(launch, "kernel grid block"),
        "limit": limit_of(figures),
        "figures": asdict(figures),
        "stalls": [asdict(stall) for stall in top_stalls(launch.metrics, figures)],
    }


def show_profile(profile: Profile) -> None:
    """Print the figures for people."""
    timed = f"{duration(profile.time_ns)} ({profile.conditions})" if profile.time_ns else ""
    show_pairs(
        [
            ("problem", f"{profile.problem.kernel} {problem_text(profile.problem)}"),
            ("GPU", profile.gpu.name),
            ("configuration", f"{profile.configuration} ({profile.source})"),
            ("time as tuned", timed),
            ("caches", profile.caches),
            ("clocks", "as they are (--clock-control none)"),
            *(("note", note) for note in profile.notes),
        ]
    )
    for number, launch in enumerate(profile.launches, 1):
        click.echo()
        prefix = f"launch {number} of {len(profile.launches)}: " if len(profile.launches) > 1 else ""
        click.echo(printable(f"{prefix}{launch.kernel} <<<{launch.grid}, {launch.block}>>>"))
        figures = figures_of(launch.metrics)
        _show_figures(figures, profile.spill_bytes)
        _show_stalls(top_stalls(launch.metrics, figures), figures)
    click.echo(f"\nreport  {printable(profile.report)}")


def _show_figures(figures: Figures, spill_bytes: int) -> None:
    clock = f" at {figures.sm_clock_hz / 1e9:.2f} GHz" if figures.sm_clock_hz else ""
    rate = f" ({figures.dram_bytes_per_s / 1e9:.0f} GB/s)" if figures.dram_bytes_per_s is not None else ""
    l1_hits, l2_hits = (
        _figure(hits, ", {:.1f} % hits") for hits in (figures.l1_hit_percent, figures.l2_hit_percent)
    )
    show_pairs(
        [
            ("  duration", f"{duration(figures.duration_ns)}{clock}" if figures.duration_ns else ""),
            ("  limit", limit_of(figures)),
            ("  DRAM throughput", _percent(figures.dram_percent, rate)),
            ("  L2 throughput", _percent(figures.l2_percent, l2_hits)),
            ("  L1 throughput", _percent(figures.l1_percent, l1_hits)),
            ("  SM throughput", _percent(figures.sm_percent)),
            ("  tensor pipe", _percent(figures.tensor_percent, " of the cycles busy")),
            ("  issue slots", _percent(figures.issue_percent, " of the cycles used")),
            ("  occupancy", _occupancy(figures)),
            ("  registers", _figure(figures.registers, "{:.0f} per thread")),
            ("  shared memory", _figure(figures.shared_bytes, "{:.0f} bytes per block")),
            ("  local memory", _local(figures.local_bytes, spill_bytes)),
            ("  global loads", _access(figures.load_efficiency_percent, figures.sectors_per_load)),
            ("  global stores", _access(figures.store_efficiency_percent, figures.sectors_per_store)),
            ("  bank conflicts", _percent(figures.bank_conflict_percent, " of shared memory's wavefronts")),
        ]
    )


def _show_stalls(stalls: Iterable[Stall], figures: Figures) -> None:
    lines = list(stalls)
    if not lines:
        return
    head = "  why warps wait, in cycles for each instruction"
    if not worth_looking_at(figures):
        head += f" (which costs little: {figures.issue_percent:.0f} % of the cycles issue one)"
    click.echo(head)
    for stall in lines:
        click.echo(f"    {stall.cycles:6.1f}  {100 * stall.share:3.0f} %  {stall.reason}: {stall.meaning}")
        click.echo(
            textwrap.fill(f"-> {stall.remedy}", WIDTH, initial_indent=" " * 20, subsequent_indent=" " * 23)
        )


def _figure(value: float | None, text: str) -> str:
    """Return a figure in its text, a format; nothing for a figure that there is not."""
    return "" if value is None else text.format(value)


def _percent(value: float | None, more: str = "") -> str:
    return _figure(value, "{:.1f} %" + more)


def _occupancy(figures: Figures) -> str:
    achieved, possible = figures.achieved_occupancy_percent, figures.theoretical_occupancy_percent
    waves = _figure(figures.waves, ", {:.2f} waves")
    if achieved is None:
        return _percent(possible, f" possible{waves}")
    return f"{achieved:.1f} % achieved{_figure(possible, ' of {:.1f} % possible')}{waves}"


def _local(moved: float | None, spill_bytes: int) -> str:
    spilled = f"the compiler spills {spill_bytes} bytes per thread" if spill_bytes else "no spills"
    return spilled if moved is None else f"{moved:.0f} bytes moved; {spilled}"


def _access(efficiency: float | None, sectors: float | None) -> str:
    if efficiency is None:
        return ""
    requests = f", {sectors:.1f} sectors per request" if sectors is not None else ""
    return f"{efficiency:.0f} % of the bytes moved are used{requests}"


# -- tune sanitize

MOST_ROWS = 40
"""Findings in the table; --json has them all."""


@dataclass(frozen=True)
class Checked:
    """All verdicts of one invocation."""

    problem: Problem
    gpu: Gpu
    source: str
    """Where the configurations come from."""
    verdicts: Mapping[str, Sequence[ToolVerdict]]
    """By tool."""
    left_out: Sequence[LeftOut]
    logs: Path
    notes: Sequence[str] = ()

    @property
    def failed(self) -> list[ToolVerdict]:
        """Every verdict with something wrong."""
        return [verdict for verdicts in self.verdicts.values() for verdict in verdicts if verdict.failed]

    @property
    def ran(self) -> bool:
        """Whether each tool has seen anything at all."""
        return all(any(verdict.ran for verdict in verdicts) for verdicts in self.verdicts.values())

    @property
    def clean(self) -> bool:
        """Whether nothing was found, in something that was run."""
        return self.ran and not self.failed


def show_checked(checked: Checked) -> None:
    """Print a line for each tool, and every finding."""
    configurations = {v.unit.case.configuration for verdicts in checked.verdicts.values() for v in verdicts}
    show_pairs(
        [
            ("problem", f"{checked.problem.kernel} {problem_text(checked.problem)}"),
            ("GPU", checked.gpu.name),
            ("configurations", f"{len(configurations)} ({checked.source})"),
            *(("note", note) for note in checked.notes),
            *((tool, _summary(verdicts)) for tool, verdicts in checked.verdicts.items()),
            ("left out", _left_out(checked.left_out)),
            ("logs", shown_path(checked.logs)),
        ]
    )
    rows = [row for verdict in checked.failed for row in _rows(verdict)]
    if rows:
        click.echo()
        show(("tool", "configuration", "finding", "kernel", "log"), rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        click.echo(f"and {len(rows) - MOST_ROWS} more; --json lists them all")


def _summary(verdicts: Sequence[ToolVerdict]) -> str:
    wrong = [verdict for verdict in verdicts if verdict.failed]
    ran = [verdict for verdict in verdicts if verdict.ran]
    if not ran:
        return f"nothing could be run: {verdicts[0].error}" if verdicts else "nothing to run"
    if not wrong:
        return f"clean: {len(ran)} {'run' if len(ran) == 1 else 'runs'}"
    configurations = len({verdict.unit.case.configuration for verdict in wrong})
    of = "of one configuration" if configurations == 1 else f"of {configurations} configurations"
    return f"FINDINGS in {len(wrong)} of {len(ran)} runs, {of}"


def _left_out(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return ""
    case, reason = left_out[0]
    first = f"{case}: {reason}"
    return first if len(left_out) == 1 else f"{len(left_out)} runs, such as {first}"


def _rows(verdict: ToolVerdict) -> list[tuple[object, ...]]:
    case = verdict.unit.case
    rows: list[tuple[object, ...]] = []
    for finding in verdict.findings:
        times = f" (and {finding.count - 1} more like it)" if finding.count > 1 else ""
        seen = "" if verdict.alone else "; seen among others, not when it ran alone"
        where = f"{shown_path(verdict.log)}:{finding.line}" if finding.line else shown_path(verdict.log)
        rows.append((verdict.tool, case, finding.text + times + seen, finding.kernel, where))
    if other := _other(verdict):
        rows.append((verdict.tool, case, other, ", ".join(verdict.unit.entries), shown_path(verdict.log)))
    return rows


def _other(verdict: ToolVerdict) -> str:
    """Say what is wrong besides the tool's own findings."""
    if verdict.late:
        return f"{verdict.error}: it hangs, or needs more (--deadline)"
    if verdict.outcome is CaseOutcome.WRONG:
        return f"its result is wrong: {verdict.error}"
    if verdict.outcome is CaseOutcome.FAULT and not verdict.findings:
        return f"it ends the process: {verdict.error}"
    return f"it could not be checked: {verdict.error}" if verdict.outcome is CaseOutcome.UNPREPARED else ""


def checked_as_json(checked: Checked) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        **checked.problem.to_json(),
        "gpu": checked.gpu.name,
        "source": checked.source,
        "clean": checked.clean,
        "logs": str(checked.logs),
        "notes": list(checked.notes),
        "tools": {
            tool: {
                "runs": sum(verdict.ran for verdict in verdicts),
                "failed": sum(verdict.failed for verdict in verdicts),
                "verdicts": [_verdict_as_json(verdict) for verdict in verdicts],
            }
            for tool, verdicts in checked.verdicts.items()
        },
        "left_out": [{**_case_as_json(case), "reason": reason} for case, reason in checked.left_out],
    }


def _verdict_as_json(verdict: ToolVerdict) -> dict[str, Any]:
    return {
        **_case_as_json(verdict.unit.case),
        "kernels": list(verdict.unit.entries),
        "outcome": str(verdict.outcome),
        "late": verdict.late,
        "error": printable(verdict.error),
        "alone": verdict.alone,
        "log": str(verdict.log),
        "findings": [
            {**vars(finding), "text": printable(finding.text), "detail": printable(finding.detail)}
            for finding in verdict.findings
        ],
    }


def _case_as_json(case: Case) -> dict[str, Any]:
    return {**configuration_record(case.configuration), "sizes": dict(case.problem.sizes)}
