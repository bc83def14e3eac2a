"""Options of ``tune report``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, kind_filter_options, output_option


@click.command(cls=Once)
@database_option
@click.option("--run", "run_id", default="", metavar="ID", help="This run, by its id or the start of it.")
@kind_filter_options
@click.option("--all", "everything", is_flag=True, help="Every problem and GPU of the database.")
@output_option("FILE.html")
@click.option("--force", is_flag=True, help="Overwrite FILE.html if it exists.")
@runs("tuner.cli.report:report")
def report() -> None:
    """Write an HTML report with figures and tables: one file, which needs no network.

    Without --run, --all and filters, it shows the latest run. With a filter it shows the newest run of each problem
    that fits. Runs of a part of the space (--variant, --fix, --rules, tune ladder) count only if there is no other.

    \b
    Examples:
      tune report -o report.html
      tune report --run 3f2a -o report.html
      tune report --kernel gemm --gpu h200 -o gemm.html
      tune report --all -o all.html --force
    """
