"""Runs on recordings that are interrupted at random moments and resumed.

Each leg of a run is a process of its own, forked from this one; ``kill -9`` is real.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.faults.stub_device import Watcher
from tests.sessions import request_of
from tuner.children.compilation import Compilation
from tuner.core.errors import Interrupted
from tuner.core.model import Configuration, Problem, Status, Trial
from tuner.database.database import Database
from tuner.devices.base import Incumbent, no_incumbent
from tuner.devices.replay import ReplayDevice
from tuner.formats.recording import Recording, read_recording
from tuner.kernel.load import load_kernel
from tuner.tuning.request import Request
from tuner.tuning.session import tune

Ended = tuple[int, Configuration, Status, tuple[float, ...]]
"""Number, configuration, status and samples of a trial."""
ENDS = ("kill", "ctrl-c", "ctrl-c twice")
MEASURE_S = (0.02, 0.05, 0.1)
COMPILE_S = (0.2, 0.3, 0.5)


class AheadDevice(ReplayDevice):
    """A recording that answers out of order and, with compilers, compiles before.

    Args:
        recording: answers.
        lookahead: as of any device.
        compilers: as of any device.
        shuffle: seed of the order in which things end.
        interrupt: called before each call.
    """

    def __init__(
        self,
        recording: Recording,
        lookahead: int,
        compilers: int,
        shuffle: int,
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(recording)
        self.lookahead, self.compilers = lookahead, compilers
        self.interrupt = interrupt
        self.submitted = 0
        self._draw = random.Random(shuffle)
        self._under_way: list[Configuration] = []
        self._compiled: dict[Configuration, Compilation] = {}

    def compile(self, configuration: Configuration) -> None:
        self._under_way.append(configuration)

    def compiled(self, configuration: Configuration) -> Compilation | None:
        return self._compiled.get(configuration)

    def forget(self, configuration: Configuration) -> None:
        self._compiled.pop(configuration, None)
        if configuration in self._under_way:
            self._under_way.remove(configuration)

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        self.interrupt()
        self.submitted += 1
        super().submit(number, configuration, incumbent)
        draw = random.Random(configuration.key)
        seconds = {"compile_s": draw.choice(COMPILE_S), "measure_s": draw.choice(MEASURE_S)}
        self._trials.append(replace(self._trials.pop(), **seconds))
        self.forget(configuration)

    def collect(self, timeout_s: float) -> list[Trial]:
        self.interrupt()
        place = self._draw.randrange(max(1, len(self._trials) + len(self._under_way)))
        if place < len(self._trials):
            return [self._trials.pop(place)]
        if self._under_way:
            configuration = self._under_way.pop(place - len(self._trials))
            row = self._recorded.rows[configuration]
            failed = row.status is Status.COMPILE_ERROR
            self._compiled[configuration] = Compilation(
                Status.COMPILE_ERROR if failed else Status.OK,
                resources=(row.resources,) if row.resources else (),
            )
        return []


@dataclass(frozen=True)
class Plan:
    """A run to be interrupted."""

    recording: Path
    problem: Problem
    sampler: str
    seed: int
    trials: int
    lookahead: int = 1
    compilers: int = 0
    from_scratch: bool = True

    def __str__(self) -> str:
        ahead = f"{self.compilers} compilers" if self.compilers else f"{self.lookahead} under way"
        earlier = "" if self.from_scratch else ", others in between"
        return f"{self.problem}, {self.sampler}, seed {self.seed}, {ahead}{earlier}"

    def request(self, **changes: Any) -> Request:
        options = {
            "trials": self.trials,
            "sampler": self.sampler,
            "seed": self.seed,
            "from_scratch": self.from_scratch,
        }
        return request_of(load_kernel(self.problem.kernel), self.problem, **{**options, **changes})

    def device(self, shuffle: int, interrupt: Callable[[], None] = lambda: None) -> AheadDevice:
        recording = read_recording(self.recording)
        return AheadDevice(recording, self.lookahead, self.compilers, shuffle, interrupt)


@dataclass
class Broken:
    """An interrupted run, at its end."""

    ends: list[str]
    """How its legs ended."""
    kept: list[list[Ended]]
    """What was recorded at the end of each leg."""


def interrupted(plan: Plan, folder: Path, draw: random.Random, most: int = 3) -> Broken:
    """Run a plan with up to ``most`` interruptions at random moments, and then to its end."""
    file = folder / "broken.db"
    if not plan.from_scratch:
        _run_other(plan, file, plan.seed + 1000)
    ends: list[str] = []
    kept: list[list[Ended]] = []
    while len(ends) < most:
        moment, end = draw.randrange(1, 3 * plan.trials // 2), draw.choice(ENDS)
        ended = _in_a_process(plan, file, moment, end, shuffle=draw.randrange(100), resume=bool(kept))
        kept.append(_recorded(plan, file))
        ends.append(end if ended != 0 else "to its end")
        if ended == 0:
            return Broken(ends, kept)
        if not plan.from_scratch:
            _run_other(plan, file, plan.seed + 2000 + len(ends))
    code = _in_a_process(plan, file, None, "", shuffle=draw.randrange(100), resume=True)
    assert code == 0, f"{plan}: the last leg ended with {code}"
    return Broken(ends, [*kept, _recorded(plan, file)])


def _in_a_process(plan: Plan, file: Path, moment: int | None, end: str, *, shuffle: int, resume: bool) -> int:
    """Run a leg in a forked process, interrupt it at a call of its device, and return how it ended; 0 by itself."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = _leg(plan, file, moment, end, shuffle, resume=resume)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended in (0, Interrupted.exit_code, -signal.SIGKILL), f"{plan}: a leg ended with {ended}"
    return ended


def _leg(plan: Plan, file: Path, moment: int | None, end: str, shuffle: int, *, resume: bool) -> int:
    calls, stopped = 0, False

    def interrupt() -> None:
        nonlocal calls, stopped
        calls += 1
        if calls != moment:
            return
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "ctrl-c twice":
            raise KeyboardInterrupt
        stopped = True

    with Database.open(file) as database:
        try:
            device = plan.device(shuffle, interrupt)
            tune(plan.request(resume=resume), device, database, Watcher(), lambda: stopped)
        except Interrupted as error:
            return error.exit_code
    return 0


def _run_other(plan: Plan, file: Path, seed: int) -> None:
    """Put another run of the same problem into a database."""
    with Database.open(file) as database:
        request = plan.request(seed=seed, sampler="random", trials=12)
        tune(request, plan.device(0), database, Watcher(), finish=True)


def _recorded(plan: Plan, file: Path) -> list[Ended]:
    """Return the trials of a run, in the order of their numbers."""
    with Database.open(file, write=False) as database:
        ((run_id,),) = [
            tuple(row.values())
            for row in database.select(
                "SELECT id FROM runs WHERE seed = ? AND trials_requested = ?", plan.seed, plan.trials
            )
        ]
        trials = database.trials(run_id)
    return [(trial.number, trial.configuration, trial.status, trial.samples_ns) for trial in trials]
