"""Options of ``tune render``."""

from __future__ import annotations

import click

from tuner.cli.configuration_options import configuration_options, named_gpu_options
from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, Count, json_option

EPILOG = """\b
Examples:
  tune render vector_add --size n=2**28
  tune render gemm --cc 80 --config "mma_sync block_m=128 stages=3" -o sources
  tune render --trial 12 --launch 1 --no-line > kernel.cu
"""


@click.command(cls=Once, epilog=EPILOG)
@configuration_options
@named_gpu_options
@click.option("--launch", "number", type=Count(min=1), metavar="I", help="Only launch I.")
@click.option(
    "--no-line",
    "exact",
    is_flag=True,
    help="Leave out #line directives, and with one launch also comments: exactly what is compiled.",
)
@click.option(
    "-o", "--output", type=FILE, metavar="FOLDER", help="Write a .cu file for each launch into this folder."
)
@click.option("--force", is_flag=True, help="Also replace files that tune render did not write.")
@json_option
@runs("tuner.cli.render:render")
def render() -> None:
    """Print the source of each launch of a configuration, its grid, block, shared memory and arguments.

    Needs no GPU. With the #line directives, compilers report the template's file and line. Without --config and
    --trial, the configuration is the winner for this problem, or the default if nothing was tuned. Without --gpu, --cc
    and --device, the GPU is that of this machine, else the winner's or trial's, else a typical H200.
    """
