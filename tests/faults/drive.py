"""A tuner on the fake device, to be killed: tunes one kernel and notes each trial that was acknowledged."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tuner.core.errors import TunerError
from tuner.core.model import RunOptions
from tuner.core.observer import Observer
from tuner.core.signals import stopping
from tuner.database.database import Database
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.load import load_kernel
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import State


class Notes(Observer[State]):
    """Writes ``run number status time`` of each trial once the session says that it has ended."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.noted = 0

    def step(self, now: State, done: float | None = None) -> None:
        for trial in now.trials[max(self.noted, now.resumed_trials) :]:
            line = f"{now.run.id} {trial.number} {trial.status} {trial.time_ns}\n"
            os.write(self.descriptor, line.encode())
        self.noted = len(now.trials)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kernel", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sampler", default="random")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--database", type=Path, help="elsewhere than in the folder")
    given = parser.parse_args(arguments)
    kernel = load_kernel(str(given.kernel))
    request = Request(
        kernel,
        kernel.problem(),
        RunOptions(trials=given.trials, sampler=given.sampler, seed=given.seed, from_scratch=True),
        resume=given.resume,
    )
    try:
        with (
            stopping() as stop,
            closing(
                LocalDevice(Processes(0, 1, given.folder / "cache", "tests.faults.fake_worker"))
            ) as device,
            Database.open(given.database or given.folder / "tuning.db") as database,
        ):
            result = tune(request, device, database, Notes(given.folder / "notes"), stop)
    except TunerError as error:
        print(f"tune: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0 if result.finish is not None else 1)


if __name__ == "__main__":
    main()
