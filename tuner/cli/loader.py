"""What all commands have in common: a record has the options, and the body that takes it is imported when it runs.

``NAME`` and ``--kernel NAME`` mean the same kernel, and a command's help shows one of them.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from tuner.core.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)


def declared(parameters: Callable[[str], list[click.Parameter]], attributes: Mapping[str, Any]) -> Any:
    """Return the field of a record that parameters of the command line set, which are made from the field's name."""
    nothing = () if attributes.get("multiple") else False if attributes.get("is_flag") else None
    default = dataclasses.MISSING if attributes.get("required") else attributes.get("default", nothing)
    return dataclasses.field(default=default, metadata={"parameters": parameters})


def option(*spellings: str, **attributes: Any) -> Any:
    """Return the field of a record that an option sets; ``attributes`` are those of :class:`click.Option`."""
    return declared(lambda name: [click.Option([*spellings, name], **attributes)], attributes)


def flag(*spellings: str, help_: str) -> Any:
    """Return the field of a record that an option without a value sets."""
    return option(*spellings, is_flag=True, help=help_)


def texts(spelling: str, metavar: str, help_: str) -> Any:
    """Return the field of a record that an option sets which may be repeated."""
    return option(spelling, multiple=True, metavar=metavar, help=help_)


def argument(**attributes: Any) -> Any:
    """Return the field of a record that a positional argument sets."""
    required = {"required": True, **attributes}
    return declared(lambda name: [click.Argument([name], **required)], required)


def command(
    record: type[Record], body: str | Callable[[Record], str], name: str | None = None, **attributes: Any
) -> Once:
    """Return the command whose options are the fields of a record, and whose help is the record's docstring.

    Args:
        record: a dataclass.
        body: ``module:function`` in this package, or what chooses that by the record; the function is called with it.
        name: of the command, if it is not the function's.
        attributes: of :class:`click.Command`.
    """

    def run(**arguments: Any) -> None:
        given = record(**arguments)
        module, function = (body if isinstance(body, str) else body(given)).split(":")
        getattr(importlib.import_module(f"tuner.cli.{module}"), function)(given)

    parameters = [
        parameter
        for field in dataclasses.fields(record)
        for parameter in field.metadata.get("parameters", lambda _: [])(field.name)
    ]
    if name is None and isinstance(body, str):
        name = body.partition(":")[2]
    return Once(name, callback=run, params=parameters, help=record.__doc__, **attributes)


def part(record: DataclassInstance, of: type[Record], **more: Any) -> Record:
    """Return a record of another type from the fields of the same names, and more; the others have their defaults."""
    names = {field.name for field in dataclasses.fields(record)}
    same = {one.name: getattr(record, one.name) for one in dataclasses.fields(of) if one.name in names}
    return of(**same | more)


class Once(click.Command):
    """A command that refuses an option that is given twice where one value counts; click takes the last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            UsageError: an option of one value is given more than once, or an option with its opposite.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(given).items():
            if times == 1 or not isinstance(parameter, click.Option) or parameter.multiple:
                continue
            if not parameter.is_flag or parameter.secondary_opts:
                name = "/".join((parameter.opts[-1], *parameter.secondary_opts[-1:]))
                raise UsageError(f"{name} is given {times} times", "give it once, and run a command for each")
        return super().parse_args(ctx, args)


def given_options(*names: str) -> list[str]:
    """Return those of some options, by parameter of the running command, that are on its command line."""
    context = click.get_current_context()
    spelled = {parameter.name: parameter.opts[-1] for parameter in context.command.params}
    source = context.get_parameter_source
    return [spelled[name] for name in names if source(name) is ParameterSource.COMMANDLINE]


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
