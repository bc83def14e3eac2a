"""Options of ``tune profile``."""

from __future__ import annotations

import click

from tuner.cli.configuration_options import configuration_options
from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, Amount, gpu_option, json_option, seed_option

EPILOG = """\b
Examples:
  tune profile vector_add --size n=2**28
  tune profile gemm --config "mma_sync block_m=128 stages=3" --json
  tune profile --trial 12 --output before.ncu-rep
"""


@click.command(cls=Once, epilog=EPILOG)
@configuration_options
@click.option(
    "--mode",
    "mode_name",
    type=click.Choice(["cold", "warm"]),
    help="What the caches hold; by default as it was tuned, else cold.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FILE",
    help="The report file, for Nsight Compute's GUI.",
)
@click.option("--ncu", "ncu_path", type=FILE, metavar="PATH", help="Path of Nsight Compute's ncu.")
@click.option(
    "--deadline",
    "deadline_s",
    default=600,
    show_default=True,
    type=Amount(min=1),
    metavar="SECONDS",
    help="Time that it may take.",
)
@gpu_option
@seed_option("the inputs")
@json_option
@runs("tuner.cli.profile:profile")
def profile() -> None:
    """Profile one configuration with Nsight Compute: what limits it, and why its warps wait.

    Prints a dozen figures and remedies, and writes the full report to a file. Without --config and --trial, it is
    the winner for this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.
    """
