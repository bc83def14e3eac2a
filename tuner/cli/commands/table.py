"""Options of ``tune table``."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, filter_options, full_option


@click.command(cls=Once)
@database_option
@filter_options
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table.")
@full_option
@click.option(
    "--again",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.csv",
    help="Also write the problems on which at most half of the runs agree, for tune run --problems.",
)
@click.option("--replayed", is_flag=True, help="Include winners of replays, where others were measured.")
@runs("tuner.cli.table:table")
def table() -> None:
    """Show the winners, and how many runs and cards agree on each.

    Several runs, with other seeds or on other cards of a model, may have tuned the same problem. The table shows the
    configuration that most cards and runs chose, unless another one is clearly faster. It also shows how many chose it,
    how far its times are apart, and how much longer it took than other winners in the same race.

    \b
    Examples:
      tune table --kernel gemm
      tune table --gpu h200 --markdown > winners.md
      tune table --kernel gemm --again again.csv
    """
