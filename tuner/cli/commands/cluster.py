"""Options of ``tune cluster``."""

from __future__ import annotations

import click

from tuner.cli.commands.run import run as run_command
from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, Whole, all_of, json_option
from tuner.core import paths

folder_option = click.option(
    "--folder",
    type=FILE,
    default=paths.cluster,
    metavar="DIR",
    help="The cluster's folder, with its certificate. [default: kernel-tune/cluster in the cache]",
)
scheduler_options = all_of(
    click.option(
        "--scheduler",
        metavar="HOST:PORT",
        help="Address of the scheduler, as `tune cluster start` prints it; by default that of this host.",
    ),
    folder_option,
)

NOT_HERE = ("device_name", "space_file", "spread", "jobs", "plot")
"""Options of `tune run` that a cluster does not have: its devices are the workers, which have the compilers."""


@click.group()
def cluster() -> None:
    """Tune on the GPUs of many hosts, with Dask: start, run, status, stop."""


@cluster.command(cls=Once, short_help="Start the scheduler, and a worker for each GPU of this host.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address of this host at which others reach it.",
)
@click.option(
    "--port",
    default=8786,
    show_default=True,
    type=Whole(1, 65535),
    help="Port of the scheduler.",
)
@click.option(
    "--dashboard",
    default=8787,
    show_default=True,
    type=Whole(-1, 65535),
    help="Port of the scheduler's web page; -1 for none.",
)
@click.option("--join", metavar="HOST:PORT", help="Start only workers, for the scheduler of another host.")
@click.option(
    "--device",
    "device_name",
    default="cuda:all",
    show_default=True,
    help="GPUs of this host: cuda:all, a list such as cuda:0,cuda:2, or none.",
)
@folder_option
@runs("tuner.cli.cluster:start")
def start() -> None:
    """Start a scheduler and a worker for each GPU of this host, in the background.

    On other hosts, with a copy of the cluster's folder, `--join` adds their GPUs. Connections are encrypted. Any
    program with the folder's key can run code as you on each host: Dask runs what it is sent.

    \b
    Examples:
      tune cluster start --host 10.0.0.1
      tune cluster start --join 10.0.0.1:8786 --host 10.0.0.2
    """


@cluster.command(
    "run",
    cls=Once,
    params=[parameter for parameter in run_command.params if parameter.name not in NOT_HERE],
    short_help="Tune problems on the cluster.",
)
@click.option("--gpu", default="", metavar="TEXT", help="Only workers whose GPU's name contains this.")
@scheduler_options
@runs("tuner.cli.cluster:run")
def run() -> None:
    """Tune problems on the GPUs of a cluster; the options are those of `tune run`.

    Each problem is tuned on one GPU, and all GPUs are of one model. Only this process writes the database. Workers may
    come and go: a problem whose worker is lost continues on another GPU.

    \b
    Examples:
      tune cluster run --kernel gemm --problems shapes.csv
      tune cluster run --scheduler 10.0.0.1:8786 -k gemm --problems shapes.csv
    """


@cluster.command(cls=Once, short_help="List the workers.")
@scheduler_options
@json_option
@runs("tuner.cli.cluster:status")
def status() -> None:
    """List the workers: which GPU each has, and whether it can be used."""


@cluster.command(cls=Once, short_help="Stop the scheduler and the workers of this host.")
@folder_option
@runs("tuner.cli.cluster:stop")
def stop() -> None:
    """Stop the scheduler and the workers of this host; run it on other hosts to stop theirs."""
