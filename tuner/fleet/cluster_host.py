"""The process that looks after a cluster's other processes on a host: the scheduler, and a worker for each GPU.

``python -m tuner.fleet.cluster_host FOLDER SETTINGS`` starts them, starts again what has died, and ends them when it is
told to. They are killed with it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TypeVar

import msgspec
from msgspec import structs

from tuner.children.record import Record
from tuner.core.errors import TunerError
from tuner.core.files import temporary_folder
from tuner.core.processes import die_with_parent
from tuner.fleet.cluster_files import security_of

AGAIN_S = 1.0
"""From the death of a process to its next start."""
REFUSED = 3
"""Exit status of a worker that the scheduler cannot want: it is not started again."""
PATIENCE_S = 8.0
"""How long a process may take to end before it is killed."""


class WorkerSettings(Record, frozen=True):
    """A worker, which stands for one GPU."""

    scheduler: str
    folder: Path
    host: str
    """The address at which it listens; empty for the one that leads to the scheduler."""
    device: str
    """``cuda:N`` on its host."""
    model: str
    uuid: str
    cc: int
    neighbours: int
    """GPUs of this host that are in the cluster, this one included: they share the compilers."""
    shared: Path = Path()
    """Folder of this host's workers, for as long as they live."""


class HostSettings(Record, frozen=True):
    """What runs on a host."""

    scheduler: str
    """The address that is served, or joined."""
    serves: bool
    """Whether the scheduler runs here."""
    dashboard: int
    """Port of the scheduler's web page; 0 for any, negative for none."""
    workers: tuple[WorkerSettings, ...]


Settings = TypeVar("Settings", bound=Record)


def encoded(settings: Record) -> str:
    """Return settings as an argument of a command line."""
    return json.dumps(msgspec.to_builtins(settings, enc_hook=str))


def decoded(text: str, kind: type[Settings]) -> Settings:
    """Return what :func:`encoded` was given."""
    return msgspec.json.decode(text, type=kind, dec_hook=lambda kind, value: kind(value))


class Process:
    """A process that is started again when it dies.

    Args:
        module: what it runs.
        arguments: its command line.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-P", "-m", module, *arguments]
        self._due = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self.refused = False

    def tend(self) -> None:
        """Start it if it does not run, and it is not too early for that."""
        if self._running is not None and (status := self._running.poll()) is not None:
            self.refused = status == REFUSED
            self._running, self._due = None, time.monotonic() + AGAIN_S
        if self._running is None and not self.refused and time.monotonic() >= self._due:
            self._running = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)

    def ask_to_end(self) -> None:
        """Let it end in order."""
        if self._running is not None:
            self._running.terminate()

    def end(self, deadline: float) -> None:
        """Wait until it has ended; kill it after the deadline."""
        if self._running is None:
            return
        try:
            self._running.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()


def tend(processes: Sequence[Process]) -> None:
    """Keep processes running until this one is told to end."""
    ending = False

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's signature
        nonlocal ending
        ending = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    while not ending and not all(process.refused for process in processes):
        for process in processes:
            process.tend()
        time.sleep(0.1)
    for process in reversed(processes):  # workers before the scheduler
        process.ask_to_end()
    deadline = time.monotonic() + PATIENCE_S
    for process in processes:
        process.end(deadline)


async def serve(address: str, folder: Path, dashboard: int) -> None:
    """Run the scheduler until SIGTERM."""
    from distributed import Scheduler

    scheme, _, rest = address.partition("://")
    host, _, port = rest.rpartition(":")
    scheduler = Scheduler(
        host=host,
        port=int(port),
        protocol=scheme,
        security=security_of(folder, address),
        dashboard=dashboard >= 0,
        dashboard_address=f"{host}:{max(dashboard, 0)}",
    )
    await scheduler
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: asyncio.ensure_future(scheduler.close()))
    await scheduler.finished()


def main(arguments: Sequence[str]) -> None:
    """Look after a host, or with ``--scheduler`` be its scheduler."""
    if arguments[0] == "--scheduler":
        die_with_parent()
        try:
            asyncio.run(serve(arguments[1], Path(arguments[2]), int(arguments[3])))
        except (OSError, RuntimeError, TunerError) as error:
            sys.exit(f"cannot serve {arguments[1]}: {error.__cause__ or error}")
        return
    folder, settings = Path(arguments[0]), decoded(arguments[1], HostSettings)
    with temporary_folder() as shared:
        processes = []
        if settings.serves:
            own = ("--scheduler", settings.scheduler, str(folder), str(settings.dashboard))
            processes.append(Process("tuner.fleet.cluster_host", *own))
        for worker in settings.workers:
            own_settings = structs.replace(worker, shared=shared)
            processes.append(Process("tuner.fleet.cluster_worker", encoded(own_settings)))
        tend(processes)


if __name__ == "__main__":
    main(sys.argv[1:])
