"""What ``tune profile`` found: the figures of each launch, and why its warps wait."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tuner.core.conditions import Conditions
from tuner.core.model import Configuration, Gpu, Problem
from tuner.inspect.tools.figures import Figures, figures_of, limit_of
from tuner.inspect.tools.nsight import LaunchMetrics
from tuner.inspect.tools.stalls import Stall, top_stalls, worth_looking_at
from tuner.report.tables import configuration_record, duration, picked, problem_text, show_pairs
from tuner.report.terminal import printable

WIDTH = 110


@dataclass(frozen=True)
class Profile:
    """A configuration with what Nsight Compute counted."""

    problem: Problem
    gpu: Gpu
    configuration: Configuration
    source: str
    """Where the configuration comes from."""
    time_ns: float | None
    """Its time as the tuner measured it, if it did."""
    conditions: Conditions | None
    warm: bool
    spill_bytes: int
    """That the compiler said."""
    report: Path
    launches: Sequence[LaunchMetrics]
    notes: Sequence[str] = ()

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
    show_pairs(
        [
            ("  duration", f"{duration(figures.duration_ns)}{clock}" if figures.duration_ns else ""),
            ("  limit", limit_of(figures)),
            ("  DRAM throughput", _percent(figures.dram_percent, rate)),
            (
                "  L2 throughput",
                _percent(figures.l2_percent, _figure(figures.l2_hit_percent, ", {:.1f} % hits")),
            ),
            (
                "  L1 throughput",
                _percent(figures.l1_percent, _figure(figures.l1_hit_percent, ", {:.1f} % hits")),
            ),
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
