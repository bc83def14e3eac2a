"""What a device must do for the tuner, wherever its answers come from."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from tuner.children.compilation import Compilation
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Measurement, Problem, Trial
from tuner.core.phases import BusyTime, Phases
from tuner.core.stats import median_interval
from tuner.kernel.baselines import Baseline
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

LATE_S = 5.0
"""After so long it is said what is still waited for."""
DEFAULT_NOISE_FLOOR = 0.005
"""Where nothing was calibrated: two copies of one kernel, timed in turn, differ by less on a data-centre GPU."""


@dataclass(frozen=True)
class Contestant:
    """A contestant of a race: a configuration, or a baseline."""

    configuration: Configuration | None
    time_ns: float = 0.0
    """Estimate of its time; 0 for none."""
    baseline: Baseline | None = None
    kernel: KernelSpec | None = None
    """Whose configuration it is; None for the prepared one. Another version of that has the same tensors."""
    name: str = ""
    """In the table of a study."""

    @classmethod
    def of(cls, baseline: Baseline) -> Contestant:
        """Return a baseline as a contestant of its name."""
        return cls(None, baseline=baseline, name=baseline.name)

    @property
    def text(self) -> str:
        """What it runs."""
        return self.baseline.line if self.baseline else str(self.configuration)


@dataclass(frozen=True)
class RaceRequest:
    """Contestants to time in turn, in shuffled rounds."""

    contestants: Sequence[Contestant]
    rounds: int
    samples: int
    """Of a group, at most."""
    seed: int
    """Of the order within the rounds."""
    mode: Mode | None = None
    """Another mode than the problem was prepared for, but not ``rotating``, which needs copies of the tensors."""
    needed: int | None = None
    """Once so many of the first contestants have all failed, the others are not timed; None for all of them."""

    @property
    def configurations(self) -> list[Configuration]:
        """Those of its contestants, without the baselines."""
        return [one.configuration for one in self.contestants if one.configuration is not None]


@dataclass(frozen=True)
class Timed:
    """What a contestant took in a race."""

    contestant: Contestant
    groups_ns: Sequence[Sequence[float]]
    """One group of samples for each round. Groups are what is independent: the samples of one share their moment."""
    verified: bool = True
    """Whether its output was right: a configuration's always is, or it has failed."""
    sm_clock_hz: float = 0.0
    """Mean; 0 where it was not counted."""

    @property
    def name(self) -> str:
        """Of the contestant."""
        return self.contestant.name

    @property
    def configuration(self) -> Configuration | None:
        """None for a baseline."""
        return self.contestant.configuration

    @cached_property
    def samples_ns(self) -> tuple[float, ...]:
        """All samples."""
        return tuple(sample for group in self.groups_ns for sample in group)

    @cached_property
    def medians_ns(self) -> tuple[float, ...]:
        """Of the groups."""
        return tuple(median(group) for group in self.groups_ns)

    @cached_property
    def time_ns(self) -> float:
        """Median of the groups' medians."""
        return median(self.medians_ns)

    @cached_property
    def interval_ns(self) -> tuple[float, float]:
        """The ends of its 95 % interval."""
        return median_interval(self.medians_ns)


@dataclass(frozen=True)
class RaceResult:
    """What a race measured, by the contestants' indices in the request."""

    timed: Mapping[int, Timed]
    """Those that did not fail, all in the same rounds."""
    failures: Mapping[int, str]
    """Why the others failed, in this order."""
    tags: tuple[str, ...] = ()


Incumbent = Callable[[], float | None]
"""Returns the best time so far, in nanoseconds, when a candidate's turn comes; effort follows rank."""


def no_incumbent() -> float | None:
    """Return that nothing was timed before."""
    return None


def say_nothing(text: str) -> None:
    """Drop what a device says."""


@contextmanager
def said_late(say: Callable[[str], None], text: str) -> Iterator[None]:
    """Say what a block is at if it takes longer than :data:`LATE_S`."""
    late = threading.Timer(LATE_S, say, [text])
    late.start()
    try:
        yield
    finally:
        late.cancel()


