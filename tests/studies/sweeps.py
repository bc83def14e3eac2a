"""Sweeps up the ladder of a small kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.faults.ladder_device import Recorder
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.kernel.baselines import baselines_of
from tuner.kernel.spec import KernelSpec, StepSpec
from tuner.studies.bench import Against
from tuner.studies.ladder import SEARCH, Level, Sweep
from tuner.studies.ladder_run import LadderRun


def sweep(kernel: KernelSpec, *sizes: int, steps: tuple[StepSpec, ...] | None = None, **search: Any) -> Sweep:
    against = Against(default=False, baselines=tuple(baselines_of(kernel)), named=False)
    levels = tuple({"n": n} for n in sizes or (1024,))
    steps = kernel.steps if steps is None else steps
    options = replace(SEARCH, **{"sampler": "random", **search})  # which tries such small spaces whole, too
    return Sweep(kernel, kernel.problem(), levels, steps, against, search=options)


def up(
    what: Sweep,
    device: Device,
    database: Database,
    stop: Callable[[], bool] = lambda: False,
    recorder: Recorder | None = None,
) -> list[Level]:
    return list(LadderRun(what, device, database, recorder or Recorder(), stop).levels())
