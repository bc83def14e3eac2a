"""The command line. Commands are imported when used, so that ``tune --help`` answers at once."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from tuner import __version__
from tuner.errors import TunerError

COMMANDS = {
    "run": ("tuner.cli.run:run", "Tune a kernel (the default: tune --kernel gemm)."),
    "bench": (
        "tuner.cli.bench:bench",
        "Time the best again, beside the default, libraries, your own kernel.",
    ),
    "ladder": (
        "tuner.cli.ladder:ladder",
        "Show what each step of a kernel's optimisation is worth, over sizes.",
    ),
    "ablate": ("tuner.cli.ablate:ablate", "Show what each choice of a configuration is worth."),
    "explain": ("tuner.cli.explain:explain", "Say why a configuration is as fast as it is."),
    "profile": ("tuner.cli.profile:profile", "Profile one configuration with Nsight Compute."),
    "sanitize": ("tuner.cli.sanitize:sanitize", "Run the Compute Sanitizer's tools over configurations."),
    "best": ("tuner.cli.data:best", "Show the best configurations known."),
    "query": ("tuner.cli.data:query", "List trials: filter, sort, JSON, CSV, SQL."),
    "trial": ("tuner.cli.data:trial", "Show everything about one trial; measure it again."),
    "export": (
        "tuner.cli.export:export",
        "Write the best as a C++ header, or a problem's trials in another tool's format.",
    ),
    "import": ("tuner.cli.import_results:import_results", "Take in what another tool has recorded."),
    "list": ("tuner.cli.inspect:list_kernels", "List the built-in kernels."),
    "show": ("tuner.cli.inspect:show", "Show a kernel's problem, variants, parameters and constraints."),
    "db": ("tuner.cli.db:db", "Check, merge, back up or trim the database."),
    "doctor": ("tuner.cli.inspect:doctor", "Say what this machine has, what is missing and how to get it."),
}


READER_LEFT = 141
"""Exit status when whoever read the output has seen enough (``tune query | head``): that of a program which SIGPIPE
ended, as shells and other tools know it."""


class _LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is used. Options without a command belong to ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help", "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click would call it a failure
            _give_up_output()
            raise click.exceptions.Exit(READER_LEFT) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with:  tune --kernel gemm --trials 200",
)
@click.version_option(__version__, prog_name="tune")
def cli() -> None:
    """Auto-tune generated CUDA kernels, and get only results that you can trust.

    Each configuration is rendered, compiled, verified against a reference, timed, and kept in SQLite. The best
    are raced in turn against each other and the default, and the winner is confirmed in a fresh process.
    """


_OUTPUT = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""What goes wrong with a file that is open already: the standard output."""


def _one_line(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return text if context is None else f"{text}; see {context.command_path} --help"


def _give_up_output() -> None:
    """Let what is left in the standard output's buffer go nowhere: Python would try again at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # no real file, so nothing can go wrong later
        pass


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; an error is one line on stderr and an exit status."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by who started us: what is said goes nowhere
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
    try:
        status = cli.main(args=arguments, prog_name="tune", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("tune: stopped", err=True)
        status = 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = error.exit_code
    except click.ClickException as error:
        click.echo(f"tune: {_one_line(error)}", err=True)
        status = error.exit_code
    except TunerError as error:
        click.echo(f"tune: {error}", err=True)
        status = error.exit_code
    except OSError as error:
        _give_up_output()
        place = (
            f"{error.filename}: " if error.filename else "cannot write: " if error.errno in _OUTPUT else ""
        )
        click.echo(f"tune: {place}{error.strerror or error}", err=True)
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
