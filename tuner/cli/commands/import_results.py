"""Options of ``tune import``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, database_option, json_option


@click.command("import", cls=Once)
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@database_option
@click.option("--kernel", default="", metavar="NAME", help="The kernel's name, if the file's is wrong.")
@click.option("--gpu", default="", metavar="NAME", help="The GPU's name, if the file's is wrong.")
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="The problem's size, if the file's is wrong."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@json_option
@runs("tuner.cli.import_results:import_results")
def import_results() -> None:
    """Import T4 files and Kernel Tuner cache files into the database.

    Their results are marked as replayed and foreign: tune query shows them, tune best only with --replayed. They are
    never ranked together with times measured here.

    \b
    Examples:
      tune import gemm-RTX_3090.json.gz
      tune import results_T4.json --kernel conv --gpu "RTX A6000" --size x=4096
    """
