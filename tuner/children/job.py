"""What a process that a tool watches is to do, as a file; and its diary, in which it says how far it is.

The other side is ``tuner.gpu.tool_target``. The diary has one JSON object a line: :class:`Ready` once there is a
context; :class:`Waiting` before each configuration, for other tuners on this GPU to end their turn; :class:`Began`,
then :class:`Placed` when its data is ready, then :class:`Ended`; :class:`Done` as the last line. :class:`Complaint`
says why there is no context.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import structs

from tuner.children.measuring import Candidate, ProblemSetup
from tuner.core.messages import Codec, Message, Record


class CaseOutcome(StrEnum):
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


class CaseRun(Record, frozen=True):
    """One configuration to be run."""

    number: int
    setup: int
    """Index of its problem in the job."""
    candidate: Candidate


class ToolJob(Record, frozen=True):
    """Configurations to be run one after the other."""

    gpu: int
    """Number of the GPU."""
    cache: str
    """Folder of the cubin cache; empty for none."""
    setups: tuple[ProblemSetup, ...]
    runs: tuple[CaseRun, ...]
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
    diary: Path = Path()
    """Set when it is written, as is what follows."""
    log: Path | None = None
    """The tool's, whose length the diary tells."""
    head: int = 0
    """The process that waits for the tool."""


JOB: Codec[ToolJob] = Codec(ToolJob)


def write_job(job: ToolJob, folder: Path, name: str, log: Path | None = None) -> tuple[Path, Path]:
    """Write a job into a folder; return its file and that of the diary, which does not exist yet.

    Args:
        job: the job.
        folder: an existing one.
        name: of the files.
        log: the tool's.
    """
    path, diary = folder / f"{name}.job", folder / f"{name}.diary.jsonl"
    path.write_bytes(JOB.encode(structs.replace(job, diary=diary, log=log, head=os.getpid())))
    diary.unlink(missing_ok=True)
    return path, diary


# -- the diary --------------------------------------------------------------------------------------------------------


class Ready(Message, frozen=True):
    """There is a context."""

    pid: int


class Waiting(Message, frozen=True):
    """The process waits for its turn on the GPU."""


class Began(Message, frozen=True):
    """A configuration's turn begins."""

    number: int


class Placed(Message, frozen=True):
    """Its tensors are in the GPU's memory."""

    tensors: Mapping[str, tuple[int, int]]
    """Address and bytes of each."""


class Ended(Message, frozen=True):
    """Its turn is over."""

    number: int
    outcome: CaseOutcome
    error: str
    log_bytes: int
    """Length of the tool's log by then."""


class Done(Message, frozen=True):
    """Everything was run."""


class Complaint(Message, frozen=True):
    """The process could not begin, or its diary cannot be read."""

    error: str


Entry = Ready | Waiting | Began | Placed | Ended | Done | Complaint
ENTRIES: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
"""Reads a line of a diary."""
