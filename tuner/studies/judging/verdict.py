"""What a judgement says, as JSON: its format has a number, its reasons are words that stay, and so are exit statuses.

``tune judge --explain-format`` prints the JSON schema of :class:`Verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tuner.core.messages import Record
from tuner.core.model import Status, Value, ascii_json

FORMAT = 1
"""Grows when a field changes its meaning or goes; new fields do not change it."""


class Judged(StrEnum):
    """What became of a candidate."""

    RIGHT = "right"
    WRONG = "wrong"
    """It computes something else."""
    REFUSED = "refused"
    """It does not run, or its times are not those of the work."""
    FAILED = "failed"
    """Nothing is known: the GPU, the reference or a process failed."""


class Speed(StrEnum):
    """How fast a candidate is beside something else."""

    FASTER = "faster"
    TIED = "tied"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


OTHER_REASONS = "wrong_at_other_size", "wrong_with_other_inputs", "too_slow", "unreadable", "failed"
"""Reasons beside those of :class:`tuner.core.model.Status`; ``docs/agents.md`` says what each means."""
WRONG = Status.WRONG_RESULT, Status.WRONG_AFTER_TIMING, "wrong_at_other_size", "wrong_with_other_inputs"
"""Reasons for which a candidate is wrong; for others it is refused, or the judgement failed."""
FAILED = (Status.UNVERIFIED, "failed")
EXIT_RIGHT, EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED, EXIT_SLOWER = 0, 1, 2, 3, 4


class Versus(Record, frozen=True):
    """A candidate beside a baseline, in the same rounds."""

    baseline: str
    what: str
    """Its configuration or call."""
    time_ns: float | None = None
    speedup: float | None = None
    """The baseline's time over the candidate's; above 1 the candidate is faster."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    verdict: Speed | None = None
    """Of the candidate."""
    verified: bool = True
    """Whether the baseline's own output was right."""
    error: str = ""
    """Why it could not be timed."""


class ModeTimes(Record, frozen=True):
    """A candidate's times in one mode."""

    mode: str
    regime: str
    time_ns: float
    low_ns: float
    high_ns: float
    noise_floor: float
    """How far from 1 the ratio of two equal kernels of this time may be."""
    speed_of_light: float | None
    """Share of the fastest time that the hardware allows."""
    versus: tuple[Versus, ...]


class SizeChecked(Record, frozen=True):
    """A candidate's output at another size."""

    sizes: Mapping[str, int]
    status: Status
    error: str = ""


class ProblemVerdict(Record, frozen=True):
    """What is known of a candidate at one problem."""

    problem: Mapping[str, Any]
    judged: Judged
    reason: str = ""
    """A status of a trial, or one of ``OTHER_REASONS``; empty for what is right."""
    message: str = ""
    mismatches: int = 0
    """Wrong elements of the outputs."""
    worst_error: float | None = None
    """The largest error of an element over what is allowed there."""
    contents: Mapping[str, str] = {}
    """Further contents of the inputs: empty where it was right, and why for those that were left out."""
    sizes: tuple[SizeChecked, ...] = ()
    sizes_note: str = ""
    """Why it was verified at fewer other sizes than usual."""
    fresh_ns: float | None = None
    """Its time in a fresh process."""
    modes: tuple[ModeTimes, ...] = ()
    seconds: float = 0.0

    @property
    def speed(self) -> Speed | None:
        """Its speed beside all baselines, in all modes; None without any."""
        return overall([one.verdict for mode in self.modes for one in mode.versus if one.verdict])


class TaskRecord(Record, frozen=True):
    """The task."""

    kernel: str
    file: str
    digest: str
    """Of what is computed, the problems, the tolerances and the baselines: equal for equal tasks only."""


class CandidateRecord(Record, frozen=True):
    """The candidate."""

    name: str
    kind: str
    """``cu``, ``cubin``, ``toml`` or ``py``."""
    digest: str
    configuration: Mapping[str, Value] = {}
    """Of a kernel's file: the values of its parameters."""
    copy: str = ""
    """Folder within that of the rounds with what was judged."""


class Verdict(Record, frozen=True):
    """What is known of a candidate."""

    format: int
    judged: Judged
    speed: Speed | None
    """Beside all baselines, in all modes and at all problems."""
    reason: str
    message: str
    task: TaskRecord
    candidate: CandidateRecord
    problems: tuple[ProblemVerdict, ...]
    confidence: float
    """Of the intervals."""
    seed: int
    """Of the inputs and, but for Python candidates, of the order; ``--seed`` repeats it."""
    gpu: str
    versions: Mapping[str, str]
    at: str
    """When it was judged, in UTC."""
    not_isolated: tuple[str, ...] = ()
    """Of a Python candidate: what this system could not lock its process out of."""
    phases: tuple[tuple[str, float, float], ...] = ()
    """What was done, from which second of the judgement to which; they may overlap."""

    @property
    def exit_code(self) -> int:
        """The exit status of ``tune judge``."""
        if self.judged is Judged.RIGHT:
            return EXIT_SLOWER if self.speed is Speed.SLOWER else EXIT_RIGHT
        return EXIT_FAILED if self.judged is Judged.FAILED else EXIT_REFUSED

    def to_json(self, indent: int | None = 2) -> bytes:
        """Return it as JSON in printable ASCII with a line end; without an indent it is one line."""
        return f"{ascii_json(msgspec.to_builtins(self), indent)}\n".encode()


def overall(speeds: list[Speed]) -> Speed | None:
    """Return the speed beside several: slower than one is slower, and only faster than all is faster."""
    for decisive in (Speed.SLOWER, Speed.AMBIGUOUS, Speed.TIED):
        if decisive in speeds:
            return decisive
    return Speed.FASTER if speeds else None


def judged_for(reason: str) -> Judged:
    """Return what a reason makes of a candidate."""
    if not reason:
        return Judged.RIGHT
    if reason in FAILED:
        return Judged.FAILED
    return Judged.WRONG if reason in WRONG else Judged.REFUSED


def schema() -> dict[str, Any]:
    """Return the JSON schema of a verdict."""
    return msgspec.json.schema(Verdict)
