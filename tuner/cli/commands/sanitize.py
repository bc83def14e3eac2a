"""Options of ``tune sanitize``."""

from __future__ import annotations

import click

from tuner.cli.configuration_options import configuration_options
from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, Amount, gpu_option, result_options, seed_option

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
    type=click.IntRange(min=1),
    metavar="N",
    help="A sample of N random configurations instead of one.",
)
@click.option(
    "--variant", "variants", multiple=True, help="With --sample: only of this variant; repeat for several."
)
@click.option(
    "--winners",
    is_flag=True,
    help="Every stored winner of the kernel on GPUs of this name; --dtype and --option choose among them.",
)
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="NAME[,...]",
    help="Of memcheck, racecheck, synccheck, initcheck; the first three, if not given.",
)
@click.option(
    "--at",
    "size_texts",
    multiple=True,
    metavar="NAME=N[,...]",
    help="Run at these sizes, not at small edge-case sizes; repeat for several.",
)
@click.option(
    "--edges",
    "edge_sizes",
    default=3,
    show_default=True,
    type=click.IntRange(min=1, max=48),
    help="Edge-case sizes of each configuration.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="FOLDER",
    help="Where the logs go; a new folder.",
)
@click.option(
    "--compute-sanitizer",
    "sanitizer_path",
    type=FILE,
    metavar="PATH",
    help="NVIDIA's compute-sanitizer.",
)
@click.option(
    "--self-check/--no-self-check",
    default=True,
    help="Require that each tool finds a fault that was planted for it.",
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
@seed_option("Of inputs, sample and sizes.")
@result_options
@runs("tuner.cli.sanitize:sanitize")
def sanitize() -> None:
    """Look for wrong memory accesses, races and misused barriers. Exit status 1 on any finding.

    Without --config, --trial and --sample it is the winner for this problem on this GPU, or the default configuration
    where nothing was tuned. The tools are slow, so it runs at small sizes around its tile.

    Needs an NVIDIA GPU.
    """
