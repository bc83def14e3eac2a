"""The end of a run: finalists on a scripted device."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import StubDevice, good
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Mode
from tuner.core.model import Configuration, Problem, Status, Trial
from tuner.devices.base import RaceRequest
from tuner.tuning.race import FinalRace
from tuner.tuning.state import Finish

MARGIN = 0.0075
"""As a share: what the page on tables recommends."""
PROBLEM = Problem("scale", {"n": 1000}, {"input": "float32"})
with tempfile.TemporaryDirectory() as _folder:
    KERNEL = scale_kernel(Path(_folder))


def trial(number: int, time_us: float | None, status: Status = Status.OK) -> Trial:
    time_ns = None if time_us is None else time_us * 1e3
    configuration = Configuration.of("plain", {"time": int(time_ns or 0), "number": number})
    return Trial(number, configuration, status, time_ns)


class Track(StubDevice):
    """A device on which a configuration takes the time that it is named after, or (in us) another in truth."""

    def __init__(self, truth: dict[int, float] | None = None, noise: float = 0.0) -> None:
        super().__init__()
        self.truth = truth or {}
        self.race_noise = noise
        self.shuffles: list[int] = []
        self.confirmed = lambda c, time_ns: good(self.time(c))

    def time(self, configuration: Configuration) -> float:
        number = int(configuration.values["number"])
        return self.truth[number] * 1e3 if number in self.truth else float(configuration.values["time"])

    def raced_ns(self, configuration: Configuration, mode: Mode | None) -> float:
        return self.time(configuration)

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        self.shuffles.append(request.seed)
        return super()._race(request)


def finish(device: Track, trials: list[Trial], default: Trial | None = None, **changes: Any) -> Finish:
    """Return how a race ends that has a winner."""
    ended, _ = finish_and_rejected(device, trials, default, **changes)
    assert ended is not None
    return ended


def finish_and_rejected(
    device: Track,
    trials: list[Trial],
    default: Trial | None = None,
    say: Callable[[str], None] = lambda what: None,
    **changes: Any,
) -> tuple[Finish | None, list[tuple[Trial, str]]]:
    rejected: list[tuple[Trial, str]] = []

    def reject(trial: Trial, reason: str, status: Status) -> None:
        rejected.append((trial, reason))

    ended = FinalRace(device, KERNEL, PROBLEM, default, say, reject, **changes).run(trials)
    assert ended is None or ended.unstable == rejected
    return ended, rejected


def numbers(configurations: Sequence[Configuration]) -> list[int]:
    return [int(configuration.values["number"]) for configuration in configurations]
