"""Runs of the tuner on stand-ins, and what the database says of them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stub_device import Watcher, stop_after
from tuner.core.errors import Interrupted
from tuner.core.model import Configuration, Problem, RunOptions
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.replay import ReplayDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import Result

TRIALS = 24
"""Of a run where nothing else is said."""
OPTIONS = {field.name for field in fields(RunOptions)}


def request_of(kernel: KernelSpec, problem: Problem, **changes: Any) -> Request:
    """Return a request; its options may be named among the changes."""
    options = {name: changes.pop(name) for name in OPTIONS & changes.keys()}
    return Request(kernel, problem, RunOptions(**options), **changes)


def replay(recording: Path, database: Database, **changes: Any) -> Result:
    kernel = load_kernel("vector_add")
    request = request_of(
        kernel, kernel.problem(preset="small"), **{"trials": TRIALS, "from_scratch": True, **changes}
    )
    return tune(request, ReplayDevice(recording), database, Watcher())


def run(
    kernel: KernelSpec, database: Database, device: Device, watcher: Watcher | None = None, **changes: Any
) -> Result:
    stop = changes.pop("stop", lambda: False)
    problem = changes.pop("problem", None) or kernel.problem()
    request = request_of(
        kernel, problem, **{"trials": TRIALS, "sampler": "random", "from_scratch": True, **changes}
    )
    return tune(request, device, database, watcher or Watcher(), stop)


def run_stopped(kernel: KernelSpec, database: Database, after: int, device: Device, **changes: Any) -> None:
    """Press Ctrl-C after so many trials of a run."""
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, device, watcher, stop=stop_after(watcher, after), **changes)


def sequence(database: Database, run_id: str) -> list[Configuration]:
    return [trial.configuration for trial in database.trials(run_id)]


def only_run(database: Database) -> tuple[str, str]:
    ((run_id, state),) = [tuple(row.values()) for row in database.select("SELECT id, state FROM runs")]
    return run_id, state


def plain(block: int, items: int = 1) -> Configuration:
    return Configuration.of("plain", {"fault": "ok", "block_size": block, "items": items})
