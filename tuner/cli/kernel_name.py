"""The kernel that a command is about: ``NAME`` and ``--kernel NAME`` mean the same, and a command's help shows one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tuner.cli.loader import declared
from tuner.core.errors import UsageError

SPELLINGS = ("-k", "--kernel")
OTHER = "kernel_in_other_form"
"""Under which click's parser keeps the kernel of the form that help does not show."""


def kernel_option(
    *, required: bool = False, default: str | None = "", help_: str = "Only this kernel."
) -> Any:
    """Return ``--kernel``, which a name without the option stands for."""
    # From click 8.3 on None as the default is a value, which a required option would take when it is left out.
    otherwise: dict[str, Any] = {"required": True} if required else {"default": default}
    shown = {"metavar": "NAME|FILE", "help": help_, **otherwise}

    def parameters(name: str) -> list[click.Parameter]:
        hidden = _HiddenArgument([OTHER], required=False, expose_value=False)
        return [_ShownOption([*SPELLINGS, name], **shown), hidden]

    return declared(parameters, otherwise)


def kernel_argument(*, required: bool) -> Any:
    """Return ``KERNEL``, for which ``--kernel`` stands as well."""
    otherwise: dict[str, Any] = {"required": True} if required else {"required": False, "default": ""}
    metavar = "KERNEL" if required else "[KERNEL]"

    def parameters(name: str) -> list[click.Parameter]:
        hidden = click.Option([*SPELLINGS, OTHER], hidden=True, expose_value=False)
        return [_ShownArgument([name], metavar=metavar, **otherwise), hidden]

    return declared(parameters, otherwise)


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
