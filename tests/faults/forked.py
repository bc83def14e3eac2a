"""A tuner as a fork of a process that has imported everything: a start costs milliseconds instead of a second.

Only for processes of a single thread, so not for pytest's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tuner.search.study
from tests.faults import drive, tune_fake
from tuner.devices import choose

choose.open_device = tune_fake.open_fake  # before the command takes it from there
import tuner.cli.run  # noqa: E402, F401

MAINS: Mapping[str, Callable[[Sequence[str] | None], None]] = {
    "tests.faults.drive": drive.main,
    "tests.faults.tune_fake": lambda arguments: tune_fake.run(list(arguments or ())),
}


class Forked:
    """What ``subprocess.Popen`` would be of a module's command line, as far as tests need it."""

    def __init__(
        self, module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._run(module, arguments, folder, environment, log)

    @staticmethod
    def _run(
        module: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path
    ) -> None:
        code = 1
        try:
            os.setsid()
            os.chdir(folder)
            os.environ.update(environment)
            null = os.open(os.devnull, os.O_RDWR)
            errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream, descriptor in ((0, null), (1, null), (2, errors)):
                os.dup2(descriptor, stream)
            sys.argv = ["tune", *arguments]
            MAINS[module](arguments)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except KeyboardInterrupt:
            code = 130
        except Exception:  # noqa: BLE001 - as an interpreter does
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 1e9)
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("tune", timeout or 0.0)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
