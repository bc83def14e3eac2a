"""What ``tune sanitize`` found, and how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tuner.children.job import CaseOutcome
from tuner.core.model import Gpu, Problem
from tuner.inspect.tools.cases import LeftOut
from tuner.inspect.tools.checking import ToolVerdict
from tuner.report.tables import problem_text, say, show, show_pairs
from tuner.report.terminal import printable, redraw

PLAIN_EVERY_S = 10.0
REDRAW_EVERY_S = 0.2
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


class SanitizeProgress:
    """One line on stderr: rewritten on a terminal, now and then elsewhere.

    Args:
        total: verdicts to come.
        quiet: whether to say nothing.
    """

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._total, self._quiet = total, quiet
        self._first = 0.0
        self._last = time.monotonic()
        self._verdicts: dict[tuple[str, int], ToolVerdict] = {}
        self._live = sys.stderr.isatty()

    def __call__(self, tool: str, verdict: ToolVerdict) -> None:
        """Count a verdict."""
        now = time.monotonic()
        if not self._verdicts:
            self._first = now
        self._verdicts[tool, verdict.unit.number] = verdict
        if self._quiet or now - self._last < (REDRAW_EVERY_S if self._live else PLAIN_EVERY_S):
            return
        self._last = now
        text = self.line(tool, now - self._first)
        if self._live:
            redraw(text)
        else:
            say(text)

    def line(self, tool: str, since_first_s: float) -> str:
        """Say how far it is, and how long it may still take by what followed the first verdict.

        The first one waits for a process to start under the tool, which takes longer than many runs do.
        """
        done = len(self._verdicts)
        wrong = sum(verdict.failed for verdict in self._verdicts.values())
        findings = f", {wrong} with findings" if wrong else ""
        left = ""
        if done > 1:
            left_s = since_first_s / (done - 1) * (self._total - done)
            left = f", about {left_s:.0f} s left" if left_s < 100 else f", about {left_s / 60:.0f} min left"
        return f"{tool}: {done} of {self._total} runs{findings}{left}"

    def close(self) -> None:
        """End the line."""
        if self._live and not self._quiet:
            redraw("")


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
            ("logs", _short(checked.logs)),
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
    first = f"{left_out[0].case}: {left_out[0].reason}"
    return first if len(left_out) == 1 else f"{len(left_out)} runs, such as {first}"


def _rows(verdict: ToolVerdict) -> list[tuple[object, ...]]:
    case = verdict.unit.case
    rows: list[tuple[object, ...]] = []
    for finding in verdict.findings:
        times = f" (and {finding.count - 1} more like it)" if finding.count > 1 else ""
        seen = "" if verdict.alone else "; seen among others, not when it ran alone"
        where = f"{_short(verdict.log)}:{finding.line}" if finding.line else _short(verdict.log)
        rows.append((verdict.tool, case, finding.text + times + seen, finding.kernel, where))
    if other := _other(verdict):
        rows.append((verdict.tool, case, other, ", ".join(verdict.unit.entries), _short(verdict.log)))
    return rows


def _short(path: Path) -> str:
    """Return a path as seen from the working directory, if it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


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
        "left_out": [{**_case_as_json(item), "reason": item.reason} for item in checked.left_out],
    }


def _verdict_as_json(verdict: ToolVerdict) -> dict[str, Any]:
    return {
        **_case_as_json(verdict.unit),
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


def _case_as_json(item: Any) -> dict[str, Any]:
    case = item.case
    return {
        "variant": case.configuration.variant,
        "parameters": case.configuration.values,
        "sizes": dict(case.problem.sizes),
    }
