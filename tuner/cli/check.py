"""``tune check``: mistakes of a kernel's file, one line each."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Any

from tuner.cli.commands.inspection import CheckArguments
from tuner.cli.configuration import typical_gpu
from tuner.core.errors import UsageError
from tuner.inspect.check.check import check_kernel
from tuner.inspect.check.findings import Report
from tuner.inspect.check.subjects import Checks
from tuner.kernel.load import find_kernel
from tuner.report.next_steps import show_next
from tuner.report.progress import Progress, counted_line
from tuner.report.tables import counted, picked, say, show_json, show_line

MISTAKES, UNFINISHED = 1, 124
"""Exit status where something is wrong with the kernel; and where nothing was, but not all was seen: as timeout's."""


def check(asked: CheckArguments) -> None:
    """Check a kernel and print the findings."""
    began = time.monotonic()
    gpus = tuple(typical_gpu(cc) for cc in dict.fromkeys(asked.ccs))
    progress = Progress(counted_line)
    checks = Checks(
        gpus, _count(asked.configurations), asked.seed, asked.jobs, asked.cpu, progress, asked.time_s
    )
    try:
        report = check_kernel(find_kernel(asked.kernel_name), checks)
    finally:
        progress.close()
    if report.stopped is not None:
        on_host = "" if report.on_host or not asked.cpu else ", and nothing was run on the CPU"
        report.note(f"stopped at {counted_line(progress)[0]}; what follows was not looked at{on_host}")
    if asked.as_json:
        show_json(_as_json(report))
    else:
        for finding in report.sorted:
            show_line(finding)
        for note in report.notes:
            say(f"note: {note}")
        done = "; ".join([*report.done, f"{time.monotonic() - began:.0f} s"])
        until = " until it was stopped" if report.stopped else ""
        until += ", but no reference to compare with" if report.no_answer else ""
        say(f"{counted(len(report.sorted), 'finding')}{until}{',' if until else ''} in {done}")
        if not report.findings and report.complete:
            show_next({f"tune {shlex.quote(asked.kernel_name)}": "tune it"})
    if isinstance(report.stopped, KeyboardInterrupt):
        raise report.stopped
    if report.findings or not report.complete:
        sys.exit(MISTAKES if report.findings else UNFINISHED)


def _count(text: str) -> int | None:
    """Return a number of configurations; None for all."""
    if text == "all":
        return None
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"--configurations {text!r}", "give a number, or all")
    return int(text)


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "file": str(report.file),
        "findings": [{"file": str(one.file), **picked(one, "line problem remedy")} for one in report.sorted],
        **picked(report, "notes done complete"),
    }
