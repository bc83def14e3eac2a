"""Devices that answer from a recording after a while, as GPUs would: each a little faster or slower than the others.

``SIMULATED`` in the environment is a JSON object:

- ``recording``: its file;
- ``trial_s``: how long a trial takes;
- ``offset``: by how much the slowest device is slower than the fastest, as a share;
- ``noise``: standard deviation of every time, as a share;
- ``stragglers``: share of trials that take five times as long;
- ``deaths``: share of trials with which the process ends;
- ``opening_s``, ``finishing_s``: how long a problem is prepared, and a winner confirmed;
- ``gate``: a folder; a device leaves a file there, and is ready once there is a file ``open``;
- ``hold``: a file; while it is there, a device ends no more than ``held`` trials of a problem;
- ``log``: a folder whose ``trials.log`` gets the seconds of each trial;
- ``refuse``: numbers of devices that cannot be opened; ``hang``: of those with which a trial never ends, which another
  program has.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tuner.children.measuring import Raced, RaceFailed
from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Measurement, Problem, Trial
from tuner.devices.base import Incumbent, RaceRequest, no_incumbent
from tuner.devices.local import LocalDevice
from tuner.devices.replay import ReplayDevice
from tuner.devices.started import Processes
from tuner.devices.submissions import measured
from tuner.fleet.messages import OpenDevice
from tuner.fleet.searcher import shared_pool
from tuner.kernel.spec import KernelSpec

DEVICES = 16
"""Different offsets."""


class SimulatedDevice(ReplayDevice):
    """A device that takes its time."""

    lookahead = 2

    def __init__(self, number: int, say: Callable[[str], None]) -> None:
        self.settings = json.loads(os.environ["SIMULATED"])
        if number in self.settings.get("refuse", []):
            raise DeviceError(f"there is no GPU number {number}")
        super().__init__(Path(self.settings["recording"]), say)
        self.gpu = replace(self.gpu, uuid=f"{number:032x}")
        self.name, self.number = f"cuda:{number}", number
        if gate := self.settings.get("gate"):
            (Path(gate) / f"device-{number}").touch()
            while not (Path(gate) / "open").exists():
                time.sleep(0.05)
        self._draw = random.Random(f"{number} {os.getpid()} {time.time()}")
        self._speed = 1.0 + self._setting("offset") * ((number * 7 % DEVICES) / DEVICES - 0.5)
        self._due: list[tuple[float, Trial]] = []
        self._busy_until = 0.0
        self._ended = 0

    def _setting(self, name: str) -> float:
        return float(self.settings.get(name, 0.0))

    def _prepare(self, kernel: KernelSpec, problem: Problem, *rest: object) -> None:  # type: ignore[override]
        time.sleep(self._setting("opening_s"))
        self._due.clear()
        self._ended = 0
        super()._prepare(kernel, self._held_like(problem), *rest)  # type: ignore[arg-type]
        self._problem = problem

    def _held_like(self, problem: Problem) -> Problem:
        """Return a recorded problem of the same dtypes: others get its times, each changed a little."""
        held = [recorded.problem for recorded in self.recording.problems]
        like = [other for other in held if other.dtypes == problem.dtypes]
        return problem if problem in held or not like else like[0]

    def _ready(self) -> bool:
        return not self._due and super()._ready()

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        super().submit(number, configuration, incumbent)
        (outcome,) = super().collect(0.0)
        if self._draw.random() < self._setting("deaths"):
            os.kill(os.getpid(), signal.SIGKILL)
        took_s = self._setting("trial_s")
        if self.number in self.settings.get("hang", []):
            self.say("waiting for the GPU: process 1 (training) is using this GPU")
            took_s = 1e9
        took_s *= 5.0 if self._draw.random() < self._setting("stragglers") else 1.0
        if log := self.settings.get("log"):
            with (Path(log) / "trials.log").open("a") as file:
                file.write(f"{took_s}\n")
        self._busy_until = max(self._busy_until, time.monotonic()) + took_s
        self._due.append((self._busy_until, self._as_here(outcome, took_s)))

    def _as_here(self, trial: Trial, took_s: float) -> Trial:
        """Return an answer with the times of this device."""
        speed = self._speed * self._factor(trial.configuration)
        samples = tuple(time_ns * speed * self._noise() for time_ns in trial.samples_ns)
        measurement = Measurement(
            trial.status, samples, trial.error, trial.verification, trial.tags, measure_s=took_s
        )
        return measured(trial, measurement)

    def _factor(self, configuration: Configuration) -> float:
        """Return by how much a configuration's time differs from the recorded one, on every device."""
        text = f"{configuration.key} {self._problem.key}".encode()
        return 1.0 + 0.2 * int(hashlib.sha256(text).hexdigest()[:6], 16) / 2**24

    def _noise(self) -> float:
        return 1.0 + self._draw.gauss(0.0, self._setting("noise"))

    def collect(self, timeout_s: float) -> list[Trial]:
        if (
            (hold := self.settings.get("hold"))
            and self._ended >= self._setting("held")
            and Path(hold).exists()
        ):
            time.sleep(min(timeout_s, 0.05))
            return []
        deadline = time.monotonic() + timeout_s
        first = min((due for due, _ in self._due), default=deadline)
        time.sleep(max(0.0, min(first, deadline) - time.monotonic()))
        now = time.monotonic()
        ended = [outcome for due, outcome in self._due if due <= now]
        self._due = [(due, outcome) for due, outcome in self._due if due > now]
        self._ended += len(ended)
        return ended

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        time.sleep(self._setting("finishing_s"))
        answer = super()._race(request)
        assert isinstance(answer, Raced)
        factors = [self._speed * self._factor(one) for one in request.configurations]
        rounds = [
            [
                [sample * factor * self._noise() for sample in group]
                for group, factor in zip(groups, factors, strict=True)
            ]
            for groups in answer.rounds
        ]
        return Raced(rounds, answer.tags)


def open_simulated(message: OpenDevice, say: Callable[[str], None]) -> SimulatedDevice:
    """Open the device ``cuda:N``."""
    return SimulatedDevice(int(message.device.partition(":")[2]), say)


def open_fake(message: OpenDevice, say: Callable[[str], None]) -> LocalDevice:
    """Open the fake measuring process, with compilers that all searchers share."""
    device = LocalDevice(
        Processes(0, None, message.cache, "tests.faults.fake_worker", shared_pool(message)), say
    )
    device.name = message.device
    if message.facts is not None:
        device.notes, device.calibration = message.facts.notes, message.facts.calibration
    return device
