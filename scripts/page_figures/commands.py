"""The commands' reference, from what ``--help`` says."""

from __future__ import annotations

import inspect
import re

import click

from scripts.page_figures.evidence import table
from tuner.cli import FORMER, cli
from tuner.cli.commands.results import trial


def _found(path: tuple[str, ...]) -> tuple[click.Command, click.Context]:
    command: click.Command = cli
    context = click.Context(cli, info_name="tune")
    for name in path:
        assert isinstance(command, click.Group)
        inner = trial if name == "trial" else command.get_command(context, name)
        assert inner is not None, f"no command is called {name}"
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return command, context


def _paragraphs(command: click.Command) -> tuple[list[str], list[str]]:
    """Return what a command does, paragraph by paragraph, and its examples, line by line."""
    whole = "\n\n".join(inspect.cleandoc(part) for part in (command.help or "", command.epilog or ""))
    before, _, rest = whole.partition("\b\nExamples:\n")
    examples, _, after = rest.partition("\n\n")
    said = [" ".join(part.split()) for part in f"{before}\n\n{after}".split("\n\n") if part.strip()]
    return said, [line.strip() for line in examples.splitlines() if line.strip()]


def _row(option: click.Option, context: click.Context) -> list[str]:
    record = option.get_help_record(context)
    names = [*option.opts, *option.secondary_opts]
    metavar = "" if option.is_flag else option.make_metavar(context)
    if isinstance(option.type, click.Choice):
        metavar = metavar[1:-1]
    shown = ", ".join(f"`{name}`" for name in names) + (f" `{metavar}`" if metavar else "")
    meaning = " ".join((record[1] if record else option.help or "").split())
    # The bounds that only keep a number within 32 bits are of no use to a reader.
    meaning = re.sub(r"(?:; )?\d+<=x<=2147483647|; \]", lambda found: "]" if "]" in found[0] else "", meaning)
    return [cell.replace("|", "\\|") for cell in (shown, meaning.replace("[]", "").strip())]


def _options(command: click.Command) -> list[click.Option]:
    return [
        p for p in command.params if isinstance(p, click.Option) and not (p.hidden or p.name == "help_all")
    ]


def reference(*path: str) -> str:
    """Return a command's text, its examples and its options, as Markdown; those of ``tune run`` stand there alone."""
    command, context = _found(path)
    said, examples = _paragraphs(command)
    arguments = [
        piece
        for parameter in command.params
        if isinstance(parameter, click.Argument)
        for piece in parameter.get_usage_pieces(context)
    ]
    options, of_run = _options(command), _options(_found(("run",))[0])
    names = {option.name for option in options} if path == ("cluster", "run") else set()
    shared = [option for option in of_run if option.name in names]
    own = [option for option in options if option.name not in {one.name for one in shared}]
    name = FORMER.get(path[0], " ".join(path))
    parts = [f"`tune {' '.join([name, *arguments])} [OPTIONS]`"] if arguments else []
    parts += said
    if examples:
        parts.append("\n".join(["```sh", *examples, "```"]))
    parts.append(table([["option", "meaning"], *(_row(option, context) for option in own)]))
    if shared:
        others = ", ".join(f"`{option.opts[-1]}`" for option in of_run if option not in shared)
        parts.append(f"And the options of [`tune run`](#tune-run), without {others}.")
    return "\n\n".join(parts)


def overview() -> str:
    """Return the table of all commands, each with its first sentence."""

    def rows(command: click.Command, context: click.Context, path: list[str]) -> list[list[str]]:
        if isinstance(command, click.Group):
            return [
                row
                for name in command.list_commands(context)
                if (inner := command.get_command(context, name)) is not None and not inner.hidden
                for row in rows(inner, click.Context(inner, info_name=name, parent=context), [*path, name])
            ]
        name = " ".join(path)
        return [[f"[`{name}`](#{name.replace(' ', '-')})", _paragraphs(command)[0][0]]]

    return table([["command", "does"], *rows(cli, click.Context(cli, info_name="tune"), ["tune"])])
