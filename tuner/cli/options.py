"""Options that several commands share, in the same words."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tuner.cli.kernel_name import kernel_argument, kernel_option
from tuner.cli.loader import Option
from tuner.core import paths

MOST = 2**31 - 1
"""The largest count or number that an option takes: more than any use needs, and SQLite's integers hold it."""

JOBS_OF_A_CORE, FEWEST_JOBS = 4, 64
"""Compiling processes that may be asked for, a core and on any machine: a compiler keeps a core busy by itself."""


class Amount(click.FloatRange):
    """A finite number within limits; click lets ``nan`` pass every limit, and a time limit of ``nan`` never ends."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number that a text means."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Whole(click.IntRange):
    """A whole number within limits; click's own name for it, integer range, stands in help and in errors."""

    name = "integer"


class _File(click.Path):
    """A path that is not empty: Path would take that for the working directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("an empty text names no file", param, ctx)
        return super().convert(value, param, ctx)


FILE = _File(path_type=Path)
MODES = click.Choice(["cold", "rotating", "warm"])
REGIMES = click.Choice(["rested", "sustained"])


def all_of(*options: Option) -> Option:
    """Return several options as one, in the order of the help page."""
    return lambda command: functools.reduce(lambda inner, option: option(inner), reversed(options), command)


database_option: Option = click.option(
    "--db", "db", type=FILE, default=paths.DATABASE, show_default=True, help="Database file."
)
json_option: Option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
full_option: Option = click.option(
    "--full",
    is_flag=True,
    help="Show all parameters of a configuration, not only those that differ from the default.",
)
result_options: Option = all_of(
    click.option("-q", "--quiet", is_flag=True, help="Print only the result."), json_option
)


def sizes_option(help_: str = "Problem sizes.") -> Option:
    """Return ``--size``, with which sizes it sets."""
    return click.option("-s", "--size", "sizes", multiple=True, metavar="NAME=N[,...]", help=help_)


def dtypes_option(help_: str = "The dtype.") -> Option:
    """Return ``--dtype``, with what it means."""
    return click.option("--dtype", "dtypes", multiple=True, metavar="[ROLE=]DTYPE", help=help_)


def options_option(help_: str = "The kernel's options.") -> Option:
    """Return ``--option``, with what it means."""
    return click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help=help_)


preset_option: Option = click.option("--preset", metavar="NAME", help="A named problem of the kernel.")
problem_options: Option = all_of(sizes_option(), dtypes_option(), options_option(), preset_option)
"""Of one problem."""

presets_option: Option = click.option(
    "--preset",
    "presets",
    multiple=True,
    metavar="NAME",
    help="A named problem of the kernel; repeat for several.",
)
problems_option: Option = click.option(
    "--problem",
    "problem_texts",
    multiple=True,
    metavar="NAME=N,...",
    help="A problem, by its sizes; repeat for several.",
)


def problem_file_option(help_: str) -> Option:
    """Return ``--problems``, with what a row of the file may have."""
    return click.option("--problems", "problem_file", type=FILE, metavar="FILE.csv", help=help_)


def trials_option(count: int, help_: str) -> Option:
    """Return ``--trials``, with the default and what it counts."""
    return click.option("-n", "--trials", default=count, show_default=True, type=Count(min=1), help=help_)


def time_option(help_: str, least_s: float = 0.1, default_s: float | None = None) -> Option:
    """Return ``--time``, with what it ends, and its limits."""
    return click.option(
        "--time",
        "time_s",
        default=default_s,
        show_default=True,
        type=Amount(min=least_s),
        metavar="SECONDS",
        help=help_,
    )


def output_option(metavar: str) -> Option:
    """Return ``--output`` of commands that write one file."""
    return click.option(
        "-o",
        "--output",
        "--out",
        type=click.Path(path_type=Path, allow_dash=True),
        required=True,
        metavar=metavar,
        help="The file; - for standard output.",
    )


timed_options: Option = all_of(
    click.option(
        "--mode",
        "mode_name",
        default="auto",
        show_default=True,
        type=click.Choice(["auto", *MODES.choices]),
        help="What the caches hold when a timed kernel starts.",
    ),
    click.option(
        "--regime",
        "regime_name",
        default="rested",
        show_default=True,
        type=REGIMES,
        help="rested: pauses keep the card below its power limit; sustained: no pauses.",
    ),
)
"""How commands that search time."""


def device_option(gpus: str) -> Option:
    """Return ``--device`` of commands that measure or replay, with how it names GPUs, such as ``cuda, cuda:N``."""
    return click.option(
        "--device",
        "device_name",
        default="auto",
        show_default=True,
        metavar="DEVICE",
        help=f"auto, {gpus}, replay, replay:FILE, or a T4 or Kernel Tuner cache file.",
    )


gpu_option: Option = click.option(
    "--device", "device_name", default="cuda", show_default=True, metavar="DEVICE", help="cuda or cuda:N."
)


regime_as_tuned: Option = click.option("--regime", type=REGIMES, help="By default as it was tuned.")
as_tuned_options: Option = all_of(
    click.option("--mode", type=MODES, help="By default as it was tuned."), regime_as_tuned
)
modes_option: Option = click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(["auto", *MODES.choices]),
    help="auto, the default: as it was tuned; repeat for several.",
)

rounds_option: Option = click.option(
    "--rounds",
    default=20,
    show_default=True,
    type=Whole(6, 1000),
    help="Rounds in which contestants take turns.",
)


class Count(Whole):
    """A number of rows, trials or the like, of at most :data:`MOST`; help shows the smallest alone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number that a text means."""
        number = int(super().convert(value, param, ctx))
        if number > MOST:
            self.fail(f"{number} is more than {MOST}", param, ctx)
        return number


class Jobs(Whole):
    """A number of processes that this machine can be meant to run."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number that a text means."""
        number, cores = int(super().convert(value, param, ctx)), os.cpu_count() or 1
        if number > (most := max(JOBS_OF_A_CORE * cores, FEWEST_JOBS)):
            self.fail(f"{number} processes are too many for {cores} cores: at most {most}", param, ctx)
        return number


