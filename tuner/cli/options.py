"""Options that several commands share, in the same words."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tuner import paths
from tuner.cli.loader import Command

MOST = 2**31 - 1
"""The largest count or number that an option takes: more than any use needs, and SQLite's integers hold it."""


class Amount(click.FloatRange):
    """A finite number within limits; click lets ``nan`` pass every limit, and a time limit of ``nan`` never ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a text means."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


Option = Callable[[Command], Command]

database_option: Option = click.option(
    "--db",
    "db",
    type=click.Path(path_type=Path),
    default=paths.DATABASE,
    show_default=True,
    help="Database file.",
)


def problem_options(command: Command) -> Command:
    """Add ``--size``, ``--dtype``, ``--option`` and ``--preset`` of one problem."""
    sizes = click.option(
        "-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help="Problem sizes."
    )
    dtypes = click.option("--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help="The dtype.")
    options = click.option(
        "--option", "options", multiple=True, metavar="NAME=VALUE", help="The kernel's options."
    )
    preset = click.option("--preset", help="A named problem of the kernel.")
    return sizes(dtypes(options(preset(command))))


presets_option: Option = click.option(
    "--preset", "presets", multiple=True, help="A named problem of the kernel; repeat for several."
)
problems_option: Option = click.option(
    "--problem", "problem_texts", multiple=True, metavar="NAME=N,...", help="One of several problems; repeat."
)

timed_mode_option: Option = click.option(
    "--mode",
    "mode_name",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "cold", "rotating", "warm"]),
    help="What the caches hold when a timed kernel starts.",
)
timed_regime_option: Option = click.option(
    "--regime",
    "regime_name",
    default="rested",
    show_default=True,
    type=click.Choice(["rested", "sustained"]),
    help="With pauses that keep the card off its power limit, or without.",
)

device_option: Option = click.option(
    "--device",
    "device_name",
    default="auto",
    show_default=True,
    help="auto, cuda, cuda:N, replay or replay:FILE; also a T4 or Kernel Tuner cache file.",
)
gpu_option: Option = click.option(
    "--device", "device_name", default="cuda", show_default=True, help="cuda or cuda:N."
)


def as_tuned_options(command: Command) -> Command:
    """Add ``--mode`` and ``--regime``, by default those of the tuned winner."""
    help_ = "As it was tuned, if not given."
    regime = click.option("--regime", type=click.Choice(["rested", "sustained"]), help=help_)
    return click.option("--mode", type=click.Choice(["cold", "rotating", "warm"]), help=help_)(
        regime(command)
    )


rounds_option: Option = click.option(
    "--rounds", default=20, show_default=True, type=click.IntRange(6, 1000), help="Groups of each contestant."
)
jobs_option: Option = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Compiling processes; one a core by default."
)


def seed_option(of: str) -> Option:
    """Return ``--seed``, with what it is the seed of."""
    return click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0, max=MOST), help=of)


def mode_filter_option(command: Command) -> Command:
    """Add ``--mode`` as a filter of stored times."""
    modes = click.Choice(["cold", "rotating", "warm"])
    return click.option("--mode", type=modes, help="Only times of this mode: what the caches held.")(command)


def regime_filter_option(command: Command, default: str | None = None) -> Command:
    """Add ``--regime`` as a filter of stored times."""
    return click.option(
        "--regime",
        type=click.Choice(["rested", "sustained"]),
        default=default,
        show_default=default is not None,
        help="Only times of this regime: with pauses for the GPU, or without.",
    )(command)


def filter_options(command: Command) -> Command:
    """Add the filters of ``tune query`` and ``tune best``, and their formats; the command gets them as ``options``."""
    options: list[Option] = [
        click.option("--kernel", default="", metavar="NAME", help="Only this kernel."),
        click.option("--gpu", default="", metavar="TEXT", help="Only GPUs whose name contains this."),
        click.option("--dtype", default="", metavar="DTYPE", help="Only problems of this dtype."),
        click.option(
            "--size", "sizes", multiple=True, metavar="NAME=N", help="Only this size; may be repeated."
        ),
        click.option("--variant", default="", metavar="NAME", help="Only this variant."),
        mode_filter_option,
        regime_filter_option,
        click.option("--since", default="", metavar="WHEN", help="Not older than this: 2d, 3h, 2026-11-01."),
        click.option(
            "--run", "run_id", default="", metavar="ID", help="Only this run; the start of its id will do."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
    ]
    for option in reversed(options):
        command = option(command)
    return command
