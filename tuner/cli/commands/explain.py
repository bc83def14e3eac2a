"""Options of ``tune explain``."""

from __future__ import annotations

import click

from tuner.cli.configuration_options import configuration_options, named_gpu_options
from tuner.cli.loader import Once, runs
from tuner.cli.options import json_option

EPILOG = """\b
Examples:
  tune explain vector_add --size n=2**28
  tune explain gemm --cc 80 --config "mma_sync block_m=128 stages=3"
  tune explain --trial 12 --json
"""


@click.command(cls=Once, epilog=EPILOG)
@configuration_options
@named_gpu_options
@json_option
@runs("tuner.cli.explain:explain")
def explain() -> None:
    """Explain what limits a configuration: roofline, occupancy, waves, memory access, bytes in flight, and advice.

    Compiles it and reads its machine code, the SASS. Runs nothing, and needs no GPU.
    Without --config and --trial, the configuration is the winner for this problem, or the default if nothing was tuned.
    Without --gpu, --cc and --device, the GPU is that of this machine, else the winner's or trial's, else a typical
    H200.
    """
