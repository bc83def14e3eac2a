"""Options of ``tune show``."""

from __future__ import annotations

import click

from tuner.cli.kernel_name import kernel_argument
from tuner.cli.loader import Once, runs
from tuner.cli.options import problem_options


@click.command(cls=Once)
@kernel_argument(required=True)
@problem_options
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Only this variant, even if the problem excludes it; repeat for several.",
)
@click.option(
    "--cc",
    type=int,
    default=90,
    show_default=True,
    help="Compute capability, times ten, of the GPU whose limits count.",
)
@click.option(
    "--rules",
    multiple=True,
    metavar="NAME[,NAME...]",
    help="Count what rules of thumb exclude: warp_multiple, occupancy, divides_sm, registers, all.",
)
@click.option("--full", is_flag=True, help="Show all variants with their parameters and constraints.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@runs("tuner.cli.show:show")
def show() -> None:
    """Show a kernel: its problem, presets and variants, and the number of configurations.

    A kernel of many variants is shown in short: what each does. --variant adds the parameters and constraints of one,
    --full those of all that the problem allows.
    """
