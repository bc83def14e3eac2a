"""Options of ``tune bench``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_option
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    FILE,
    Whole,
    database_option,
    dtypes_option,
    full_option,
    gpu_option,
    modes_option,
    options_option,
    presets_option,
    problems_option,
    regime_as_tuned,
    result_options,
    rounds_option,
    seed_option,
    sizes_option,
)


@click.command(cls=Once)
@kernel_option("kernel_name")
@sizes_option()
@dtypes_option("Only this dtype.")
@options_option("Only this option.")
@presets_option
@problems_option
@click.option(
    "--against",
    multiple=True,
    metavar="WHAT",
    help="default, torch, cupy, numpy, none, mine.cu:add<<<grid, block>>>(a, b), module:function; repeat for several.",
)
@modes_option
@regime_as_tuned
@rounds_option
@click.option(
    "--check", "checking", is_flag=True, help="Exit status 1 if a stored best is slower than it was."
)
@click.option("--plot", "plot", type=FILE, metavar="FILE", help="Draw the times as .png or .svg.")
@click.option("--history", is_flag=True, help="Print earlier benches; measure nothing.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=Whole(min=0),
    help="At most this many rows of --history; 0 for all.",
)
@gpu_option
@seed_option("the inputs and the order")
@database_option
@full_option
@result_options
@runs("tuner.cli.bench:bench")
def bench() -> None:
    """Time stored winners again, in turn with the default configuration, libraries and your own code.

    All are verified, and get the same data. Without sizes, all problems with a confirmed winner on this GPU are timed.
    A problem that was not tuned gets the configuration of the nearest size.

    Needs an NVIDIA GPU, except for --history.

    \b
    Examples:
      tune bench --kernel gemm
      tune bench --kernel gemm --size m=1000 --against torch --against default
      tune bench --check --against none
      tune bench --kernel gemm --against torch --mode auto --mode warm
      tune bench --kernel gemm --history
    """
