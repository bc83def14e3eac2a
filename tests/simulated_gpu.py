"""A GPU by formulas, for gemm: waves of tiles, memory, launches and noise, so that what goes by times can be tested.

Its formulas are not those of the kernel's file: how fast a tile is multiplied depends on more, and each configuration
is off by some percent of its own, which changes slowly with the sizes.
"""

from __future__ import annotations

import hashlib
import math
import random

from tests.faults.stub_device import StubDevice, good
from tuner.children.measuring import Raced, RaceFailed
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Problem
from tuner.devices.base import RaceRequest
from tuner.kernel.spec import KernelSpec

SM_FLOPS = 989e12 / 132 / 1e9
"""Of an SM in a nanosecond."""
BYTES = 4.0e12 / 1e9
"""Of memory in a nanosecond."""


def _draw(*of: object) -> float:
    """Return a number from -1 to 1 that some values decide."""
    return int(hashlib.sha256(repr(of).encode()).hexdigest()[:8], 16) / 2**31 - 1


def time_ns(configuration: Configuration, problem: Problem, own: float = 0.03) -> float:
    """Return how long a configuration of gemm takes.

    Args:
        configuration: which.
        problem: where.
        own: how far it is off by itself.
    """
    values, (m, n, k) = configuration.values, problem.sizes.values()
    block_m, block_n = int(values.get("block_m", 8)), int(values.get("block_n", 64))
    parts = int(values.get("cluster_k", 1)) * int(values.get("split_k", 1))
    tiles = math.ceil(m / block_m) * math.ceil(n / block_n) * parts
    rounds: float = math.ceil(tiles / 132)
    if values.get("stream_k"):
        rounds = max(1.0, tiles / 132 + 0.1)
    # Small tiles wait for what they load; a step is shorter with deep stages.
    rate = 1 / (1 + 0.35 * (256 / block_m + 256 / block_n) / 4 + 8 / int(values.get("block_k", 32)))
    if not configuration.variant.startswith("wgmma"):
        rate *= 0.45
    stage_fill = 900 + 250 * int(values.get("stages", 2))
    multiply = rounds * 2 * block_m * block_n * (k / parts) / (SM_FLOPS * rate) + stage_fill
    memory = 2 * (m * k + k * n + m * n) / BYTES * (1 + 0.15 * (tiles < 66))
    if "padded" in configuration.variant:
        memory += 4 * (m * k + k * n) / BYTES + 2000
    if configuration.variant.startswith("gemv"):
        multiply = memory * 1.02 * max(1, m / 4)
    exchange = 700 * (parts > 1) + 1500 * (int(values.get("split_k", 1)) > 1)
    smooth = sum(
        _draw(configuration.key, name) * math.sin(math.log2(size) + 3 * _draw(configuration.key, name, 1))
        for name, size in problem.sizes.items()
    )
    layout = _draw(configuration.key, problem.options.get("layout"))
    return (1500 + max(multiply, memory) + 0.2 * min(multiply, memory) + exchange) * (
        1 + own * (smooth + 0.5 * layout + 0.3 * _draw(configuration.key, problem.key))
    )


class SimulatedGpu(StubDevice):
    """Answers with :func:`time_ns`, in races with noise.

    Args:
        noise: standard deviation of a sample, relatively.
    """

    def __init__(self, noise: float = 0.003) -> None:
        super().__init__(answer=lambda configuration: good(time_ns(configuration, self.prepared[-1])))
        self.confirmed = lambda configuration, _: good(time_ns(configuration, self.prepared[-1]))
        self.noise = noise
        self.timed = 0
        """Pairs of a configuration and a problem, with repetitions."""

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        return Conditions(mode or Mode.COLD, regime), ""

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        self.races.append(request.configurations)
        failed = self.fail_in_race(request.contestants)
        if failed is not None:
            return RaceFailed("it gave a wrong result", failed)
        self.timed += len(request.contestants)
        draw = random.Random(f"{request.seed} {len(self.races)}")
        times = [time_ns(one, self.prepared[-1]) for one in request.configurations]
        return Raced(
            [
                [
                    [time * (1 + self.noise * draw.gauss(0, 1)) for _ in range(request.samples)]
                    for time in times
                ]
                for _ in range(request.rounds)
            ]
        )
