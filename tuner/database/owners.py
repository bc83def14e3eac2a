"""The process that works on a run, and whether it is still alive."""

from __future__ import annotations

import os
from pathlib import Path


def this_process() -> str:
    """Return the name of this process: host, number, and when it began."""
    return f"{os.uname().nodename}:{os.getpid()}:{_started(os.getpid())}"


def alive(owner: str) -> bool:
    """Return whether a process that :func:`this_process` named is alive; one of another host counts as dead."""
    host, _, process = owner.partition(":")
    pid, _, started = process.partition(":")
    return host == os.uname().nodename and pid.isdigit() and started != "" and _started(int(pid)) == started


def number(owner: str) -> str:
    """Return the number of a process by its name."""
    return owner.split(":")[1]


def _started(pid: int) -> str:
    """Return when a process began, in clock ticks: a pid is used again, this pair is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
