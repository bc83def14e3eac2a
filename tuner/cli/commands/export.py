"""Options of ``tune export``."""

from __future__ import annotations

from typing import Any

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import database_option, kind_filter_options, output_option, timed_filter_options


def _body(arguments: dict[str, Any]) -> str:
    """Return the body for the format; those of other tools need Optuna, which a header does not."""
    return f"tuner.cli.export_{'header' if arguments['kind'] == 'header' else 'results'}:export"


@click.command(cls=Once)
@database_option
@kind_filter_options
@timed_filter_options("rested")
@click.option(
    "--run",
    "run_id",
    default="",
    metavar="ID",
    help="Only this run, by its id or the start of it; not for a header.",
)
@click.option("--variant", default="", metavar="NAME", help="Only this variant; not for a header.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["header", "t4", "kernel-tuner-cache", "t1", "optuna"]),
    default="header",
    show_default=True,
    help="header: winners; t4, kernel-tuner-cache: all trials of a problem; t1: its space; optuna: a study.",
)
@output_option("FILE")
@click.option(
    "--namespace",
    default="kernel_tune",
    show_default=True,
    metavar="NAME",
    help="C++ namespace; needed if one source file includes two headers of a kernel.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@click.option("--replayed", is_flag=True, help="Include winners of replays; they are marked.")
@runs(_body)
def export() -> None:
    """Write winners as a C++17 header, or one problem's trials in another tool's format.

    Where a problem was tuned in several modes, the mode tuned last counts, unless --mode names one.

    \b
    Examples:
      tune export --kernel gemm -o tuned.hpp
      tune export --gpu h200 --dtype float16 -o -
      tune export --mode warm -o warm.hpp
      tune export --kernel gemm --format t4 -o gemm_T4.json.gz
      tune export --run 3f2a --format optuna -o study.db
    """
