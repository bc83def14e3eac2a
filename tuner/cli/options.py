"""Options that several commands share, in the same words."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tuner import paths

MOST = 2**31 - 1
"""What is counted or numbered may be as large as this: more than anyone needs, and SQLite's integers hold it."""


class Amount(click.FloatRange):
    """A number within limits; click lets ``nan`` pass every limit, and then no time is ever over."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


Command = Callable[..., Any]
Option = Callable[[Command], Command]

database_option: Option = click.option(
    "--db",
    "db",
    type=click.Path(path_type=Path),
    default=paths.DATABASE,
    show_default=True,
    help="Database file.",
)

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
    """Add ``--mode`` and ``--regime`` of what was tuned before."""
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
