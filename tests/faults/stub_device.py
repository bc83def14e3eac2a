"""A device in this process, scripted in Python: for what the session and the race do with its answers."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

from tuner.children.compilation import Compilation
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Measurement, Problem, Resources, Status, Trial, Verification
from tuner.core.observer import Observer
from tuner.devices.base import Contestant, Device, Incumbent, RaceRequest, no_incumbent
from tuner.devices.submissions import measured, trial_of
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.tuning.state import SEARCHING, State

PASSED = Verification(True)


def time_of(configuration: Configuration) -> float:
    """Return a time that the configuration alone decides, between 100 and 200 us."""
    return 100_000.0 + int(hashlib.sha256(configuration.key.encode()).hexdigest()[:6], 16) % 100_000


def good(time_ns: float) -> Measurement:
    samples = tuple(time_ns * (1 + 1e-4 * (i % 5 - 2)) for i in range(12))
    return Measurement(Status.OK, samples, "", PASSED, measure_s=12e-9 * time_ns)


class StubDevice(Device):
    """Answers at once, in order or shuffled.

    Args:
        lookahead: as of any device.
        shuffle: seed of the order of the answers; None for the order asked.
        answer: what a configuration measures to.
    """

    name = "cuda:0"
    recorded = False

    def __init__(
        self,
        lookahead: int = 1,
        shuffle: int | None = None,
        answer: Callable[[Configuration], Measurement] = lambda c: good(time_of(c)),
    ) -> None:
        super().__init__()
        self.gpu = ARCHITECTURES[90]
        self.lookahead = lookahead
        self.answer = answer
        self.submitted: list[Configuration] = []
        self.incumbent: Incumbent = no_incumbent
        self.prepared: list[Problem] = []
        self.truth: Problem | None = None
        self.waiting: list[tuple[int, Configuration]] = []
        self.draw = None if shuffle is None else random.Random(shuffle)
        self.closed = False
        self.races: list[list[Configuration]] = []
        self.fail_in_race: Callable[[Sequence[Contestant]], int | None] = lambda contestants: None
        self.race_noise = 0.0
        self.confirmed: Callable[[Configuration, float], Measurement] = lambda c, time_ns: good(time_of(c))
        self.edge_case: Callable[[Problem, Configuration], Measurement] = lambda p, c: good(1000.0)

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        return Conditions(mode or Mode.COLD, regime), "as asked" if mode else "by default"

    def _prepare(
        self, kernel: KernelSpec, problem: Problem, seed: int, conditions: Conditions, truth: Problem | None
    ) -> None:
        self.prepared.append(problem)
        self.conditions, self.truth = conditions, truth
        self.waiting.clear()

    def _ready(self) -> bool:
        return not self.waiting

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        self.incumbent = incumbent
        self.submitted.append(configuration)
        self.waiting.append((number, configuration))

    def collect(self, timeout_s: float) -> list[Trial]:
        if not self.waiting:
            return []
        place = self.draw.randrange(len(self.waiting)) if self.draw else 0
        number, configuration = self.waiting.pop(place)
        compilation = Compilation(Status.OK, resources=(Resources(32),))
        return [measured(trial_of(number, configuration, compilation), self.answer(configuration))]

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        return time_of(configuration)

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        self.races.append(request.configurations)
        failed = self.fail_in_race(request.contestants)
        if failed is not None:
            return RaceFailed("it failed in the race", failed)
        draw = random.Random(request.seed)
        times = [self.raced_ns(configuration, request.mode) for configuration in request.configurations]
        return Raced(
            [
                [[t * (1 + draw.gauss(0, self.race_noise)) for _ in range(request.samples)] for t in times]
                for _ in range(request.rounds)
            ]
        )

    def confirm(self, configuration: Configuration, time_ns: float) -> Measurement:
        return self.confirmed(configuration, time_ns)

    def fits(self, problem: Problem, configuration: Configuration) -> bool:
        return True

    def verify_at(
        self, problem: Problem, configuration: Configuration, limit_s: float, *, contents: bool
    ) -> Measurement:
        return self.edge_case(problem, configuration)

    def close(self) -> None:
        self.closed = True


class Watcher(Observer[State]):
    """An observer that remembers."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    @property
    def numbers(self) -> list[int]:
        """Of the trials that ended, without those before an interruption."""
        return [trial.number for trial in self.now.trials[self.now.resumed_trials :]] if self.now else []

    def phase(self, what: str, steps: float = 0) -> None:
        if what != SEARCHING:
            self.phases.append(what)


def stop_after(watcher: Watcher, count: int) -> Callable[[], bool]:
    """Press Ctrl-C after so many trials."""
    return lambda: len(watcher.numbers) >= count
