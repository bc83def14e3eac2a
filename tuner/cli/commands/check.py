"""Options of ``tune check``."""

from __future__ import annotations

import click

from tuner.cli.loader import runs
from tuner.cli.options import jobs_option, json_option, seed_option

EPILOG = """\b
Examples:
  tune check ./mykernel.toml
  tune check gemm --cc 90 --configurations all
  tune check ./mykernel.toml --json
"""


@click.command(epilog=EPILOG)
@click.argument("kernel_name", metavar="KERNEL")
@click.option(
    "--cc",
    "ccs",
    multiple=True,
    type=int,
    default=(80, 90),
    help="Compute capability, times ten, to compile for; repeat for several; 80 and 90 by default.",
)
@click.option(
    "--configurations",
    default="20",
    show_default=True,
    metavar="N|all",
    help="How many configurations of each variant are compiled; 0 for a look at the file alone.",
)
@click.option("--cpu/--no-cpu", default=True, help="Run plain kernels on the CPU and compare their results.")
@jobs_option
@seed_option("the sample.")
@json_option
@runs("tuner.cli.check:check")
def check() -> None:
    """Look for mistakes in a kernel's file, its templates and its reference, without a GPU.

    Prints a line for each, with file and line. A sample of configurations is compiled; arguments are compared with what
    the kernels take; and plain kernels run on the CPU at small sizes, compared with the reference. Exit status 1 if
    something is found.
    """
