"""The sections of ``scripts/chaos.py``: what each breaks, how often, and what it counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.forked import Forked
from tests.faults.killing import kill_tuner, kill_worker


@dataclass(frozen=True)
class Section:
    """One way of breaking the tuner.

    Attributes:
        run: breaks it so often, in a folder, with a seed; returns the report.
        times: how often.
        jobs: processes at most; None for any number.
    """

    run: Callable[[int, Path, int], Any]
    times: int
    jobs: int | None = None


SECTIONS: Mapping[str, Section] = {
    "head": Section(partial(kill_tuner, start=Forked), 1000),
    "worker": Section(partial(kill_worker, start=Forked), 1000),
}
