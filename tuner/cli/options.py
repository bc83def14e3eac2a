"""Options that several commands share, in the same words."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.loader import flag, kernel_argument, option, texts
from tuner.core import paths
from tuner.core.limits import MOST
from tuner.runtime.dtypes import dtype_named

if TYPE_CHECKING:
    from tuner.core.conditions import Mode, Regime

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


class Count(Whole):
    """A number of rows, trials or the like, of at most :data:`MOST`; help shows the smallest alone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number that a text means."""
        number = int(super().convert(value, param, ctx))
        if number > MOST:
            self.fail(f"{number} is more than {MOST}", param, ctx)
        return number


class Row(Count):
    """The number of a trial's row, as tables print it, too: ``#626``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number that a text means."""
        return super().convert(str(value).removeprefix("#"), param, ctx)


class Jobs(Whole):
    """A number of processes that this machine can be meant to run."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number that a text means."""
        number, cores = int(super().convert(value, param, ctx)), os.cpu_count() or 1
        if number > (most := max(JOBS_OF_A_CORE * cores, FEWEST_JOBS)):
            self.fail(f"{number} processes are too many for {cores} cores: at most {most}", param, ctx)
        return number


class Duration(Amount):
    """A time with its unit, in seconds: ``90s``, ``30m``, ``2h``; without one it is of seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds that a text means."""
        given = re.fullmatch(r"(\d+(?:\.\d*)?)(s|m|min|h)", str(value).replace(" ", ""))
        if given:
            value = float(given[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600}[given[2]]
        return super().convert(value, param, ctx)


def shown(spelling: str, default: Any, help_: str, kind: Any = None, **attributes: Any) -> Any:
    """Return an option whose default stands in its help, with the type of its values."""
    return option(spelling, default=default, help=help_, type=kind, show_default=True, **attributes)


FILE = click.Path(path_type=Path)
MODES = click.Choice(["cold", "rotating", "warm"])
MODES_OR_AUTO = click.Choice(["auto", *MODES.choices])
REGIMES = click.Choice(["rested", "sustained"])

file = partial(option, type=FILE)
database = partial(shown, "--db", paths.DATABASE, "Database file.", FILE)
json = partial(flag, "--json", help_="Print JSON.")
quiet = partial(flag, "-q", "--quiet", help_="Print only the result.")
full = partial(
    flag,
    "--full",
    help_="Show all parameters of a configuration, not only those that differ from the default.",
)
sizes = partial(option, "-s", "--size", multiple=True, metavar="NAME=N[,...]", help="Problem sizes.")
dtypes = partial(texts, "--dtype", "[ROLE=]DTYPE", help_="The dtype.")
kernel_options = partial(
    texts, "--option", "NAME=VALUE", help_="The kernel's options; tune show KERNEL lists them."
)
preset = partial(option, "--preset", metavar="NAME", help="A named problem of the kernel.")
presets = partial(texts, "--preset", "NAME", "A named problem; repeat for several.")
problems = partial(texts, "--problem", "NAME=N,...", "A problem, by its sizes; repeat for several.")
problem_file = partial(file, "--problems", metavar="FILE.csv")


def trials(count: int, help_: str) -> Any:
    """Return ``--trials``, with the default and what it counts."""
    return option("-n", "--trials", default=count, type=Count(min=1), help=help_, show_default=True)


def time(help_: str, spelling: str = "--time", least_s: float = 0.1, default_s: float | None = None) -> Any:
    """Return ``--time`` or another limit, with what it ends, and its limits."""
    return shown(spelling, default_s, help_, Duration(min=least_s), metavar="SECONDS")


def output(
    metavar: str,
    help_: str = "The file; - for standard output.",
    *,
    dash: bool = True,
    default: Path | None = None,
) -> Any:
    """Return ``--output`` of commands that write one file, or a folder; required where there is no default."""
    otherwise: dict[str, Any] = {"default": default, "show_default": True} if default else {"required": True}
    path = click.Path(path_type=Path, allow_dash=dash)
    return option("-o", "--output", "--out", type=path, metavar=metavar, help=help_, **otherwise)


def _mode(_: click.Context, __: click.Parameter, text: str | None) -> Mode | None:
    """Return the mode that an option names; None for auto, or where it is left out."""
    from tuner.core.conditions import Mode  # not for help

    return None if text in (None, "auto") else Mode(text)


def _regime(_: click.Context, __: click.Parameter, text: str | None) -> Regime | None:
    from tuner.core.conditions import Regime

    return None if text is None else Regime(text)


mode = partial(
    shown, "--mode", "auto", "What the caches hold when a timed kernel starts.", MODES_OR_AUTO, callback=_mode
)
regime = partial(
    shown,
    "--regime",
    "rested",
    "rested: pauses keep the GPU below its power limit; sustained: no pauses.",
    REGIMES,
    callback=_regime,
)


def device(gpus: str) -> Any:
    """Return ``--device`` of commands that measure or replay, with how it names GPUs, such as ``cuda, cuda:N``."""
    text = f"auto, {gpus}, replay, replay:FILE, or a T4 or Kernel Tuner cache file."
    return shown("--device", "auto", text, metavar="DEVICE")


gpu = partial(shown, "--device", "cuda", "cuda or cuda:N.", metavar="DEVICE")
mode_as_tuned = partial(option, "--mode", type=MODES, callback=_mode, help="By default as it was tuned.")
regime_as_tuned = partial(
    option, "--regime", type=REGIMES, callback=_regime, help="By default as it was tuned."
)
rounds = partial(shown, "--rounds", 20, "Rounds, in each of which all are timed once.", Whole(6, 1000))
jobs = partial(option, "-j", "--jobs", type=Jobs(min=1), help="Compiling processes; one per core by default.")


def seed(of: str) -> Any:
    """Return ``--seed``, with what it is the seed of, such as ``the inputs``."""
    return shown("--seed", 0, f"Seed of {of}.", Count(min=0))


def against(names: str) -> Any:
    """Return ``--against``, with the names of contestants that need no code."""
    own = "mine.cu:add<<<grid, block>>>(a, b), module:function"
    return texts("--against", "WHAT", f"{names}, {own}; repeat for several.")


def stored_filter(spelling: str, metavar: str, help_: str, **attributes: Any) -> Any:
    """Return a filter of stored results, which is empty where it is left out."""
    return option(spelling, default="", metavar=metavar, help=help_, **attributes)


gpu_filter = partial(stored_filter, "--gpu", "TEXT", "Only GPUs whose name contains this.")
dtype_filter = partial(
    stored_filter,
    "--dtype",
    "DTYPE",
    "Only problems of this dtype.",
    callback=lambda _, __, text: dtype_named(text),
)
mode_filter = partial(option, "--mode", type=MODES, help="Only times of this mode.")
regime_filter = partial(option, "--regime", type=REGIMES, help="Only times of this regime.")


@dataclass(frozen=True)
class StoredArguments:
    """Which stored results a command reads; :func:`tuner.cli.filters.filters_of` settles it."""

    db: Path = database()
    kernel: str = kernel_argument()
    gpu: str = gpu_filter()
    dtype: str = dtype_filter()


@dataclass(frozen=True)
class Listing(StoredArguments):
    """Which stored results a command lists, and in what format."""

    sizes: tuple[str, ...] = texts("--size", "NAME=N", "Only this size; repeat for several.")
    variant: str = stored_filter("--variant", "NAME", "Only this variant.")
    mode: str | None = mode_filter()
    regime: str | None = regime_filter()
    since: str = stored_filter("--since", "WHEN", "Not older than this: 2d, 3h or 2026-11-01.")
    run_id: str = stored_filter("--run", "ID", "Only this run, by its id or the start of it.")
    as_json: bool = json()
    as_csv: bool = flag("--csv", help_="Print CSV.")


@dataclass(frozen=True)
class ProblemTexts:
    """What the command line says of its problems; :func:`tuner.cli.problems.make_problems` settles it."""

    sizes: Sequence[str] = sizes()
    dtypes: Sequence[str] = dtypes()
    options: Sequence[str] = kernel_options()
    presets: Sequence[str] = presets()
    problem_texts: Sequence[str] = problems()
    problem_file: Path | None = None
    """Of problems, one a row; some commands take it."""


@dataclass(frozen=True)
class ProblemArguments:
    """What the command line says about one problem; :func:`tuner.cli.problems.make_problem` settles it."""

    kernel_name: str = kernel_argument()
    """Empty where a trial is named instead."""
    sizes: tuple[str, ...] = sizes()
    dtypes: tuple[str, ...] = dtypes()
    options: tuple[str, ...] = kernel_options()
    preset: str | None = preset()

    @property
    def names_problem(self) -> bool:
        """Whether anything is said about the problem, besides its kernel."""
        return bool(self.sizes or self.dtypes or self.options or self.preset)


@dataclass(frozen=True)
class ConfigurationArguments(ProblemArguments):
    """What the command line says about a configuration; :func:`tuner.cli.configuration.choose` settles it."""

    config: str | None = option(
        "--config",
        metavar="TEXT",
        help='A configuration as tables print it: "mma_sync block_m=128 stages=3"; or default.',
    )
    trial: int | None = option("--trial", type=Row(min=1), metavar="N", help="The configuration of trial N.")
    db: Path = database()


@dataclass(frozen=True)
class ForGpuArguments(ConfigurationArguments):
    """A configuration, and the GPU that is meant where none is needed: :func:`tuner.cli.configuration.named_gpu`."""

    gpu_text: str | None = option(
        "--gpu", metavar="TEXT", help="A GPU by a part of its name: one of the database, or a typical one."
    )
    cc: int | None = option("--cc", type=int, help="The typical GPU of a compute capability, times ten.")
    device_name: str | None = option(
        "--device", metavar="DEVICE", help="A GPU of this machine: cuda or cuda:N."
    )
