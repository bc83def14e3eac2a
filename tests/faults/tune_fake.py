"""The command line on the fake device: ``python -m tests.faults.tune_fake --kernel ...``.

``FAKE_PATIENCE_S`` says for how long it waits for a measurement when it is told to stop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tuner.cli import main
from tuner.core import signals
from tuner.devices import choose
from tuner.devices.base import Device, say_nothing
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes


def open_fake(
    text: str, kernel: str, jobs: int | None, cache: Path | None, say: Callable[[str], None] = say_nothing
) -> Device:
    return LocalDevice(Processes(0, jobs, cache, "tests.faults.fake_worker"), say)


def run(arguments: list[str] | None = None) -> None:
    real = choose.open_device
    for module in list(sys.modules.values()):  # a fork has the commands' modules already
        if getattr(module, "open_device", None) is real:
            module.open_device = open_fake  # type: ignore[attr-defined]
    signals.PATIENCE_S = float(os.environ.get("FAKE_PATIENCE_S", signals.PATIENCE_S))
    main(arguments)


if __name__ == "__main__":
    run()
