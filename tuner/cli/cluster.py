"""``tune cluster``: start, use, look at and end a cluster of GPUs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from tuner.cli import fleet
from tuner.cli.commands.cluster import ClusterRunArguments, StartArguments, StatusArguments, StopArguments
from tuner.cli.run import run as run_problems
from tuner.core.errors import NoGpuError, TunerError, UsageError
from tuner.core.files import alone
from tuner.core.signals import uninterrupted
from tuner.devices.choose import gpu_number
from tuner.fleet.cluster import TWICE, Cluster, Described, listed
from tuner.fleet.cluster_files import (
    LOG,
    HostSettings,
    WorkerSettings,
    default_address,
    full_address,
    make_certificate,
    read_settings,
    remove_settings,
    require_dask,
    running,
    security_of,
    write_settings,
)
from tuner.report import tables
from tuner.report.terminal import printable

START_S = 60.0
"""How long the scheduler and the workers of this host may take to be there: Dask alone takes 2 s to be imported."""
STOP_S = 20.0
HEADS = ("worker", "cc", "uuid", "state")


def start(asked: StartArguments) -> None:
    """Start what belongs on this host, and say how to reach it.

    Raises:
        UsageError: something runs here already, or the address is none.
        TunerError: the extra is missing, there is no GPU, or it does not start.
    """
    require_dask()
    if asked.host in ("0.0.0.0", "::"):
        raise UsageError(
            f"--host {asked.host} is no address to reach this host at", "name one, such as 10.0.0.1"
        )
    if asked.join is None:
        make_certificate(asked.folder)
    with _alone(asked.folder):
        _start(asked)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Run a block in which no other `start` of this host has the folder, which other hosts may share.

    Raises:
        UsageError: one has.
        TunerError: the folder cannot be written.
    """
    with ExitStack() as held:
        try:
            locked = held.enter_context(alone(folder / f"{socket.gethostname()}.lock"))
        except OSError as error:
            raise TunerError(f"{folder}: {error.strerror}", "name another --folder") from None
        if locked is None:
            raise UsageError(f"another `tune cluster start` has {folder} now", "see `tune cluster status`")
        yield


def _start(asked: StartArguments) -> None:
    joined: dict[str, str] = {}
    if (settings := read_settings(asked.folder)) is not None:
        raise UsageError(
            f"a cluster runs on this host already, at {settings.scheduler}", "end it with `tune cluster stop`"
        )
    if asked.join is None:
        address = full_address(f"{asked.host}:{asked.port}")
        security_of(asked.folder, address)  # says now what is wrong with a certificate that was there
        if asked.dashboard == asked.port:
            raise UsageError(f"--port and --dashboard are both {asked.port}", "name another --dashboard")
        _refuse_taken(asked.host, asked.port, "--host or --port")
        if asked.dashboard > 0:
            _refuse_taken(asked.host, asked.dashboard, "--dashboard, or -1 for none")
    else:
        address = full_address(asked.join)
        with closing(Cluster(address, asked.folder)) as cluster:
            joined = {w.uuid: name for name, w, _ in listed(cluster) if isinstance(w, Described)}
    workers = _workers(asked.device_name)
    if not workers and asked.join is not None:
        raise UsageError("--join without a GPU adds nothing", "leave out --device none")
    for worker in workers:
        if worker.uuid in joined:
            raise UsageError(
                f"{worker.device}: {TWICE.format(uuid=worker.uuid)}, as {joined[worker.uuid]}",
                "leave it out with --device",
            )
    listens = asked.host if asked.host != "127.0.0.1" or asked.join is None else ""
    settings = HostSettings(address, asked.join is None, asked.dashboard, listens, workers)
    log = asked.folder / LOG
    has_page = asked.join is None and asked.dashboard > 0
    web = f"http://{asked.host}:{asked.dashboard}/status" if has_page else ""
    try:
        write_settings(asked.folder, settings)
        with uninterrupted():
            host = _launch(asked.folder, log)
        _await(address, asked.folder, {worker.uuid for worker in workers}, log, host)
    except BaseException as error:
        with uninterrupted():
            _end(asked.folder)
        if isinstance(error, OSError):
            raise TunerError(f"{asked.folder}: {error.strerror or error}", "name another --folder") from None
        raise
    click.echo(f"scheduler  {address}")
    if web:
        click.echo(f"dashboard  {web}")
    for worker in workers:
        click.echo(f"worker     {worker.device}: {printable(worker.model)} {worker.uuid[:8]}")
    if asked.join is None:
        click.echo(f"folder     {asked.folder} (other hosts need a copy: its key is what is trusted)")


