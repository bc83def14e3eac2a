"""Options of ``tune bench``."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.loader import runs
from tuner.cli.options import (
    as_tuned_options,
    database_option,
    gpu_option,
    presets_option,
    problems_option,
    rounds_option,
    seed_option,
)


@click.command()
@click.option("-k", "--kernel", "kernel_name", default="", help="Built-in kernel, or a .toml file.")
@click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help="Problem sizes.")
@click.option("--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help="Only this dtype.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Only this option.")
@presets_option
@problems_option
@click.option(
    "--against",
    multiple=True,
    metavar="WHAT",
    help="default, torch, cupy, numpy, none, mine.cu:add<<<grid, block>>>(a, b), module:function; repeat.",
)
@as_tuned_options
@rounds_option
@click.option(
    "--check", "checking", is_flag=True, help="Exit status 1 if a stored best is slower than it was."
)
@click.option(
    "--plot", "plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: a .png or .svg file."
)
@click.option("--history", is_flag=True, help="Print earlier benches; measure nothing.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(min=0),
    help="Rows of --history at most; 0 for all.",
)
@gpu_option
@seed_option("Of the inputs and the order.")
@database_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@runs("tuner.cli.bench:bench")
def bench() -> None:
    """Time stored winners again, beside the default configuration and what else computes the same.

    Without sizes every problem is timed for which the database holds a confirmed winner on this GPU.

    \b
    Examples:
      tune bench --kernel gemm
      tune bench --kernel gemm --size m=1000 --against torch --against default
      tune bench --check --against none
      tune bench --kernel gemm --history
    """
