"""Nsight Compute on one configuration: its command line, what it prints, and its counters by name."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.children.job import CaseOutcome, ToolJob
from tuner.core.errors import TunerError
from tuner.inspect.tools.nvidia import NCU, ToolMissingError, Watched, watch

EXTRA_METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
)
"""Asked for by name besides the full set of sections, which lacks some of them on some architectures. One that an
architecture does not have makes ncu give up, so it is then left out and the rest asked for again."""
IMPORT_S = 120.0
_MISSING = re.compile(r"==ERROR==.*[Ff]ailed to find metric.*")
_ERROR = re.compile(r"^==ERROR==\s*(.+)$", re.MULTILINE)
_TIMES = {"second": 1.0, "s": 1.0, "msecond": 1e-3, "ms": 1e-3, "usecond": 1e-6, "us": 1e-6}
_TIMES |= {"nsecond": 1e-9, "ns": 1e-9}
"""Also where base units are asked for, times differ from version to version."""


@dataclass(frozen=True)
class LaunchMetrics:
    """The counters of one kernel launch."""

    kernel: str
    grid: str
    block: str
    metrics: Mapping[str, float]
    """By ncu's names; seconds, bytes, bytes a second, Hz, percent, or a plain number."""


def ncu_command(ncu: Path, report: Path, metrics: Sequence[str], *, warm: bool) -> list[str]:
    """Return ncu's command line up to the command that it runs.

    Clocks stay as they are: locking them is the owner's business, and the tuner's own times were taken without. Between
    the passes that it needs for all counters, ncu empties the caches, unless they are to be warm.
    """
    command = [str(ncu), "--target-processes", "application-only", "--profile-from-start", "off"]
    command += ["--clock-control", "none", "--cache-control", "none" if warm else "all", "--set", "full"]
    if metrics:
        command += ["--metrics", ",".join(metrics)]
    return [*command, "--force-overwrite", "--export", str(report)]


def profile(ncu: Path, job: ToolJob, report: Path, step_s: float, *, warm: bool) -> list[LaunchMetrics]:
    """Profile the only configuration of a job; the report lies in its file then.

    Args:
        ncu: the executable.
        job: one configuration, with ``profiled``.
        report: where the report goes; its folder exists. A file of this name is replaced once there is a new one.
        step_s: seconds that it may take.
        warm: whether caches keep what the call before left there.

    Returns:
        The counters of each of its launches, in their order.

    Raises:
        ToolMissingError: ncu may not read the counters.
        TunerError: it cannot be profiled.
    """
    partial = report.with_name(f"{report.stem}.partial{report.suffix}")
    try:
        _run(ncu, job, partial, step_s, warm=warm)
        launches = read_report(ncu, partial)
        partial.replace(report)
    finally:
        partial.unlink(missing_ok=True)
    return launches


def _run(ncu: Path, job: ToolJob, report: Path, step_s: float, *, warm: bool) -> None:
    metrics = list(EXTRA_METRICS)
    while True:
        command = ncu_command(ncu, report, metrics, warm=warm)
        try:
            seen = watch(command, job, report.parent, report.stem, step_s)
        except OSError as error:
            raise ToolMissingError(f"{ncu} cannot be started: {error.strerror}", NCU.source) from None
        missing = _missing_metrics(seen.output, metrics)
        if not missing:
            break
        metrics = [name for name in metrics if name not in missing]
    _complain(seen, report, step_s)