def run(asked: ClusterRunArguments) -> None:
    """Tune problems on a cluster; the database is this process's.

    Raises:
        TunerError: the scheduler cannot be reached.
    """
    with closing(_joined(asked)) as cluster:
        run_problems(asked, cluster, asked.gpu)


def status(asked: StatusArguments) -> None:
    """Print the workers.

    Raises:
        TunerError: the scheduler cannot be reached.
    """
    with closing(_joined(asked)) as cluster:
        workers = listed(cluster)
    if asked.as_json:
        tables.show_json([{"worker": name, **_record(one), "tunes": tuned} for name, one, tuned in workers])
        return
    click.echo(f"scheduler  {cluster.scheduler}")
    rows = [
        (name, worker.cc, worker.uuid[:8], f"tunes {', '.join(tuned)}" if tuned else "ready")
        if isinstance(worker, Described)
        else (name, "", "", f"left out: {worker}")
        for name, worker, tuned in workers
    ]
    if rows:
        tables.show(HEADS, rows)
    else:
        click.echo("no worker has joined")


def stop(asked: StopArguments) -> None:
    """End what runs on this host.

    Raises:
        UsageError: nothing does.
        TunerError: it does not end.
    """
    settings = read_settings(asked.folder)
    if not _end(asked.folder):
        raise UsageError(f"no cluster of the folder {asked.folder} runs on this host", "name its --folder")
    what = "what was left of a cluster"
    if settings:
        what = f"{settings.scheduler} and {len(settings.workers)} workers"
    click.echo(f"ended {what} on this host")


def _joined(asked: ClusterRunArguments | StatusArguments) -> Cluster:
    """Return the cluster that is named, or that of this host."""
    address = full_address(asked.scheduler) if asked.scheduler else default_address(asked.folder)
    return Cluster(address, asked.folder)


def _record(worker: Described | str) -> dict[str, Any]:
    if isinstance(worker, str):
        return {"left_out": worker}
    return {**structs.asdict(worker), "left_out": ""}


def _workers(device: str) -> tuple[WorkerSettings, ...]:
    if device == "none":
        return ()
    try:
        gpus = fleet.visible_gpus()
    except NoGpuError as error:
        raise NoGpuError(error.problem, "--device none starts a scheduler without workers") from None
    names = fleet.devices_of(device) if fleet.is_list(device) or device.startswith("cuda:") else []
    if not names:
        raise UsageError(f"--device {device}: no GPU", "write cuda:all, or cuda:0,cuda:2, or none")
    known = list(zip(gpus.names, gpus.uuids, gpus.capabilities, strict=True))
    return tuple(WorkerSettings(name, *known[gpu_number(name)], len(names)) for name in names)


def _refuse_taken(host: str, port: int, options: str) -> None:
    try:
        with closing(socket.create_server((host, port))):
            pass
    except (OSError, UnicodeError, TypeError) as error:
        reason = str(error).partition(" (while")[0].partition("] ")
        raise UsageError(
            f"cannot serve at {host}:{port}: {reason[2] or reason[0]}", f"name another {options}"
        ) from None


def _launch(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "tuner.fleet.cluster_host", str(folder.resolve())]
    log.write_bytes(b"")
    with log.open("ab") as output:  # so that it can be begun anew while it is written
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )


def _await(address: str, folder: Path, wanted: set[str], log: Path, host: subprocess.Popen[bytes]) -> None:
    """Wait until the scheduler answers and this host's workers have joined.

    Raises:
        TunerError: they have not in time, or the process that looks after them has ended.
    """
    deadline, error = time.monotonic() + START_S, TunerError(f"{address} does not answer")
    cluster: Cluster | None = None
    try:
        while time.monotonic() < deadline and host.poll() is None:  # /proc is late for a new one
            try:
                cluster = cluster or Cluster(address, folder)
                there = [worker for _, worker, _ in listed(cluster) if isinstance(worker, Described)]
                if wanted <= {worker.uuid for worker in there}:
                    return
                error = TunerError(
                    f"{len(wanted)} workers should have joined {address}, and {len(there)} have"
                )
            except TunerError as again:
                error = again
            time.sleep(0.2)
    finally:
        if cluster is not None:
            cluster.close()
    raise TunerError(error.problem, f"{log} says more")


def _end(folder: Path) -> bool:
    """End the process that looks after this host's others, and these with it; return whether there was one.

    Raises:
        TunerError: it did not end.
    """
    found = running(folder)
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + STOP_S / 2
        for pid in running(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while running(folder) and time.monotonic() < until:
            time.sleep(0.05)
    if left := running(folder):
        raise TunerError(f"process {left[0]} does not end", "see what holds it")
    remove_settings(folder)
    return bool(found)
