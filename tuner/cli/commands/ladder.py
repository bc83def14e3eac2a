"""Options of ``tune ladder``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_argument
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    FILE,
    database_option,
    device_option,
    dtypes_option,
    full_option,
    jobs_option,
    options_option,
    preset_option,
    result_options,
    rounds_option,
    seed_option,
    sizes_option,
    time_option,
    timed_options,
    trials_option,
)

EPILOG = """\b
Examples:
  tune ladder vector_add --sweep n=2**10..2**28:4
  tune ladder gemm --sweep m=n=k=256..8192 --plot gemm.svg
  tune ladder gemm --size m=4096,n=4096,k=4096 --step naive --step tiled
"""


@click.command(cls=Once, epilog=EPILOG)
@kernel_argument(required=True)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=A..B",
    help="Sizes: n=2**10..2**28, n=2**10..2**28:4, n=1000,2000 or m=n=k=256..8192; several sweeps advance together.",
)
@sizes_option("Sizes that stay the same.")
@dtypes_option("The dtype of steps that set none.")
@options_option()
@preset_option
@click.option(
    "--step",
    "--rung",
    "step_names",
    multiple=True,
    metavar="NAME",
    help="Only this step; repeat for several.",
)
@trials_option(24, "Configurations to try for each step and size.")
@time_option("Start no new configuration of a step and size after this time.", default_s=5.0)
@click.option(
    "--against",
    multiple=True,
    metavar="WHAT",
    help="torch, cupy, numpy, none, mine.cu:add<<<grid, block>>>(a, b), module:function; repeat for several.",
)
@rounds_option
@timed_options
@device_option("cuda, cuda:N")
@seed_option("the searches, the inputs and the order")
@database_option
@jobs_option
@click.option("--from-scratch", is_flag=True, help="Search every step again.")
@click.option(
    "--plot",
    "plots",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="Draw NAME-roofline and NAME-sizes, as .png or .svg; repeat for both.",
)
@full_option
@result_options
@runs("tuner.cli.ladder:ladder")
def ladder() -> None:
    """Show what each optimisation step of a kernel gains, over a sweep of sizes.

    Searches the best configuration of every step of the kernel's ladder at every size, then times all of them in turn,
    beside the installed libraries and NumPy on the CPU. A step that was searched before is not searched again.
    """
