"""Options of ``tune cluster``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from tuner.cli import options as shared
from tuner.cli.commands.run import SECTIONS, RunArguments
from tuner.cli.loader import command, option
from tuner.core import paths

folder_option = partial(
    shared.file,
    "--folder",
    default=paths.cluster,
    callback=lambda _, __, folder: folder.absolute(),
    metavar="DIR",
    help="The cluster's folder, with its certificate. [default: kernel-tune/cluster in the cache]",
)
scheduler_option = partial(
    option,
    "--scheduler",
    metavar="HOST:PORT",
    help="Address of the scheduler, as `tune cluster start` prints it; by default that of this host.",
)


@click.group()
def cluster() -> None:
    """Tune on the GPUs of many hosts, with Dask: start, run, status, stop."""


@dataclass(frozen=True)
class StartArguments:
    """Start a scheduler and a worker for each GPU of this host, in the background.

    On other hosts, with a copy of the cluster's folder, `--join` adds their GPUs. Connections are encrypted. Any
    program with the folder's key can run code as you on each host: Dask runs what it is sent.

    \b
    Examples:
      tune cluster start --host 10.0.0.1
      tune cluster start --join 10.0.0.1:8786 --host 10.0.0.2
    """

    host: str = shared.shown(
        "--host", "127.0.0.1", "Address of this host at which others reach it.", metavar="ADDRESS"
    )
    port: int = shared.shown("--port", 8786, "Port of the scheduler.", shared.Whole(1, 65535))
    dashboard: int = shared.shown(
        "--dashboard", 8787, "Port of the scheduler's web page; -1 for none.", shared.Whole(-1, 65535)
    )
    join: str | None = option(
        "--join", metavar="HOST:PORT", help="Start only workers, for the scheduler of another host."
    )
    device_name: str = shared.shown(
        "--device", "cuda:all", "GPUs of this host: cuda:all, a list such as cuda:0,cuda:2, or none."
    )
    folder: Path = folder_option()


@dataclass(frozen=True)
class ClusterRunArguments(RunArguments):
    """Tune problems on the GPUs of a cluster; the options are those of `tune run`.

    Each problem is tuned on one GPU, and all GPUs are of one model. Only this process writes the database. Workers may
    come and go: a problem whose worker is lost continues on another GPU.

    \b
    Examples:
      tune cluster run gemm --problems shapes.csv
      tune cluster run gemm --scheduler 10.0.0.1:8786 --problems shapes.csv
    """

    # No options here: the devices are the workers, which have the compilers.
    space_file: Path | None = None
    device_name: str = "cluster"
    jobs: int | None = None
    plot: Path | None = None
    gpu: str = shared.stored_filter("--gpu", "TEXT", "Only workers whose GPU's name contains this.")
    scheduler: str | None = scheduler_option()
    folder: Path = folder_option()


@dataclass(frozen=True)
class StatusArguments:
    """List the workers: which GPU each has, and whether it can be used."""

    scheduler: str | None = scheduler_option()
    folder: Path = folder_option()
    as_json: bool = shared.json()


@dataclass(frozen=True)
class StopArguments:
    """Stop the scheduler and the workers of this host; run it on other hosts to stop theirs."""

    folder: Path = folder_option()


start_text = "Start the scheduler, and a worker for each GPU of this host."
cluster.add_command(command(StartArguments, "cluster:start", short_help=start_text))
cluster.add_command(
    command(ClusterRunArguments, "cluster:run", sections=SECTIONS, short_help="Tune problems on the cluster.")
)
cluster.add_command(command(StatusArguments, "cluster:status", short_help="List the workers."))
stop_text = "Stop the scheduler and the workers of this host."
cluster.add_command(command(StopArguments, "cluster:stop", short_help=stop_text))