def read_report(ncu: Path, report: Path) -> list[LaunchMetrics]:
    """Return the counters in a report.

    Raises:
        TunerError: ncu cannot read it, or nothing was profiled.
    """
    command = [str(ncu), "--import", str(report), "--page", "raw", "--csv", "--print-units", "base"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=IMPORT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TunerError(
            f"ncu cannot print {report}: {error}", "open it in Nsight Compute's own window"
        ) from None
    text = done.stdout.decode(errors="replace")
    launches = parse_csv(text)
    if not launches:
        reason = _first_error(text + done.stderr.decode(errors="replace")) or "it prints no launch"
        raise TunerError(f"ncu cannot print {report}: {reason}", "open it in Nsight Compute's own window")
    return launches


def parse_csv(text: str) -> list[LaunchMetrics]:
    """Read ncu's raw page: names, their units, and a row for each launch; what else was printed is passed over."""
    rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("==")))
    head = next((i for i, row in enumerate(rows) if "ID" in row and "Kernel Name" in row), len(rows))
    columns, *body = [row for row in rows[head:] if len(row) == len(rows[head])] or [[]]
    units = body.pop(0) if body and not body[0][columns.index("ID")].strip() else [""] * len(columns)
    launches = []
    for row in body:
        cells = dict(zip(columns, row, strict=True))
        counted = [(name, number(cells[name], unit)) for name, unit in zip(columns, units, strict=True)]
        metrics = {name: value for name, value in counted if "__" in name and value is not None}
        kernel, grid, block = (cells.get(name, "") for name in ("Kernel Name", "Grid Size", "Block Size"))
        launches.append(LaunchMetrics(kernel, grid, block, metrics))
    return launches


def number(text: str, unit: str) -> float | None:
    """Read a cell in its unit, with or without commas between the thousands; None for what is no number."""
    try:
        above, _, below = (part.strip() for part in unit.partition("/"))
        factor = _TIMES.get(above, 1.0) / _TIMES.get(below, 1.0)
        return float(text.strip().replace(",", "")) * factor
    except ValueError:
        return None


def _missing_metrics(output: str, metrics: Sequence[str]) -> list[str]:
    """Return those of our metrics that ncu does not know; all of them when it does not say which."""
    complaints = [line.replace("\\", "") for line in _MISSING.findall(output)]
    if not complaints:
        return []
    named = [
        name
        for name in metrics
        for line in complaints
        if name in line or f"^{name.split('.')[0]}." in line or f"^{name.split('.')[0]}(" in line
    ]
    return named or list(metrics)


def _first_error(output: str) -> str:
    match = _ERROR.search(output)
    return match[1].strip() if match else ""


def _complain(seen: Watched, report: Path, step_s: float) -> None:
    """Raise what went wrong, by the best source there is."""
    if "ERR_NVGPUCTRPERM" in seen.output:
        raise ToolMissingError(
            "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
            "run it as root, or have the driver loaded with NVreg_RestrictProfilingToAdminUsers=0 (a container also "
            "needs --cap-add SYS_ADMIN); NVIDIA's page: developer.nvidia.com/ERR_NVGPUCTRPERM",
        )
    if seen.locked_out:
        raise TunerError("another tuner keeps the GPU to itself", "wait for it, or end it")
    if seen.late:
        raise TunerError(
            f"ncu did not end within {step_s:g} s", "allow more with --deadline, or take a smaller --size"
        )
    ended = seen.ended
    if ended is not None and ended.outcome is CaseOutcome.WRONG:
        raise TunerError(f"the configuration is wrong, so its profile says nothing: {ended.error}")
    if ended is not None and ended.outcome not in (CaseOutcome.OK, CaseOutcome.UNVERIFIED):
        raise TunerError(f"the configuration cannot be run: {ended.outcome}: {ended.error}")
    if seen.complaint:
        raise TunerError(f"the process to be profiled could not begin: {seen.complaint}", "run `tune doctor`")
    error = _first_error(seen.output)
    if "resource was unavailable" in error:
        raise TunerError(
            "another tool holds the GPU's performance counters", "end it (DCGM's exporter, another profiler)"
        )
    if ended is None or not report.is_file():
        reason = error or seen.last_line or f"exit status {seen.status}"
        raise TunerError(
            f"ncu made no report: {reason}", f"try {NCU.name} on another program, or a newer one"
        )
