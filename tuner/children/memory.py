"""How much memory a compiling child may take: children together leave the machine some."""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST_BYTES = 8 << 30
"""Address space that a child on a large machine may take beside what it has at its start: a template or an
instantiation that grows without end stops there."""
LEAST_BYTES = 1 << 30
"""The same on a small one: compiling the built-in kernels takes 430 MiB of it, NVRTC 13.5 included."""
SHARE = 0.75
"""Of the memory that is available, for all children together."""

_MEMORY = Path("/proc/meminfo")
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_limit(children: int, available_bytes: int | None = None) -> int:
    """Return by how many bytes the address space of each of some children may grow.

    Args:
        children: that may compile at the same time.
        available_bytes: memory to share; None for what this machine or container has now.
    """
    available = _available_bytes() if available_bytes is None else available_bytes
    return max(LEAST_BYTES, min(MOST_BYTES, int(SHARE * available / children)))


def most_children() -> int:
    """Return how many children the memory that is available now is enough for."""
    return max(1, int(SHARE * _available_bytes() / LEAST_BYTES))


def _available_bytes() -> int:
    amounts = [sys.maxsize]
    for file in _CONTAINER:
        try:
            amounts.append(int(file.read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    try:
        if match := re.search(r"^MemAvailable:\s+(\d+) kB", _MEMORY.read_text(), re.MULTILINE):
            amounts.append(1024 * int(match[1]))
    except OSError:
        pass
    return min(amounts)
