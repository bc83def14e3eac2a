"""The process that keeps Dask's commands running on a host: ``dask scheduler``, and a ``dask worker`` for each GPU.

``python -m tuner.fleet.cluster_host FOLDER`` starts what the folder says of this host, starts again what has ended, and
ends all of it when it is told to. They are killed with it.

Dask's nanny does less: a worker that loses its scheduler ends together with its nanny, and a scheduler has none.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from tuner.core.files import temporary_folder
from tuner.core.processes import die_with_parent
from tuner.fleet.cluster_files import CERTIFICATE, KEY, LOG, HostSettings, read_settings

AGAIN_S = 1.0
"""From the end of a process to its next start."""
JOIN_S = 30
"""How long a worker looks for the scheduler."""
NO_NAME = r"[^\w.-]"
"""What stands in no name of a resource."""
MOST_FILES = 1 << 16
"""That a process may have open, if the system allows it: each connection is one."""
LOG_BYTES = 8 << 20
"""Of the log, and of the one before it: Dask writes a megabyte a second while a process has no file descriptor left."""
PATIENCE_S = 8.0
"""How long a process may take to end before it is killed."""


def commands(settings: HostSettings, folder: Path, shared: Path) -> list[list[str]]:
    """Return Dask's command lines.

    Args:
        settings: of the host.
        folder: has the certificate.
        shared: temporary files of the workers.
    """
    scheme, _, rest = settings.scheduler.partition("://")
    host, _, port = rest.rpartition(":")
    certificate, tls = folder / CERTIFICATE, list[str]()
    if scheme == "tls":
        tls = _options(tls_ca_file=certificate, tls_cert=certificate, tls_key=folder / KEY)
    found = []
    if settings.serves:
        hidden = settings.dashboard < 0  # some pages are served even so
        web = "127.0.0.1:0" if hidden else f"{host}:{settings.dashboard}"
        own = _options(host=host, port=port, protocol=scheme, dashboard_address=web)
        preload = ["--preload", "tuner.fleet.cluster_connections"]
        found.append(["scheduler", *own, *tls, *(["--no-dashboard"] if hidden else []), *preload])
    for worker in settings.workers:
        resources = ("GPU", worker.model, f"cc{worker.cc}", worker.uuid)
        own = _options(
            name=f"{socket.gethostname()} {worker.device}: {worker.model} {worker.uuid[:8]}",
            resources=" ".join(f"{re.sub(NO_NAME, '_', text)}=1" for text in resources),
            nthreads=4,
            memory_limit=0,
            local_directory=shared / "dask",
            death_timeout=JOIN_S,
            dashboard_address="127.0.0.1:0",
        )
        own += _options(host=settings.host) if settings.host else []
        told = msgspec.json.encode(structs.replace(worker, shared=str(shared))).decode()
        preload = ["--preload", "tuner.fleet.cluster_worker", told]
        found.append(["worker", settings.scheduler, *own, *tls, "--no-nanny", "--no-dashboard", *preload])
    return [[sys.executable, "-P", "-m", "dask", *command] for command in found]


def _options(**given: object) -> list[str]:
    return [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def tend(commands: Sequence[Sequence[str]], log: Path) -> None:
    """Keep processes running until this one is told to end, and their log within bounds."""
    ending: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: ending.append(number))
    running: list[subprocess.Popen[bytes] | None] = [None for _ in commands]
    due = [0.0 for _ in commands]
    while not ending:
        for i, command in enumerate(commands):
            process = running[i]
            if process is not None and process.poll() is not None:
                running[i], due[i] = None, time.monotonic() + AGAIN_S
            elif process is None and time.monotonic() >= due[i]:
                # This process has one thread, so that nothing of it can be locked in the child.
                running[i] = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        bound(log)
        time.sleep(0.1)
    left = [process for process in running if process is not None]
    for process in reversed(left):  # workers before the scheduler
        process.terminate()
    deadline = time.monotonic() + PATIENCE_S
    for process in left:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def bound(log: Path) -> None:
    """Begin a log anew that has become long; what was in it stays beside it, in the place of what was there before."""
    with suppress(OSError):  # a full disk, or a file that a user has removed
        if log.stat().st_size > LOG_BYTES:
            shutil.copyfile(log, log.with_name(f"{log.name}.1"))
            os.truncate(log, 0)  # each process appends to it


def main(folder: Path) -> None:
    """Look after a host."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(few, min(most, MOST_FILES)), most))
    settings = read_settings(folder)
    assert settings is not None
    with temporary_folder() as shared:
        tend(commands(settings, folder, shared), folder / LOG)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
