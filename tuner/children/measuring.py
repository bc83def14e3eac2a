"""What the head and a measuring process say to each other; ``tuner.devices.guard`` stands between them.

The process first says :class:`Hello`, or :class:`Failed` if it has no GPU. Then each request is answered once, in
order: :class:`Started` when the process begins with it, :class:`GpuTaken` while another tuner has the GPU, any number
of :class:`Deadline`, then its answer (:data:`ANSWERS`). A locked-in process may ask in between (:data:`Question`), and
the next that it is sent tells it (:data:`Told`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import field

from tuner.core.conditions import Calibration, Conditions, Mode
from tuner.core.messages import Channel, Message, Record
from tuner.core.model import Gpu, Measurement, Status, Value, Verification
from tuner.kernel.batching import Batch, Limits
from tuner.kernel.functions import BaselineKind, PythonFunction
from tuner.kernel.given import Given
from tuner.kernel.reference import SettledReference
from tuner.runtime.launches import Buffer, Plan

# -- a problem: its tensors, how to compute what is expected, and compiled candidates ---------------------------------


COMPILE_S = 60.0
"""Allowed for what a function builds, as for NVRTC: its import, and the first calls, in which it compiles."""
SETUP_S = 600.0
"""Allowed for a problem's setup: a NumPy reference of a large problem takes its time."""
PROBED = 16
"""Candidates that are timed, at most, from one probe of the process's reference kernel to the next."""
DRIFT = 0.02
"""Relative difference of the reference kernel's times from which the GPU counts as another: several times what rested
medians of one kernel differ by on an H200 (0.1 to 0.5 %)."""
LIBRARY_S = 180.0
"""Allowed for a library's import and its first calls: torch alone takes seconds from a cold disk."""


class PythonCall(Record, frozen=True):
    """A user's function on GPU tensors, with the numbers that it may ask for beside them."""

    function: PythonFunction
    numbers: Mapping[str, Value]
    model: Path | None = None
    """Of a torch module: the file with ``Model``, whose weights it has (:mod:`tuner.kernel.modules`)."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """With which a function that builds is called."""

    @property
    def deadline(self) -> Deadline:
        """What it takes until it can be timed."""
        if self.function.builds:
            return Deadline(COMPILE_S, Status.COMPILE_TIMEOUT)
        return Deadline(LIBRARY_S)


class Candidate(Record, frozen=True):
    """A compiled configuration, or another kernel that can be launched; or a call."""

    plan: Plan
    cubins: tuple[bytes, ...]
    """Of each of the plan's codes, as are the entries."""
    entries: tuple[str, ...]
    call: PythonCall | None = None
    """In place of launches; the only entry is its name."""


class ReferenceData(SettledReference, frozen=True):
    """A problem's reference, with what it takes to run it."""

    kernel: Candidate | None = None
    """That says what is right: in the outputs' own dtypes if it is ``rounded``, else in float64 with magnitudes."""
    numbers: Mapping[str, Value] = field(default_factory=dict)
    """Sizes and scalars by name."""
    flops: float = 1.0
    """Of the problem: NumPy checks the CUDA reference where they are few."""


class ProblemSetup(Record, frozen=True):
    """The tensors of a problem and its reference."""

    tensors: tuple[Buffer, ...]
    reference: ReferenceData

    def given(self, seed: int) -> Given:
        """Return what the kernel's file gives of the tensors' numbers; it runs the user's code."""
        return Given(self.tensors, self.reference.numbers, seed)


# -- from the head ----------------------------------------------------------------------------------------------------


Answer_co = TypeVar("Answer_co", covariant=True)


class Request(Message, Generic[Answer_co], frozen=True):
    """What is answered once; the type says by what (:data:`ANSWERS`)."""


class Setup(Request["SetupDone | Failed"], frozen=True):
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
    reference_ns: float = 0.0
    """What the kernel that watches for drift took in the process before this one; 0 if there was none."""
    exchange: Path | None = None
    """File in which a locked-in process and the one that knows what is right leave tensors for each other."""


class Measure(Request["Measured"], frozen=True):
    """Verify a candidate, and time it as long as its rank deserves."""

    candidate: Candidate
    incumbent_ns: float | None = None
    """The best time so far."""
    thorough: bool = False
    """Take as many samples as a contender gets, whatever its rank."""
    verify_only: bool = False
    """One run, no timing."""
    contents: bool = False
    """And one on each further content of the inputs, after which the problem's data is of no more use."""
    sparse: bool = False
    """The same on those that the own size may need, where the reference takes no long time."""


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
    """A ``tuner.kernel.functions.BaselineKind``."""
    text: str
    file: Path | None
    numbers: Mapping[str, Value]
    """Sizes and scalars by name."""
    estimate_ns: float = 0.0


RaceContestant = CandidateContestant | BaselineContestant


class Race(Request["Raced | RaceFailed"], frozen=True):
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

    @property
    def varies(self) -> bool:
        """Whether a user's own code is verified on further contents, after which the problem's data is of no use."""
        return any(
            not one.required if isinstance(one, CandidateContestant) else one.kind == BaselineKind.PYTHON
            for one in self.contestants
        )


class Calibrate(Request["Calibrated | Failed"], frozen=True):
    """Measure the GPU's ceilings and noise; the problem is released before."""

    short: bool = True
    """Whether also the noise of short kernels, and the launch of the least one."""


