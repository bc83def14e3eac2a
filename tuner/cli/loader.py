"""What all commands have in common: a record has the options, and the body that takes it is imported when it runs.

A kernel is the argument ``KERNEL`` of every command; ``--kernel NAME``, which help does not show, means the same.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tuner.core import paths
from tuner.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

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
    record: type[Record],
    body: str | Callable[[Record], str],
    name: str | None = None,
    sections: Mapping[str, str] | None = None,
    kind: type[Once] | None = None,
    **attributes: Any,
) -> Once:
    """Return the command whose options are the fields of a record, and whose help is the record's docstring.

    Args:
        record: a dataclass; the examples of its docstring stand behind the options.
        body: ``module:function`` in this package, or what chooses that by the record; the function is called with it.
        name: of the command, if it is not the function's.
        sections: the fields whose options help lists, by headings; those behind the first only with ``--help-all``.
        kind: of command; :class:`Once` by default.
        attributes: of :class:`click.Command`.
    """

    def run(**arguments: Any) -> None:
        given = record(**arguments)
        module, function = (body if isinstance(body, str) else body(given)).split(":")
        getattr(_imported(f"tuner.cli.{module}"), function)(given)

    parameters = [
        parameter
        for field in dataclasses.fields(record)
        for parameter in field.metadata.get("parameters", lambda _: [])(field.name)
    ]
    if name is None and isinstance(body, str):
        name = body.partition(":")[2]
    text, mark, examples = inspect.cleandoc(record.__doc__ or "").partition("\b\nExamples:")
    attributes |= {"callback": run, "params": parameters, "help": text, "epilog": mark + examples or None}
    return (kind or Once)(name, sections, **attributes)


def _imported(name: str) -> ModuleType:
    """Import a module of this package, but not pandas, which sqlite-utils imports where it is installed (0.3 s).

    What is imported stays, so Python need not look for garbage in it, now or later.
    """
    modules: dict[str, Any] = sys.modules
    if name in modules:
        return importlib.import_module(name)
    known, collects = "pandas" in modules, gc.isenabled()
    modules.setdefault("pandas", None)  # to Python, it is not installed
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if collects:
            gc.enable()
        if not known:
            modules.pop("pandas", None)


def begin(device: str, jobs: int | None, cache: Path | None, **how: Any) -> None:
    """Start a GPU's processes, which takes less time than to import the body of a command that opens it.

    Args:
        device: as the command line names it.
        jobs: compiling processes; None for one a core.
        cache: folder of the cubin cache; None for none.
        how: as :func:`tuner.devices.started.begin` takes it.
    """
    kind, _, number = device.partition(":")
    if kind in ("auto", "cuda") and (not number or number.isdecimal()):
        started = importlib.import_module("tuner.devices.started")
        started.begin(int(number or 0), jobs, cache, **how)


def part(record: DataclassInstance, of: type[Record], **more: Any) -> Record:
    """Return a record of another type from the fields of the same names, and more; the others have their defaults."""
    names = {field.name for field in dataclasses.fields(record)}
    same = {one.name: getattr(record, one.name) for one in dataclasses.fields(of) if one.name in names}
    return of(**same | more)


ALL = "all options are shown"


def all_help(ctx: click.Context) -> bool:
    """Return whether ``--help-all`` asks for the help."""
    return ALL in ctx.meta


def help_all(of: str) -> click.Option:
    """Return the option ``--help-all``, which shows all commands or options."""

    def show(ctx: click.Context, _: click.Parameter, given: bool) -> None:
        if given and not ctx.resilient_parsing:
            ctx.meta[ALL] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help=f"Show all {of} and exit.",
    )


class Once(click.Command):
    """A command that refuses an option that is given twice where one value counts; click takes the last.

    Args:
        name: of the command.
        sections: as :func:`command` takes them; without them help lists all options.
        attributes: of :class:`click.Command`.
    """

    def __init__(
        self, name: str | None, sections: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(name, **attributes)
        self.sections = {title: names.split() for title, names in (sections or {}).items()}
        if sections:
            self.params.append(help_all("options"))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by sections, of which ``--help`` shows the first."""
        if not self.sections:
            super().format_options(ctx, formatter)
            return
        left = {one.name or "": one for one in self.get_params(ctx) if isinstance(one, click.Option)}
        sections = {
            title: [left.pop(name) for name in names if name in left]
            for title, names in self.sections.items()
        }
        first = next(iter(sections))
        sections[first] += left.values()
        for title in sections if all_help(ctx) else [first]:
            with formatter.section(title):
                formatter.write_dl(filter(None, (one.get_help_record(ctx) for one in sections[title])))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            UsageError: an option of one value is given more than once, or an option with its opposite, or a value is an
                empty text, as that of a variable that is not set: no filter, and the working folder as a path.
        """
        values, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in given:
            value = values[parameter.name or ""]
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                name = parameter.opts[-1] if isinstance(parameter, click.Option) else "an argument"
                raise UsageError(f"{name} is an empty text", "leave it out, or give a value")
        for parameter, times in Counter(given).items():
            if times == 1 or not isinstance(parameter, click.Option) or parameter.multiple:
                continue
            if {*parameter.opts} & {*args} and {*parameter.secondary_opts} & {*args}:
                both = f"{parameter.opts[-1]} and {parameter.secondary_opts[-1]}"
                raise UsageError(f"{both} exclude each other", "give one of them")
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


OTHER_FORM = "kernel_in_other_form"
"""Under which click's parser keeps the kernel that ``--kernel`` names."""


def kernel_argument(*, required: bool = False) -> Any:
    """Return the field that the argument ``KERNEL`` sets, for which ``--kernel`` stands as well."""
    metavar = "KERNEL" if required else "[KERNEL]"
    otherwise: dict[str, Any] = {"required": True} if required else {"required": False, "default": ""}

    def parameters(name: str) -> list[click.Parameter]:
        completed: dict[str, Any] = {"shell_complete": kernels_like}
        hidden = click.Option(["-k", "--kernel", OTHER_FORM], hidden=True, expose_value=False, **completed)
        return [_Kernel([name], metavar=metavar, **completed, **otherwise), hidden]

    return declared(parameters, otherwise)


def kernels_like(ctx: click.Context, parameter: click.Parameter | None, begun: str) -> list[CompletionItem]:  # noqa: ARG001
    """Return the built-in kernels that a shell completes a word to, or files where there is none."""
    fitting = [CompletionItem(name) for name in paths.builtin_kernels() if name.startswith(begun)]
    return fitting or [CompletionItem(begun, type="file")]


class _Kernel(click.Argument):
    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> Any:
        """Return the kernel, whichever form names it.

        Raises:
            UsageError: both forms do.
        """
        name = str(self.name)
        shown, hidden = opts.get(name), opts.get(OTHER_FORM)
        if isinstance(hidden, str):  # click's mark for what is not given differs between its versions
            if isinstance(shown, str):
                raise UsageError(f"the kernel is named twice: {shown!r} and {hidden!r}", "name it once")
            opts = {**opts, name: hidden}
        return super().consume_value(ctx, opts)