jobs_option: Option = click.option(
    "-j", "--jobs", type=Jobs(min=1), help="Compiling processes; one per core by default."
)


def seed_option(of: str) -> Option:
    """Return ``--seed``, with what it is the seed of, such as ``the inputs``."""
    return click.option("--seed", default=0, show_default=True, type=Count(min=0), help=f"Seed of {of}.")


def timed_filter_options(regime: str | None = None) -> Option:
    """Return ``--mode`` and ``--regime`` as filters of stored times, the latter with a default."""
    shown = regime is not None
    return all_of(
        click.option("--mode", type=MODES, help="Only times of this mode."),
        click.option(
            "--regime", type=REGIMES, default=regime, show_default=shown, help="Only times of this regime."
        ),
    )


kind_filter_options: Option = all_of(
    kernel_option(),
    click.option("--gpu", default="", metavar="TEXT", help="Only GPUs whose name contains this."),
    click.option("--dtype", default="", metavar="DTYPE", help="Only problems of this dtype."),
)
filter_options: Option = all_of(
    kind_filter_options,
    click.option(
        "--size", "sizes", multiple=True, metavar="NAME=N", help="Only this size; repeat for several."
    ),
    click.option("--variant", default="", metavar="NAME", help="Only this variant."),
    timed_filter_options(),
    click.option("--since", default="", metavar="WHEN", help="Not older than this: 2d, 3h or 2026-11-01."),
    click.option(
        "--run", "run_id", default="", metavar="ID", help="Only this run, by its id or the start of it."
    ),
    json_option,
    click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
)
"""The filters of ``tune query`` and ``tune best``, and their formats; the command gets them as ``options``."""


configuration_options: Option = all_of(
    kernel_argument(required=False),
    problem_options,
    click.option(
        "--config",
        metavar="TEXT",
        help='A configuration as tables print it: "mma_sync block_m=128 stages=3"; or default.',
    ),
    click.option("--trial", type=Count(min=1), metavar="N", help="The configuration of trial N."),
    database_option,
)
"""KERNEL, and what names a problem and a configuration; a body gets them as :class:`ConfigurationArguments`."""

named_gpu_options: Option = all_of(
    click.option(
        "--gpu",
        "gpu_text",
        metavar="TEXT",
        help="A GPU by a part of its name: one of the database, or a typical one.",
    ),
    click.option("--cc", type=int, help="The typical GPU of a compute capability, times ten."),
    click.option("--device", "device_name", metavar="DEVICE", help="A GPU of this machine: cuda or cuda:N."),
)
"""The GPU that is meant, for a command that needs none; :func:`tuner.cli.gpu.named_gpu` settles it."""


@dataclass(frozen=True)
class ConfigurationArguments:
    """What the command line says about a configuration; :func:`tuner.cli.configuration.choose` settles it."""

    kernel_name: str
    """Empty where only a trial is named."""
    sizes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    preset: str | None = None
    config: str | None = None
    trial: int | None = None
    db: Path = paths.DATABASE

    @property
    def names_problem(self) -> bool:
        """Whether anything is said about the problem, besides its kernel."""
        return bool(self.sizes or self.dtypes or self.options or self.preset)
