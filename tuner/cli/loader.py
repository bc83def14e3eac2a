"""What all commands have in common: options are given once, and the body is imported when the command runs."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from tuner.core.errors import UsageError

Command = Callable[..., Any]
Option = Callable[[Command], Command]
"""Adds an option, or several, to a command."""


def runs(body: str | Callable[[dict[str, Any]], str]) -> Callable[[Command], Command]:
    """Return a decorator: the function that it decorates has a command's help, and the body does its work.

    Args:
        body: ``module:function``, or what chooses that by click's keyword arguments. The function is called with them;
            a parameter that is a dataclass gets a record of those that are its fields.
    """

    def decorate(described: Command) -> Command:
        @functools.wraps(described)
        def run(**arguments: Any) -> None:
            module, name = (body if isinstance(body, str) else body(arguments)).split(":")
            function = getattr(importlib.import_module(module), name)
            for parameter in inspect.signature(function, eval_str=True).parameters.values():
                record = parameter.annotation
                if parameter.name not in arguments and dataclasses.is_dataclass(record):
                    names = [field.name for field in dataclasses.fields(record) if field.name in arguments]
                    arguments[parameter.name] = parameter.annotation(
                        **{name: arguments.pop(name) for name in names}
                    )
            function(**arguments)

        return run

    return decorate


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


def given_options(options: Mapping[str, str]) -> list[str]:
    """Return those of some options, by parameter of the running command, that are on its command line."""
    context = click.get_current_context()
    return [
        option
        for name, option in options.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
