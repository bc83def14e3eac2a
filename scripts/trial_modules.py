"""Lists the modules of the package that one trial passes through in the head, between ask and tell.

    scripts/run python scripts/trial_modules.py [--most N]

A run of a few trials on a stand-in for the measuring process, one trial at a time; a profiler in every thread counts
the functions of the package that are called from the moment in which the study has answered until it is told. Exits
with 1 if there are more modules than N.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.faults.kernels import write_kernel
from tests.faults.stub_device import Watcher
from tuner.database.database import Database
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.tuning.request import Request
from tuner.tuning.session import tune

TRIAL = 6
"""The trial that is watched: the first ones begin with what is imported and prepared."""


class Profile:
    """Counts calls by module while trial :data:`TRIAL` is under way."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.asked = self.told = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG002 - sys.setprofile's
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("tuner."):
            return
        function = frame.f_code.co_qualname
        if function == "Search.tell" and event == "call":
            self.told += 1
        elif self.told < TRIAL <= self.asked and event == "call":
            self.calls[module] += 1
        if function == "Search.ask" and event == "return":
            self.asked += 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=15)
    most = parser.parse_args().most
    profile = Profile()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernel = load_kernel(str(write_kernel(folder)))
        request = Request(kernel, kernel.problem(), TRIAL + 2)
        threading.setprofile(profile)
        sys.setprofile(profile)
        device = LocalDevice(0, jobs=1, cache=folder / "cubins", worker="tests.faults.fake_worker")
        device.lookahead, device.compilers = 1, 0  # one trial at a time, nothing compiled ahead
        with closing(device), Database.open(folder / "tuning.db") as database:
            tune(request, device, database, Watcher(), threading.Event().is_set)
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type] - typeshed forbids what Python allows
    for module, count in sorted(profile.calls.items()):
        print(f"{count:6}  {module}")
    print(f"{len(profile.calls)} modules")
    sys.exit(len(profile.calls) > most)


if __name__ == "__main__":
    main()
