"""For ``tune bench``: a device whose races are scripted by the contestants' names, and winners in a database."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.faults.kernels import scale_kernel
from tests.faults.stub_device import StubDevice
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Calibration, Conditions, Mode, Regime
from tuner.core.model import Configuration, Gpu, Problem, Run, RunOptions, Status, Trial, Verification
from tuner.database.database import Database
from tuner.database.records import Winner
from tuner.devices.base import Contestant, RaceRequest
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

GPU = replace(ARCHITECTURES[90], uuid="GPU-1", driver="580.95")
BASELINES = """
[baselines]
torch = "torch.mul(x, 2, out=y)"
cupy = "cupy.multiply(x, 2, out=y)"
"""


def kernel_with_baselines(folder: Path, extra: str = "", **changes: object) -> KernelSpec:
    return scale_kernel(folder, extra=BASELINES + extra, **changes)


class BenchDevice(StubDevice):
    """Answers a race with the times that ``times_ns`` holds, by configuration or by a baseline's name.

    Every group of a round shares one drift, of up to a factor of 2, and has its own noise. ``absent`` maps names to the
    error with which they fail; ``slower_once`` multiplies all times of the first race.
    """

    def __init__(
        self, times_ns: dict[Configuration | str, float] | None = None, noise: float = 0.001
    ) -> None:
        super().__init__()
        self.gpu: Gpu = GPU
        self.times_ns = times_ns or {}
        self.noise = noise
        self.absent: dict[Configuration | str, str] = {}
        self.wrong: set[str] = set()
        self.drift = 1.0
        self.slower_once = 1.0
        self.fields: list[list[Configuration | str]] = []
        self.contestants: list[list[Contestant]] = []
        self.timed: list[tuple[Problem, Conditions]] = []
        self.versions = {"driver": "580.95"}
        self.calibration = Calibration({"cold, rested": 0.004}, notes=("clocks are held by their owner",))
        self.during_race: Callable[[], None] = lambda: None

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        return Conditions(mode or Mode.COLD, regime), "as asked" if mode else "it takes long enough"

    def _prepare(
        self, kernel: KernelSpec, problem: Problem, seed: int, conditions: Conditions, truth: Problem | None
    ) -> None:
        super()._prepare(kernel, problem, seed, conditions, truth)
        self.timed.append((problem, conditions))

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        self.during_race()
        names = [_name(contestant) for contestant in request.contestants]
        self.fields.append(names)
        self.contestants.append(list(request.contestants))
        for i, name in enumerate(names):
            if name in self.absent:
                return RaceFailed(self.absent[name], i)
        draw = random.Random(request.seed)
        factor, self.slower_once = self.slower_once, 1.0
        groups = []
        for _ in range(request.rounds):
            drift = 1.0 + (self.drift - 1.0) * draw.random()
            row = []
            for name in names:
                time_ns, own = self.times_ns[name] * factor, 1.0 + draw.gauss(0.0, self.noise)
                row.append([time_ns * drift * own * (1 + 1e-4 * k) for k in range(request.samples)])
            groups.append(row)
        return Raced(
            groups,
            ("power_cap",),
            verified=tuple(name not in self.wrong for name in names),
            sm_clock_hz=tuple(1.7e9 for _ in names),
        )


def _name(contestant: Contestant) -> Configuration | str:
    if contestant.configuration is not None:
        return contestant.configuration
    assert contestant.baseline is not None
    return contestant.baseline.name


def remember(
    database: Database,
    kernel: KernelSpec,
    problem: Problem,
    configuration: Configuration,
    time_ns: float,
    conditions: Conditions = Conditions(),  # noqa: B008 - frozen
    gpu: Gpu = GPU,
    device: str = "cuda:0",
    **changes: object,
) -> int:
    """Write a run with one trial, which is its confirmed winner."""
    identity = KernelIdentity(kernel)
    run = Run(
        str(uuid.uuid4()), problem, gpu, device, RunOptions(sampler="tpe", trials=1), kernel_digest=identity.text,
        computation=identity.computation,
        kernel_file=str(kernel.file), conditions=conditions,
    )  # fmt: skip
    database.start_run(run)
    trial = Trial(
        0, configuration, Status.OK, time_ns, time_ns, time_ns, (time_ns,), verification=Verification(True)
    )
    row = database.record(run.id, trial)
    database.finish_run(run.id, "finished")
    winner = Winner(row, configuration, time_ns, exportable=True)
    return database.record_winner(run.id, replace(winner, **changes))  # type: ignore[arg-type]
