"""Options of ``tune export``, ``tune bundle`` and ``tune db import``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from tuner.cli import options as shared
from tuner.cli.loader import argument, command, flag, kernel_argument, texts
from tuner.cli.options import StoredArguments


@dataclass(frozen=True)
class LeavingArguments(StoredArguments):
    """Which winners, or trials, leave the database."""

    mode: str | None = shared.mode_filter()
    regime: str = shared.regime_filter(default="rested", show_default=True)


@dataclass(frozen=True, kw_only=True)
class ExportArguments(LeavingArguments):
    """Write winners as a C++17 header, or one problem's trials in another tool's format.

    Where a problem was tuned in several modes, the mode tuned last counts, unless --mode names one.

    \b
    Examples:
      tune export gemm -o tuned.hpp
      tune export --gpu h200 --dtype float16 -o -
      tune export --mode warm -o warm.hpp
      tune export gemm --format t4 -o gemm_T4.json.gz
      tune export --run 3f2a --format optuna -o study.db
    """

    run_id: str = shared.stored_filter(
        "--run", "ID", "Only this run, by its id or the start of it; not for a header."
    )
    variant: str = shared.stored_filter("--variant", "NAME", "Only this variant; not for a header.")
    kind: str = shared.shown(
        "--format",
        "header",
        "header: winners; t4, kernel-tuner-cache: all trials of a problem; optuna: a study.",
        click.Choice(["header", "t4", "kernel-tuner-cache", "optuna"]),
    )
    output: Path = shared.output("FILE")
    namespace: str = shared.shown(
        "--namespace",
        "kernel_tune",
        "C++ namespace; needed if one source file includes two headers of a kernel.",
        metavar="NAME",
    )
    force: bool = flag("--force", help_="Overwrite FILE if it exists.")
    replayed: bool = flag("--replayed", help_="Include winners of replays; they are marked.")


def _body(asked: ExportArguments) -> str:
    """Return the body for the format; those of other tools need Optuna, which a header does not."""
    return "winners:export_header" if asked.kind == "header" else "other_tools:export"


export = command(ExportArguments, _body, "export")


@dataclass(frozen=True, kw_only=True)
class BundleArguments(LeavingArguments):
    """Write the winners of a kernel as a folder that C++ and Python programs call.

    The folder has cubins for all GPUs on which the kernel was tuned, and launchers for C++ and Python: programs need no
    compiler. No GPU is needed. If a problem was tuned in several modes, the mode tuned last counts, unless --mode names
    one. A portfolio of the kernel (`tune portfolio`), if there is one, covers sizes that were not tuned.

    \b
    Examples:
      tune bundle gemm -o gemm_bundle
      tune bundle gemm --gpu h200 --dtype bfloat16 -o gemm_bundle --force
      tune bundle ./mykernel.toml -o mykernel_bundle --json
    """

    kernel: str = kernel_argument(required=True)
    output: Path = shared.output("DIR", "A new folder.", dash=False)
    force: bool = flag("--force", help_="Replace the bundle DIR if it exists.")
    replayed: bool = flag("--replayed", help_="Include winners of replays.")
    few: bool = flag("--few", help_="Where there is a portfolio, only winners that it keeps.")
    slices: bool = flag(
        "--slices",
        help_="Also the code with which products write into slices of larger matrices: twice the cubins.",
    )
    jobs: int | None = shared.jobs()
    no_cache: bool = flag("--no-cache", help_="Compile everything again.")
    quiet: bool = shared.quiet()
    as_json: bool = shared.json()


bundle = command(BundleArguments, "winners:bundle")


@dataclass(frozen=True)
class ImportArguments:
    """Import T4 files and Kernel Tuner cache files into the database.

    Their results are marked as replayed and foreign: tune trials shows them, tune best only with --replayed. They are
    never ranked together with times measured here.

    \b
    Examples:
      tune db import gemm-RTX_3090.json.gz
      tune db import results_T4.json --kernel conv --gpu "RTX A6000" --size x=4096
    """

    files: tuple[Path, ...] = argument(nargs=-1, type=shared.FILE, metavar="FILE...")
    db: Path = shared.database()
    kernel: str = shared.stored_filter("--kernel", "NAME", "The kernel's name, if the file's is wrong.")
    gpu: str = shared.stored_filter("--gpu", "NAME", "The GPU's name, if the file's is wrong.")
    sizes: tuple[str, ...] = texts("--size", "NAME=N", "The problem's size, if the file's is wrong.")
    quiet: bool = flag("-q", "--quiet", help_="No progress.")
    as_json: bool = shared.json()


import_results = command(ImportArguments, "other_tools:import_results", "import")
