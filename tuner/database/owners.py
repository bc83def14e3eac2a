"""Which process works on a run, and whether it still lives."""

from __future__ import annotations

import os
from pathlib import Path


def this_process() -> str:
    """Name this process: host, number, and when it began."""
    return f"{os.uname().nodename}:{os.getpid()}:{_started(os.getpid())}"


def alive(owner: str) -> bool:
    """Whether the process that :func:`this_process` named there still lives; one of another host counts as dead."""
    host, _, process = owner.partition(":")
    pid, _, started = process.partition(":")
    return host == os.uname().nodename and pid.isdigit() and started != "" and _started(int(pid)) == started


def number(owner: str) -> str:
    """Return the process's number."""
    return owner.split(":")[1]


def _started(pid: int) -> str:
    """When a process began, in clock ticks: a pid is used again, this pair is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
