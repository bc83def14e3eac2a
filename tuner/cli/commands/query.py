"""Options of ``tune query``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import Count, database_option, filter_options, full_option


@click.command(cls=Once)
@database_option
@filter_options
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Only this status, or failed: all but ok and slow; repeat for several.",
)
@click.option(
    "--sort",
    default="-id",
    show_default="newest first",
    metavar="KEY",
    help="time, number, id, created, kernel, variant, status, tflops, bandwidth, speed, registers; -time: descending.",
)
@click.option(
    "--limit",
    type=Count(min=0),
    default=50,
    show_default=True,
    help="At most this many rows; 0 for all.",
)
@click.option("--sql", "text", metavar="TEXT", help="One SELECT statement instead of filters.")
@click.option(
    "--columns",
    default="",
    metavar="NAME,...",
    help="Columns of table or CSV: trial, problem, configuration, time, interval, ..., any of --csv, any parameter.",
)
@full_option
@click.option(
    "--replayed/--measured", "replayed", default=None, help="Only replayed trials, or only measured ones."
)
@runs("tuner.cli.query:query")
def query() -> None:
    """List trials.

    \b
    Examples:
      tune query --kernel gemm --status ok --sort time --limit 10
      tune query --size m=4096 --since 2d --limit 0 --csv > trials.csv
      tune query --kernel gemm --columns trial,time,registers,block_m,stages
      tune query --sql "SELECT status, count(*) FROM trials GROUP BY status"
    """
