"""What the head and a measuring process say to each other; ``tuner.devices.guard`` stands between them.

The process first says :class:`Hello` or :class:`NoGpu`. Then each request is answered once, in order: :class:`Started`
when the process begins with it, :class:`GpuTaken` while another tuner has the GPU, any number of :class:`Deadline`,
then its answer (:data:`ANSWERS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.children.problem import Candidate, ProblemSetup
from tuner.children.record import Message
from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.model import Gpu, Measurement, Value
from tuner.core.processes import Channel
from tuner.kernel.workload import Batch, Limits

# -- from the head ----------------------------------------------------------------------------------------------------


class Setup(Message, frozen=True):
    """Make a problem ready: its data, what is expected of it, the limits and conditions of timing."""

    problem: ProblemSetup
    truth: ProblemSetup | None
    """The same in a wider dtype, from whose result errors are counted."""
    seed: int
    """Of the inputs."""
    conditions: Conditions
    batch: Batch
    limits: Limits
    timed: bool = True
    """Whether anything will be timed; verifying alone needs a quieter GPU less."""


class Measure(Message, frozen=True):
    """Verify a candidate, and time it as long as its rank deserves."""

    candidate: Candidate
    incumbent_ns: float | None = None
    """The best time so far."""
    thorough: bool = False
    """Take as many samples as a contender gets, whatever its rank."""
    verify_only: bool = False
    """One run, no timing."""


class CandidateContestant(Message, frozen=True):
    """A compiled contestant of a race."""

    candidate: Candidate
    estimate_ns: float
    """0 for none."""
    required: bool
    """Whether a wrong output ends the race."""


class BaselineContestant(Message, frozen=True):
    """A baseline that needs no compiler."""

    kind: str
    """A ``tuner.kernel.baselines.BaselineKind``."""
    text: str
    file: Path | None
    sizes: Mapping[str, int]
    scalars: Mapping[str, Value]
    estimate_ns: float = 0.0


RaceContestant = CandidateContestant | BaselineContestant


class Race(Message, frozen=True):
    """Time contestants in turn, in shuffled rounds."""

    contestants: tuple[RaceContestant, ...]
    rounds: int
    samples: int
    """Of a group, at most."""
    seed: int
    """Of the order within the rounds."""
    mode: Mode | None = None
    """Another mode than the problem was made ready for, but not ``rotating``, which needs copies of the tensors."""
    batch: Batch | None = None
    """Of that mode."""


class Calibrate(Message, frozen=True):
    """Measure the GPU's ceilings and noise; the problem is released before."""


class Release(Message, frozen=True):
    """Free the problem's memory, so that another process has room for the same problem."""


MeasuringRequest = Setup | Measure | Race | Calibrate | Release

# -- from the measuring process ---------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of a process that has a GPU."""

    gpu: Gpu
    notes: tuple[str, ...] = ()
    """What a reader of any time should know about this GPU."""
    other_processes: int = 0
    """With a context on it."""


class NoGpu(Message, frozen=True):
    """The first and last message of a process that has none."""

    error: str


class Started(Message, frozen=True):
    """The process has begun with the next request."""


class GpuTaken(Message, frozen=True):
    """Another tuner has the GPU; said every second until the next step begins, which does not count so far."""

    what: str
    """Which process that is."""


class Deadline(Message, frozen=True):
    """The next step may take so long; a process that is silent for longer hangs."""

    seconds: float


class SetupDone(Message, frozen=True):
    """A problem is ready."""

    least_error: float | None
    """With a truth: the error that no kernel of this dtype can undercut."""
    reference_ns: float
    """Time of the kernel that watches for drift; 0 where nothing will be timed."""


class Measured(Message, frozen=True):
    """The measurement of a candidate."""

    measurement: Measurement
    span: tuple[float, float] | None = None
    """Monotonic seconds in which it had the GPU; None if it did not come so far."""
    refined_s: float = 0.0
    """Seconds of that spent on more samples than its rank asked for."""
    reference_ns: float | None = None
    """As the process last saw it; None where nothing watches for drift."""
    dying: bool = False
    """The context is ruined: the process ends behind this message. So in all answers."""


class Raced(Message, frozen=True):
    """The samples of a race."""

    rounds: tuple[tuple[tuple[float, ...], ...], ...]
    """``rounds[round][contestant]`` is one group."""
    tags: tuple[str, ...]
    verified: tuple[bool, ...]
    """Whether each contestant's output was right."""
    sm_clock_hz: tuple[float, ...]
    """Mean of each contestant."""


class RaceFailed(Message, frozen=True):
    """A contestant failed, and the race with it."""

    error: str
    contestant: int
    """Its index."""
    dying: bool = False


class Calibrated(Message, frozen=True):
    """The result of a calibration."""

    calibration: Calibration


class Released(Message, frozen=True):
    """The problem's memory is free."""


class Failed(Message, frozen=True):
    """A setup or a calibration failed."""

    error: str
    dying: bool = False


Answer = SetupDone | Measured | Raced | RaceFailed | Calibrated | Released | Failed
MeasuringReply = Hello | NoGpu | Started | GpuTaken | Deadline | Answer

ANSWERS: Mapping[type[MeasuringRequest], tuple[type[Answer], ...]] = {
    Setup: (SetupDone, Failed),
    Measure: (Measured,),
    Race: (Raced, RaceFailed),
    Calibrate: (Calibrated, Failed),
    Release: (Released,),
}
"""What each request may be answered with; anything else is nonsense."""

MEASURING: Channel[MeasuringRequest, MeasuringReply] = Channel(MeasuringRequest, MeasuringReply)