class Release(Request["Released"], frozen=True):
    """Free the problem's memory, so that another process has room for the same problem."""


class LockIn(Message, frozen=True):
    """Lock yourself in, and begin; comes once, before all others, to a process that waits for it."""

    readable: tuple[Path, ...]
    """Beside libraries."""
    open_files: str = ""
    """Why it is not kept from other files; empty if it is."""


# -- what a locked-in process asks another one, through the head ------------------------------------------------------


class Compare(Request["ByReferee | Failed"], frozen=True):
    """Are the outputs right that lie in the exchange?"""


class Draw(Request["ByReferee | Failed"], frozen=True):
    """Put inputs into the exchange."""

    turn: int
    """0 for the problem's own, then one for each further content."""
    quick: bool = False
    """Whether there are further ones only where the reference takes little time."""


class Pace(Message, frozen=True):
    """A candidate is ready for a batch of launches, which the head times; the last batch has ended."""

    time_ns: float
    """Of a call, by the process's own clocks."""


class Compared(Message, frozen=True):
    """What the outputs are worth."""

    verification: Verification


class Drawn(Message, frozen=True):
    """Inputs lie in the exchange."""

    content: str = ""
    """Which; empty if there is no further one."""
    why: str = ""
    """It is left out, because there is no right answer."""


class Paced(Message, frozen=True):
    """What is to be launched now."""

    calls: int = 1
    """Of the candidate in one launch."""
    launches: int = 0
    """0 ends it."""


ForReferee = Compare | Draw
Question = ForReferee | Pace
ByReferee = Compared | Drawn
Told = ByReferee | Paced
MeasuringRequest = Setup | Measure | Race | Calibrate | Release | ForReferee
# -- from the measuring process ---------------------------------------------------------------------------------------


NOT_ISOLATED = "not isolated: "
"""Begins a note of what a process could not be locked out of."""
LOCKED_OUT = "no GPU in a jail: "
"""Begins the error of such a process whose driver does not start there."""


class Hello(Message, frozen=True):
    """The first message of a process that has a GPU."""

    gpu: Gpu
    notes: tuple[str, ...] = ()
    """What a reader of any time should know about this GPU."""
    other_processes: int = 0
    """With a context on it."""


class Started(Message, frozen=True):
    """The process has begun with the next request."""


class GpuTaken(Message, frozen=True):
    """Another tuner has the GPU; said every second until the next step begins, which does not count so far."""

    what: str
    """Which process that is."""


class Deadline(Message, frozen=True):
    """The next step may take so long."""

    seconds: float
    late: Status = Status.HANG
    """What a process is that is silent for longer."""


class SetupDone(Message, frozen=True):
    """A problem is ready."""

    least_error: float | None
    """With a truth: the error that no kernel of this dtype can undercut."""
    reference_ns: float
    """Time of the kernel that watches for drift; 0 where nothing will be timed."""
    host_s: float = 0.0
    """What references on the host took, in this run or process."""


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

    rounds: Sequence[Sequence[Sequence[float]]]
    """``rounds[round][contestant]`` is one group."""
    tags: tuple[str, ...] = ()
    verified: tuple[bool, ...] = ()
    """Whether each contestant's output was right; empty where nothing was verified."""
    sm_clock_hz: tuple[float, ...] = ()
    """Mean of each contestant; empty where it was not counted."""


class RaceFailed(Message, frozen=True):
    """A contestant failed, and the race with it."""

    error: str
    contestant: int
    """Its index."""
    dying: bool = False
    status: Status = Status.UNSTABLE
    """Of its trial: ``repeats``, or ``unstable`` for any other reason."""


class Calibrated(Message, frozen=True):
    """The result of a calibration."""

    calibration: Calibration
    alone: bool = True
    """Whether no other process had a context on the GPU at its end."""


class Released(Message, frozen=True):
    """The problem's memory is free."""


class Failed(Message, frozen=True):
    """A setup or a calibration failed, or there is no GPU."""

    error: str
    dying: bool = False
    undecided: bool = False
    """Whether it is the reference that says nothing of this problem, or of its size."""


Answer = SetupDone | Measured | Raced | RaceFailed | Calibrated | Released | ByReferee | Failed
MeasuringReply = Hello | Started | GpuTaken | Deadline | Question | Answer

ANSWERS: Mapping[type[MeasuringRequest], tuple[type[Answer], ...]] = {
    Setup: (SetupDone, Failed),
    Measure: (Measured,),
    Race: (Raced, RaceFailed),
    Calibrate: (Calibrated, Failed),
    Release: (Released,),
    Compare: (Compared, Failed),
    Draw: (Drawn, Failed),
}
"""What each request may be answered with; anything else is nonsense."""

Heard = MeasuringRequest | Told | LockIn
MEASURING: Channel[Heard, MeasuringReply] = Channel(Heard, MeasuringReply)

# -- the child that looks for GPUs: a context, or even the driver, has no place in the head ----------------------------


class GpuList(Record, frozen=True):
    """The GPUs by their numbers."""

    names: tuple[str, ...]
    uuids: tuple[str, ...]
    capabilities: tuple[int, ...] = ()
    """Compute capability of each, times ten."""
    error: str = ""
    """Why none can be used."""


LISTING_GPUS: Channel[None, GpuList] = Channel(None, GpuList)