class Device(ABC):
    """Answers how long candidates take.

    ``prepare`` comes first; then any number of ``submit`` and ``collect``, in between ``race`` and ``confirm`` while
    nothing is pending; ``close`` at last. Answers may come in any order; each submission is answered exactly once,
    whatever becomes of the candidate.
    """

    name: str
    gpu: Gpu
    lookahead: int
    """How many submissions may be pending for the device to be kept busy."""
    compilers = 0
    """How many configurations can be compiled at a time before their trials; 0 where nothing is compiled."""
    recorded = False
    """Whether the answers were recorded earlier, so that nothing can be confirmed here."""

    def __init__(self, say: Callable[[str], None] = say_nothing) -> None:
        self.say = say
        """Told when something takes seconds that the user did not ask for."""
        self.notes: tuple[str, ...] = ()
        """What the user should know about this device."""
        self.versions: dict[str, str] = {}
        """Of the driver and the compiler, for the record."""
        self.busy = BusyTime()
        """Since the last ``prepare``."""
        self.phases = Phases()
        """Of the run under way."""
        self.kernel: KernelSpec
        self.problem: Problem
        """What is prepared, or was to be."""
        self._held: tuple[object, ...] | None = None
        """What was prepared last."""
        self._refusal: TunerError | None = None
        """Why that failed."""
        self.conditions = Conditions()
        """How the prepared problem is timed."""
        self.calibration: Calibration | None = None
        """Of the GPU, where there is one."""
        self.least_error: float | None = None
        """With a truth prepared: the smallest error that any kernel of the problem's dtype can have."""
        self.host_s = 0.0  # What references on the host take for the prepared problem.

    def noise_floor(self, time_ns: float, mode: Mode | None = None) -> float:
        """Return how far from 1 the ratio of two equal kernels of this time may be; 0 where nothing is known of it.

        Args:
            time_ns: the time.
            mode: in which it was taken, if not in that of the prepared problem.
        """
        if self.calibration is None:
            return DEFAULT_NOISE_FLOOR
        conditions = replace(self.conditions, mode=mode) if mode else self.conditions
        return self.calibration.noise_floor(conditions, time_ns)

    @property
    def note(self) -> str:
        """The notes in one line."""
        return "; ".join(self.notes)

    @property
    def working(self) -> bool:
        """Whether another process works on a request, within a time after which it is killed."""
        return False

    @abstractmethod
    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        """Return how a problem is timed, and why; None leaves the mode to the problem."""

    def prepare(
        self,
        kernel: KernelSpec,
        problem: Problem,
        seed: int,
        conditions: Conditions = Conditions(),  # noqa: B008 - frozen
        truth: Problem | None = None,
    ) -> None:
        """Make the problem's data ready; what is still pending will not be answered any more.

        What is prepared already stays as it is, or fails as it did; only the busy time begins anew.

        Args:
            kernel: what computes.
            problem: what is computed.
            seed: of the inputs.
            conditions: how everything is timed until the next ``prepare``.
            truth: the same problem in a wider dtype, from whose result errors are counted.

        Raises:
            DeviceError: the problem does not fit, or its reference fails.
        """
        self.busy, self.kernel, self.problem = BusyTime(), kernel, problem
        wanted = (kernel, problem, seed, conditions, truth)
        if wanted == self._held and self._refusal is not None:
            raise self._refusal
        if wanted == self._held and self._ready():
            return
        self._held = self._refusal = None
        try:
            self._prepare(kernel, problem, seed, conditions, truth)
        except TunerError as error:
            self._refusal = error
        self._held = wanted
        if self._refusal is not None:
            raise self._refusal

    @abstractmethod
    def _prepare(
        self, kernel: KernelSpec, problem: Problem, seed: int, conditions: Conditions, truth: Problem | None
    ) -> None:
        """Make the problem's data ready, whatever was there before."""

    @abstractmethod
    def _ready(self) -> bool:
        """Return whether what was prepared last is still there, and nothing that was submitted is unanswered."""

    def restrict(self, space: SearchSpace) -> SearchSpace:
        """Return a space with the configurations that this device can answer for."""
        return space

    @abstractmethod
    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        """Queue a configuration; what was compiled ahead is not compiled again.

        Args:
            number: comes back with the answer.
            configuration: one of the prepared kernel's.
            incumbent: called, perhaps from another thread, when it is about to be measured.
        """

    def drop(self) -> list[int]:
        """Drop submissions that would take long to be answered, and return their numbers."""
        return []

    @abstractmethod
    def collect(self, timeout_s: float) -> list[Trial]:
        """Return the trials that have ended, waiting for the first at most so long.

        It also returns, perhaps with nothing, when something has been compiled ahead.
        """

    def compile(self, configuration: Configuration) -> None:
        """Begin to compile a configuration that may be submitted later; only where there are ``compilers``."""
        raise NotImplementedError

    def compiled(self, configuration: Configuration) -> Compilation | None:
        """Return what became of :meth:`compile`, ``ok`` where it can be run; None while it is under way."""
        raise NotImplementedError

    def forget(self, configuration: Configuration) -> None:
        """Drop what was compiled ahead, or is still to be; it will not be submitted."""
        raise NotImplementedError

    def compile_ahead(  # noqa: B027 - most devices compile nothing
        self, kernel: KernelSpec, problem: Problem, configurations: Sequence[Configuration]
    ) -> None:
        """Begin to compile what a problem that is not prepared yet will need; only a hint."""

    def race(
        self, request: RaceRequest, failing: Callable[[int, RaceFailed], None] = lambda _, __: None
    ) -> RaceResult:
        """Time contestants in turn; one that fails is left out, and the others start again.

        Args:
            request: what is timed.
            failing: told at once of each that fails, and why; what it raises ends the race.
        """
        failures: dict[int, str] = {}
        left = list(range(len(request.contestants)))
        while left and (request.needed is None or left[0] < request.needed):
            entered = [request.contestants[i] for i in left]
            answer = self._race(replace(request, contestants=entered))
            if isinstance(answer, Raced):
                columns = range(len(left))
                return RaceResult(
                    {i: _timed(answer, at, entered[at]) for at, i in zip(columns, left, strict=True)},
                    failures,
                    answer.tags,
                )
            failed = left.pop(answer.contestant)
            failures[failed] = answer.error
            failing(failed, answer)
        return RaceResult({}, failures)

    @abstractmethod
    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        """Time contestants in turn, or name the first that fails."""

    def confirm(self, configuration: Configuration, time_ns: float) -> Measurement:
        """Measure once more where nothing of this session can matter: a fresh process, fresh inputs.

        Only what is not ``recorded`` can do so, or answer for other sizes.
        """
        raise NotImplementedError

    def fits(self, problem: Problem, configuration: Configuration) -> bool:
        """Return whether the configuration claims to work at another size."""
        raise NotImplementedError

    def verify_at(
        self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
    ) -> Measurement | None:
        """Check the output at another size; not ``checked`` without a reference in time; None if it cannot run."""
        raise NotImplementedError

    def expect_confirmation(self) -> None:  # noqa: B027 - most devices start no process
        """Begin what :meth:`confirm` will need beside the problem's data; only a hint."""

    def end_confirmation(self) -> None:  # noqa: B027 - most devices start no process
        """Let go of what :meth:`confirm` and :meth:`verify_at` have used."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything, at once."""


def _timed(race: Raced, index: int, contestant: Contestant) -> Timed:
    groups = [round_[index] for round_ in race.rounds]
    verified = race.verified[index] if race.verified else contestant.configuration is not None
    return Timed(contestant, groups, verified, race.sm_clock_hz[index] if race.sm_clock_hz else 0.0)
