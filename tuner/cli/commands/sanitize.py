"""Options of ``tune sanitize``."""

from __future__ import annotations

import click

from tuner.cli.configuration_options import configuration_options
from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, Amount, Whole, gpu_option, result_options, seed_option

EPILOG = """\b
Examples:
  tune sanitize gemm
  tune sanitize transform --size n=2**28 --dtype float16 --tool memcheck
  tune sanitize reduce --sample 50 --json
  tune sanitize --trial 12 --at n=1000003
  tune sanitize reduce --winners
"""


@click.command(cls=Once, epilog=EPILOG)
@configuration_options
@click.option(
    "--sample",
    type=Whole(min=1),
    metavar="N",
    help="N random configurations instead of one.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="With --sample: only this variant; repeat for several.",
)
@click.option(
    "--winners",
    is_flag=True,
    help="All stored winners of the kernel on GPUs of this name; --dtype and --option select some.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME[,...]",
    help="memcheck, racecheck, synccheck, initcheck; by default the first three.",
)
@click.option(
    "--at",
    "size_texts",
    multiple=True,
    metavar="NAME=N[,...]",
    help="Run at these sizes instead of edge cases; repeat for several.",
)
@click.option(
    "--edges",
    "edge_sizes",
    default=3,
    show_default=True,
    type=Whole(min=1, max=48),
    help="Edge-case sizes for each configuration.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FOLDER",
    help="A new folder for the logs.",
)
@click.option(
    "--compute-sanitizer",
    "sanitizer_path",
    type=FILE,
    metavar="PATH",
    help="Path of compute-sanitizer.",
)
@click.option(
    "--self-check/--no-self-check",
    default=True,
    help="Check first that each tool finds a planted fault.",
)
@click.option(
    "--deadline",
    "deadline_s",
    default=120,
    show_default=True,
    type=Amount(min=1),
    help="Seconds for one configuration at one size.",
)
@gpu_option
@seed_option("the inputs, the sample and the sizes")
@result_options
@runs("tuner.cli.sanitize:sanitize")
def sanitize() -> None:
    """Find wrong memory accesses, races and misused barriers. Exit status 1 on any finding.

    Runs NVIDIA's compute-sanitizer on configurations, and compares their results with the reference. The tools are
    slow, so sizes are small: edge cases around the tile. Without --config, --trial and --sample, it is the winner for
    this problem on this GPU, or the default configuration if nothing was tuned.

    Needs an NVIDIA GPU.
    """
