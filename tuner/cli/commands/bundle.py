"""Options of ``tune bundle``."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.kernel_name import kernel_option
from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, jobs_option, result_options, timed_filter_options


@click.command(cls=Once)
@database_option
@kernel_option(required=True, help_="The kernel.")
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
@click.option("--force", is_flag=True, help="Replace the bundle DIR if it exists.")
@click.option("--replayed", is_flag=True, help="Include winners of replays.")
@click.option("--few", is_flag=True, help="Where there is a portfolio, only winners that it keeps.")
@jobs_option
@click.option("--no-cache", is_flag=True, help="Compile everything again.")
@result_options
@runs("tuner.cli.bundle:bundle")
def bundle() -> None:
    """Write the winners of a kernel as a folder that C++ and Python programs call.

    The folder has cubins for all GPUs on which the kernel was tuned, and launchers for C++ and Python: programs need no
    compiler. No GPU is needed. If a problem was tuned in several modes, the mode tuned last counts, unless --mode names
    one. A portfolio of the kernel (`tune portfolio`), if there is one, covers sizes that were not tuned.

    \b
    Examples:
      tune bundle --kernel gemm -o gemm_bundle
      tune bundle --kernel gemm --gpu h200 --dtype bfloat16 -o gemm_bundle --force
      tune bundle --kernel ./mykernel.toml -o mykernel_bundle --json
    """
