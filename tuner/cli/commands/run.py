"""Options of ``tune run``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_option
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    FILE,
    Amount,
    database_option,
    device_option,
    dtypes_option,
    full_option,
    jobs_option,
    options_option,
    presets_option,
    problem_file_option,
    problems_option,
    seed_option,
    sizes_option,
    time_option,
    timed_options,
    trials_option,
)

EPILOG = """\b
Examples:
  tune --kernel gemm --trials 200
  tune --kernel gemm --size m=1024,n=1024,k=64 --dtype float32 --variant tiled
  tune --kernel vector_add --problem n=2**20 --problem n=2**28 --time 60
  tune --kernel ./mykernel.toml --fix block_size=128,256
  tune --kernel gemm --dtype float32,float16,bfloat16 --max-error 1e-3
  tune --space FILE.T1.json --device replay:FILE.json.gz --seed 3 --json
"""


@click.command(cls=Once, epilog=EPILOG)
@kernel_option(
    "kernel_name", default=None, help_="Built-in kernel (`tune list`), or the path of your own .toml file."
)
@click.option(
    "--space",
    "space_file",
    type=FILE,
    metavar="FILE.T1.json",
    help="Instead of a kernel: the valid set of another tool's recording.",
)
@trials_option(200, "Configurations to try.")
@time_option("Start no new configuration after this time.")
@click.option(
    "--total-time",
    "total_time_s",
    type=Amount(min=0.1),
    metavar="SECONDS",
    help="Time for all problems together; problems with more work (calls times time) get more of it.",
)
@click.option(
    "--stop",
    default="never",
    show_default=True,
    type=click.Choice(["never", "auto"]),
    help="auto: stop when no gain beyond the noise floor is expected.",
)
@sizes_option("Problem sizes, such as m=4096,k=2**12.")
@dtypes_option("Dtype, such as float16; with --max-error several, separated by commas.")
@click.option(
    "--max-error",
    type=Amount(min=0, min_open=True),
    metavar="ERROR",
    help="Also choose the dtype: the fastest result whose relative error is at most this.",
)
@options_option("The kernel's options, such as layout=nt.")
@presets_option
@problems_option
@problem_file_option(
    "Problems, one per row; the first row names the sizes. With a column calls, those with the most work first."
)
@click.option(
    "--shard",
    metavar="I/N",
    help="Tune only part I of N of the problems, on one of N hosts; then join the databases with tune db merge.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Search only this variant; repeat for several.",
)
@click.option(
    "--fix", "fixes", multiple=True, metavar="NAME=V[,V...]", help="Allow only these values of a parameter."
)
@click.option(
    "--rules",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Narrow the space by rules of thumb: warp_multiple, occupancy, divides_sm, registers, all.",
)
@timed_options
@device_option("cuda, cuda:N, cuda:all")
@click.option(
    "--sampler",
    default="gp-ei",
    show_default=True,
    metavar="NAME",
    help="gp-ei, tpe, random, brute-force, an Optuna sampler by name, or your own as module:Class.",
)
@seed_option("the search and the inputs")
@click.option(
    "--initial",
    "initial",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "none", "kernel", "heuristics", "all"]),
    help="Configurations to try first: those of the kernel's file, those of matmul heuristics, or all.",
)
@database_option
@jobs_option
@click.option(
    "--study-storage",
    metavar="URL",
    help="Also store the run as an Optuna study, such as sqlite:///study.db, for optuna-dashboard.",
)
@click.option(
    "--no-overlap",
    "no_overlap",
    is_flag=True,
    help="Prepare a problem only when the previous one has ended.",
)
@click.option("--spread", is_flag=True, help="Measure each problem's candidates on all GPUs of --device.")
@click.option("--resume", is_flag=True, help="Continue the last interrupted run of this problem.")
@click.option("--from-scratch", is_flag=True, help="Search without the results of earlier runs.")
@click.option(
    "--margin",
    type=Amount(min=0, max=2),
    callback=lambda _, __, percent: None if percent is None else percent / 100,
    metavar="PERCENT",
    help="How much faster a winner must be for each value in which it differs from the default or an initial "
    "configuration; 0.75 by default. At most four times that in all.",
)
@click.option("--no-cache", is_flag=True, help="Do not use the cache of compiled kernels.")
@click.option(
    "--plot",
    type=FILE,
    metavar="FILE",
    help="Draw the search and the race as .png or .svg; with --max-error, time over error.",
)
@full_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@runs("tuner.cli.run:run")
def run() -> None:
    """Tune a kernel for a problem on this machine's GPU.

    Tries configurations, stores each in the database, times the best in turn with the default, and confirms the winner
    in a fresh process. Without a GPU it replays measurements that were recorded on another one, and marks the results
    as replayed.
    """
