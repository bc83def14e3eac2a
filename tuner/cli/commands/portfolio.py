"""Options of ``tune portfolio``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_option
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    Amount,
    Count,
    Whole,
    database_option,
    dtypes_option,
    gpu_option,
    jobs_option,
    options_option,
    presets_option,
    problem_file_option,
    problems_option,
    result_options,
    seed_option,
    sizes_option,
    time_option,
    timed_options,
    trials_option,
)

EPILOG = """\b
Examples:
  tune portfolio --kernel gemm --dtype bfloat16 --problems sizes.csv
  tune portfolio -k gemm --problem "m=1..8192,n=1024|4096,k=4096,samples=60"
  tune portfolio -k ./mykernel.toml --problem "n=2**10..2**28,samples=40"
"""


@click.command(cls=Once, epilog=EPILOG)
@kernel_option("kernel_name", required=True, help_="The kernel.")
@sizes_option("Sizes that all problems share.")
@dtypes_option()
@options_option()
@presets_option
@problems_option
@problem_file_option(
    "Problems, one per row; a value may be a choice (64|128) and, with samples, a range (16..8192:8)."
)
@click.option(
    "--bound",
    default=1.02,
    show_default=True,
    type=Amount(min=1, max=10),
    help="Stop adding configurations when every size is within this factor of its best.",
)
@click.option(
    "--cubins",
    default=32,
    show_default=True,
    type=Whole(1, 1000),
    help="At most this many cubins, those of the defaults included.",
)
@click.option(
    "--search",
    "searched",
    default=8,
    show_default=True,
    type=Count(min=0),
    help="Number of sizes, far apart, that are searched first.",
)
@trials_option(48, "Configurations that each of these searches tries.")
@time_option("Start no new measurement after this time.", least_s=1)
@timed_options
@gpu_option
@seed_option("the searches, the inputs and the order")
@database_option
@jobs_option
@result_options
@runs("tuner.cli.portfolio:portfolio")
def portfolio() -> None:
    """Choose a few configurations that together run all sizes of a kernel well, and a rule that selects one by size.

    Times candidates at many sizes, and keeps a few that are within a bound of each size's best. For sizes that were not
    tuned, `tune bundle` and `tuner.load` select among them. After an interruption, run the same command
    again: it continues.

    Needs an NVIDIA GPU.
    """
