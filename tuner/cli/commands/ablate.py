"""Options of ``tune ablate``."""

from __future__ import annotations

import click

from tuner.cli.configuration_options import configuration_options
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    as_tuned_options,
    full_option,
    gpu_option,
    jobs_option,
    result_options,
    rounds_option,
    seed_option,
)

EPILOG = """\b
Examples:
  tune ablate gemm --dtype bfloat16
  tune ablate gemm --size m=8192,n=8192,k=8192 --parameter stages,raster
  tune ablate --trial 12 --json
"""


@click.command(cls=Once, epilog=EPILOG)
@configuration_options
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME[,...]",
    help="Only this parameter; repeat for several.",
)
@as_tuned_options
@rounds_option
@gpu_option
@seed_option("the inputs and the order")
@jobs_option
@full_option
@result_options
@runs("tuner.cli.ablate:ablate")
def ablate() -> None:
    """Measure what each parameter of a configuration gains: one at a time takes its other values.

    Each change is verified, and timed in turn with the configuration itself. Without --config and --trial, this is the
    winner for this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.
    """
