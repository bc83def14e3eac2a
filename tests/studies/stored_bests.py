"""Winners of a small kernel, of which some are timed again."""

from __future__ import annotations

from tests.faults.bench_device import GPU, BenchDevice
from tests.faults.kernels import configuration
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Configuration, Problem
from tuner.database.database import Database
from tuner.database.records import StoredWinner
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.studies.bench import Against, Target, bench, check, stored_winners

WARM = Conditions(Mode.WARM)
HOT = Conditions(Mode.COLD, Regime.SUSTAINED)
BEST = configuration("ok", 256, 2)
ONLY_BEST = Against(default=False, baselines=(), named=True)


def default_of(kernel: KernelSpec) -> Configuration:
    return SearchSpace.from_kernel(kernel, kernel.problem(), GPU).default


def winners(database: Database) -> list[StoredWinner]:
    return stored_winners(database, GPU).rows


def only(targets: list[Target]) -> Target:
    (target,) = targets
    return target


def sized(kernel: KernelSpec, n: int, dtype: str = "float32") -> Problem:
    return kernel.problem({"n": n}, {"": dtype})


def checked(device: BenchDevice, target: Target) -> tuple[bool, float] | None:
    found = check(device, bench(device, target, ONLY_BEST, 20, 0), 20, 0)
    return None if found is None else (found.slower, found.tolerance)
