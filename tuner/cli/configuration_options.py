"""The options that name a kernel, and one configuration of a problem: by its values, a trial's number, or as winner.

``NAME`` and ``--kernel NAME`` mean the same, and a command's help shows one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from tuner.cli.loader import Command, Option
from tuner.cli.options import Count, all_of, database_option, problem_options
from tuner.core import paths
from tuner.core.errors import UsageError

SPELLINGS = ("-k", "--kernel")
OTHER = "kernel_in_other_form"
"""Under which click's parser keeps the kernel of the form that help does not show."""


def kernel_option(
    name: str = "kernel",
    *,
    required: bool = False,
    default: str | None = "",
    help_: str = "Only this kernel.",
) -> Option:
    """Return ``--kernel``, which a name without the option stands for; the command gets it as ``name``."""

    # From click 8.3 on None as the default is a value, which a required option would take when it is left out.
    otherwise: dict[str, Any] = {} if required else {"default": default}

    def decorate(command: Command) -> Command:
        hidden = click.argument(OTHER, cls=_HiddenArgument, required=False, expose_value=False)
        shown = click.option(
            *SPELLINGS,
            name,
            cls=_ShownOption,
            required=required,
            metavar="NAME|FILE",
            help=help_,
            **otherwise,
        )
        return shown(hidden(command))

    return decorate


def kernel_argument(*, required: bool) -> Option:
    """Return ``KERNEL``, for which ``--kernel`` stands as well; the command gets it as ``kernel_name``."""

    def decorate(command: Command) -> Command:
        hidden = click.option(*SPELLINGS, OTHER, hidden=True, expose_value=False)
        metavar = "KERNEL" if required else "[KERNEL]"
        default: dict[str, Any] = {} if required else {"default": ""}
        shown = click.argument(
            "kernel_name", cls=_ShownArgument, metavar=metavar, required=required, **default
        )
        return shown(hidden(command))

    return decorate


def _in_either_form(name: str | None, opts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was parsed, with the kernel under its parameter's name whichever form named it.

    Raises:
        UsageError: both forms name one.
    """
    shown, hidden = opts.get(name or ""), opts.get(OTHER)
    if not isinstance(hidden, str):  # click's mark for what is not given differs between its versions
        return opts
    if isinstance(shown, str):
        raise UsageError(f"the kernel is named twice: {shown!r} and {hidden!r}", "name it once")
    return {**opts, name or "": hidden}


class _ShownOption(click.Option):
    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        return super().consume_value(ctx, _in_either_form(self.name, opts))


class _ShownArgument(click.Argument):
    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        return super().consume_value(ctx, _in_either_form(self.name, opts))


class _HiddenArgument(click.Argument):
    def get_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return []


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
