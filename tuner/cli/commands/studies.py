"""Options of ``tune bench``, ``tune ladder``, ``tune ablate`` and ``tune portfolio``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_argument, kernel_option
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    FILE,
    Amount,
    Count,
    Whole,
    as_tuned_options,
    configuration_options,
    database_option,
    device_option,
    dtypes_option,
    full_option,
    gpu_option,
    jobs_option,
    modes_option,
    options_option,
    preset_option,
    presets_option,
    problem_file_option,
    problems_option,
    regime_as_tuned,
    result_options,
    rounds_option,
    seed_option,
    sizes_option,
    time_option,
    timed_options,
    trials_option,
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


LADDER_EPILOG = """\b
Examples:
  tune ladder vector_add --sweep n=2**10..2**28:4
  tune ladder gemm --sweep m=n=k=256..8192 --plot gemm.svg
  tune ladder gemm --size m=4096,n=4096,k=4096 --step naive --step tiled
"""


@click.command(cls=Once, epilog=LADDER_EPILOG)
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


ABLATE_EPILOG = """\b
Examples:
  tune ablate gemm --dtype bfloat16
  tune ablate gemm --size m=8192,n=8192,k=8192 --parameter stages,raster
  tune ablate --trial 12 --json
"""


@click.command(cls=Once, epilog=ABLATE_EPILOG)
@configuration_options
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME[,...]",
    help="Only this parameter; repeat for several.",
)
@as_tuned_options
@rounds_option
@gpu_option
@seed_option("the inputs and the order")
@jobs_option
@full_option
@result_options
@runs("tuner.cli.ablate:ablate")
def ablate() -> None:
    """Measure what each parameter of a configuration gains: one at a time takes its other values.

    Each change is verified, and timed in turn with the configuration itself. Without --config and --trial, this is the
    winner for this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.
    """


PORTFOLIO_EPILOG = """\b
Examples:
  tune portfolio --kernel gemm --dtype bfloat16 --problems sizes.csv
  tune portfolio -k gemm --problem "m=1..8192,n=1024|4096,k=4096,samples=60"
  tune portfolio -k ./mykernel.toml --problem "n=2**10..2**28,samples=40"
"""


@click.command(cls=Once, epilog=PORTFOLIO_EPILOG)
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
