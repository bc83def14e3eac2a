"""For ``tune ladder``: a kernel with optimisation steps, and a device that times them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults.bench_device import BASELINES, BenchDevice
from tests.faults.kernels import configuration, scale_kernel
from tests.faults.stub_device import time_of
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Calibration
from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Problem
from tuner.core.observer import Observer
from tuner.devices.base import RaceRequest
from tuner.kernel.spec import KernelSpec

STORY = """
[[ladder]]
name = "one warp"
variant = "plain"
parameters = { block_size = 32 }
doc = "32 threads a block"

[[ladder]]
name = "more"
variant = "plain"
parameters = { block_size = [128, 256] }

[[ladder]]
name = "half"
variant = "plain"
dtypes = { input = "float16" }

[[ladder]]
name = "tomorrow"
variant = "tomorrow"

[variants.tomorrow]
requires = "cc >= 990"

[variants.tomorrow.parameters]
block_size = { values = [32] }

[[variants.tomorrow.launches]]
template = "scale.cu.j2"
entry = "scale__ok"
arguments = ["x", "y", { value = "n", dtype = "int64" }]
grid = ["n"]
block = ["block_size"]

"""
STEPS = ("one warp", "more", "half", "tomorrow")
LAUNCH_NS = 1000.0


def kernel_with_ladder(folder: Path, story: str = STORY, **changes: object) -> KernelSpec:
    return scale_kernel(folder, extra=BASELINES + story, **changes)


class Times(dict[Configuration | str, float]):
    """Times in an interleaved comparison: those of the search, unless a test sets others."""

    def __missing__(self, name: Configuration | str) -> float:
        assert isinstance(name, Configuration), name
        return time_of(name)


class LadderDevice(BenchDevice):
    """Searches, races, remembers what it was prepared for; problems of more than ``full`` elements do not fit."""

    def __init__(self) -> None:
        super().__init__(Times(torch=2.5e5, cupy=3e5), noise=0.0005)
        self.calibration = Calibration(
            {"cold, rested": 0.004},
            read_bytes_per_s=4.4e12,
            copy_bytes_per_s=4.2e12,
            vector_flops=6e13,
            matrix_flops=8e14,
            launch_ns={"cold": LAUNCH_NS},
        )
        self.full = 10**9
        self.prepared_problem: Problem | None = None

    def _prepare(self, kernel: KernelSpec, problem: Problem, *others: Any) -> None:
        self.prepared_problem = None
        super()._prepare(kernel, problem, *others)
        if problem.sizes["n"] > self.full:
            raise DeviceError(f"{problem}: this problem does not fit on the GPU")
        self.prepared_problem = problem

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        assert self.prepared_problem is not None
        return super()._race(request)


BEST = {
    "one warp": min((configuration("ok", 32, items) for items in (1, 2, 3, 4)), key=time_of),
    "more": min(
        (configuration("ok", block, items) for block in (128, 256) for items in (1, 2, 3, 4)), key=time_of
    ),
}
"""Of the steps in float32."""


class Recorder(Observer[str]):
    """Progress that remembers."""

    def __init__(self) -> None:
        self.steps = 0.0
        self.begun: list[str] = []

    def phase(self, what: str, steps: float = 0) -> None:
        self.steps = steps

    def step(self, now: str, done: float | None = None) -> None:
        self.begun.append(now)
