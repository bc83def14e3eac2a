"""Options of ``tune trial``."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import Count, database_option


@click.command(cls=Once)
@click.argument("number", type=Count(min=1), metavar="N")
@database_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with sources and samples.")
@click.option("--source", "only_source", is_flag=True, help="Print only the rendered source.")
@click.option(
    "--launch",
    "launch",
    type=Count(min=1),
    metavar="I",
    help="With --source: only of launch I.",
)
@click.option(
    "--source-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the rendered source of each launch to a file in DIR, a new folder.",
)
@click.option("--log", "only_log", is_flag=True, help="Print only the compiler's log.")
@click.option("--again", is_flag=True, help="Run it again, alone, and compare.")
@click.option(
    "--device",
    default="",
    metavar="DEVICE",
    help="Where --again runs it; by default cuda:0, or the trial's recording.",
)
@runs("tuner.cli.trial:trial")
def trial() -> None:
    """Show trial N in full; tune query lists the numbers.

    Grid, block and shared memory come from the kernel's file. Where the file is gone or has changed, the output says
    so.

    \b
    Examples:
      tune trial 12
      tune trial 12 --source --launch 1 > kernel.cu
      tune trial 12 --source-dir sources
      tune trial 12 --again
    """
