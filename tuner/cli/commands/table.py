"""Options of ``tune table``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, filter_options, full_option


@click.command(cls=Once)
@database_option
@filter_options
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table.")
@full_option
@click.option("--replayed", is_flag=True, help="Also winners that come from a recording.")
@runs("tuner.cli.table:table")
def table() -> None:
    """Write the table of winners, and how reproducible each is.

    Of a problem that several runs tuned, with other seeds or on other cards of a model, the table has the choice of
    most cards and runs, unless another one is surely faster; how many agree; how far its times are apart; and how far
    it was behind the other runs' winners where they raced.

    \b
    Examples:
      tune table --kernel gemm
      tune table --gpu h200 --markdown > winners.md
    """
