"""What a process that a tool watches is to do, as a file; and what it says about each configuration.

The other side is ``tuner.gpu.tool_target``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class Outcome(StrEnum):
    """What became of one configuration, as far as the process itself can tell."""

    OK = "ok"
    WRONG = "wrong"
    """It computes something else, or wrote where it has no business."""
    UNVERIFIED = "unverified"
    """It ran, and there was nothing to compare its output with."""
    FAULT = "fault"
    """It ruined the context: the process ends behind it."""
    UNLAUNCHABLE = "unlaunchable"
    OUT_OF_MEMORY = "out_of_memory"
    UNPREPARED = "unprepared"
    """Its inputs or its reference could not be made ready; it never ran."""


@dataclass(frozen=True)
class Job:
    """Configurations to be run one after the other."""

    gpu: int
    """Number of the GPU."""
    cache: str
    """Folder of the cubin cache; empty for none."""
    setups: Sequence[Mapping[str, Any]]
    """``tensors`` and ``reference`` of each problem, as in a setup request of ``tuner.devices.requests``."""
    runs: Sequence[Mapping[str, Any]]
    """For each configuration its ``number``, the place of its ``setup``, ``plan``, ``cubins`` and ``entries``."""
    calls: int = 1
    """How often each is called and compared."""
    seed: int = 0
    """Of the inputs."""
    guarded: bool = True
    """Whether tensors lie between guard zones."""
    poisoned: bool = True
    """Whether outputs are filled with NaN before each call."""
    profiled: bool = False
    """Whether one further call lies between the two calls of the driver that switch a profiler on and off."""

    def write(self, folder: Path, name: str, log: Path | None = None) -> tuple[Path, Path]:
        """Write it into a folder; give its file and that of the diary, which does not exist yet.

        Args:
            folder: an existing one.
            name: of the files.
            log: the tool's, whose length the diary tells.
        """
        path, diary = folder / f"{name}.job.json", folder / f"{name}.diary.jsonl"
        data = {**asdict(self), "diary": str(diary), "log": str(log or ""), "head": os.getpid()}
        path.write_text(json.dumps(data), encoding="utf-8")
        diary.unlink(missing_ok=True)
        return path, diary
