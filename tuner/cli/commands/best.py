"""Options of ``tune best``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, filter_options, full_option


@click.command(cls=Once)
@database_option
@filter_options
@full_option
@click.option("--replayed", is_flag=True, help="Include winners of replays, where others were measured.")
@runs("tuner.cli.best:best")
def best() -> None:
    """Show the best configuration of each problem, GPU, mode and regime.

    \b
    Examples:
      tune best --kernel gemm
      tune best --gpu h200 --dtype float16 --json
    """
