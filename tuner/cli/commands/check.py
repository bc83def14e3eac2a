"""Options of ``tune check``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_argument
from tuner.cli.loader import Once, runs
from tuner.cli.options import jobs_option, json_option, seed_option

EPILOG = """\b
Examples:
  tune check ./mykernel.toml
  tune check gemm --cc 90 --configurations all
  tune check ./mykernel.toml --json
"""


@click.command(cls=Once, epilog=EPILOG)
@kernel_argument(required=True)
@click.option(
    "--cc",
    "ccs",
    multiple=True,
    type=int,
    default=(80, 90),
    help="Compute capability to compile for, times ten; repeat for several. 80 and 90 by default.",
)
@click.option(
    "--configurations",
    default="20",
    show_default=True,
    metavar="N|all",
    help="Configurations of each variant that are compiled; 0: check only the file.",
)
@click.option("--cpu/--no-cpu", default=True, help="Run plain kernels on the CPU and compare their results.")
@jobs_option
@seed_option("the sample")
@json_option
@runs("tuner.cli.check:check")
def check() -> None:
    """Find mistakes in a kernel's file, its templates and its reference, without a GPU.

    Prints `file:line: what is wrong; what to do` for each. Compiles a sample of configurations, compares arguments with
    what the kernels take, and runs plain CUDA C++ on the CPU at small sizes, compared with the reference. Exit status 1
    on any finding.
    """
