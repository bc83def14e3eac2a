"""The options that name one configuration of one problem: by its values, by a trial's number, or as the winner."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from tuner.cli.kernel_name import kernel_argument
from tuner.cli.loader import Command, Option
from tuner.cli.options import Count, all_of, database_option, problem_options
from tuner.core import paths

OPTIONS: Option = all_of(
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
"""What :func:`configuration_options` adds, in the order of the help page."""

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


def configuration_options(command: Command) -> Command:
    """Add KERNEL and the options that name a problem and a configuration; the command gets them as ``given``."""

    @functools.wraps(command)
    def collect(**arguments: Any) -> Any:
        names = [field.name for field in fields(ConfigurationArguments)]
        given = ConfigurationArguments(**{name: arguments.pop(name) for name in names})
        return command(given=given, **arguments)

    return OPTIONS(collect)
