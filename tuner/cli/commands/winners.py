"""Options of ``tune export``, ``tune bundle`` and ``tune import``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tuner.cli.kernel_name import kernel_option
from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    FILE,
    database_option,
    jobs_option,
    json_option,
    kind_filter_options,
    output_option,
    result_options,
    timed_filter_options,
)


def _body(arguments: dict[str, Any]) -> str:
    """Return the body for the format; those of other tools need Optuna, which a header does not."""
    return f"tuner.cli.{'winners:export_header' if arguments['kind'] == 'header' else 'other_tools:export'}"


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


@click.command(cls=Once)
@database_option
@kernel_option(required=True, help_="The kernel.")
@click.option("--gpu", default="", metavar="TEXT", help="Only GPUs whose name contains this.")
@click.option("--dtype", default="", metavar="DTYPE", help="Only problems of this dtype.")
@timed_filter_options("rested")
@click.option(
    "-o",
    "--output",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A new folder.",
)
@click.option("--force", is_flag=True, help="Replace the bundle DIR if it exists.")
@click.option("--replayed", is_flag=True, help="Include winners of replays.")
@click.option("--few", is_flag=True, help="Where there is a portfolio, only winners that it keeps.")
@jobs_option
@click.option("--no-cache", is_flag=True, help="Compile everything again.")
@result_options
@runs("tuner.cli.winners:bundle")
def bundle() -> None:
    """Write the winners of a kernel as a folder that C++ and Python programs call.

    The folder has cubins for all GPUs on which the kernel was tuned, and launchers for C++ and Python: programs need no
    compiler. No GPU is needed. If a problem was tuned in several modes, the mode tuned last counts, unless --mode names
    one. A portfolio of the kernel (`tune portfolio`), if there is one, covers sizes that were not tuned.

    \b
    Examples:
      tune bundle --kernel gemm -o gemm_bundle
      tune bundle --kernel gemm --gpu h200 --dtype bfloat16 -o gemm_bundle --force
      tune bundle --kernel ./mykernel.toml -o mykernel_bundle --json
    """


@click.command("import", cls=Once)
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@database_option
@click.option("--kernel", default="", metavar="NAME", help="The kernel's name, if the file's is wrong.")
@click.option("--gpu", default="", metavar="NAME", help="The GPU's name, if the file's is wrong.")
@click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="The problem's size, if the file's is wrong."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@json_option
@runs("tuner.cli.other_tools:import_results")
def import_results() -> None:
    """Import T4 files and Kernel Tuner cache files into the database.

    Their results are marked as replayed and foreign: tune query shows them, tune best only with --replayed. They are
    never ranked together with times measured here.

    \b
    Examples:
      tune import gemm-RTX_3090.json.gz
      tune import results_T4.json --kernel conv --gpu "RTX A6000" --size x=4096
    """
