"""Options of ``tune bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, jobs_option, result_options, timed_filter_options


@click.command(cls=Once)
@database_option
@click.option("-k", "--kernel", required=True, metavar="NAME|FILE", help="The kernel: a bundle holds one.")
@click.option("--gpu", default="", metavar="TEXT", help="Only GPUs whose name contains this.")
@click.option("--dtype", default="", metavar="DTYPE", help="Only problems of this dtype.")
@timed_filter_options("rested")
@click.option(
    "-o",
    "--output",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A new folder.",
)
@click.option("--force", is_flag=True, help="Replace the bundle DIR if it is there.")
@click.option("--replayed", is_flag=True, help="Also winners that come from a recording.")
@click.option("--few", is_flag=True, help="Of a computation with a portfolio only winners that it keeps.")
@jobs_option
@click.option("--no-cache", is_flag=True, help="Compile everything anew.")
@result_options
@runs("tuner.cli.bundle:bundle")
def bundle() -> None:
    """Write the best configurations of a kernel as a folder with which programs call them, without a compiler.

    It holds cubins for all GPUs that the kernel was tuned on, and launchers for C++ and Python. No GPU is needed.
    Where a problem was tuned in several modes, the one tuned last counts, unless --mode names one. A portfolio that the
    database holds for the kernel as it is now (`tune portfolio`) goes along, for sizes that were not tuned.

    \b
    Examples:
      tune bundle --kernel gemm -o gemm_bundle
      tune bundle --kernel gemm --gpu h200 --dtype bfloat16 -o gemm_bundle --force
      tune bundle --kernel ./mykernel.toml -o mykernel_bundle --json
    """
