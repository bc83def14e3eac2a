"""The command line: a command's options are imported when it is named, its body when it runs."""

from __future__ import annotations

import contextlib
import difflib
import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem

from tuner.cli.loader import all_help, help_all, kernels_like
from tuner.core import paths, signals
from tuner.core.errors import TunerError, UsageError
from tuner.core.version import __version__
from tuner.report.layout import message_lines
from tuner.report.terminal import escaped_output

GROUPS = {
    "Tune": {
        "run": ("run:run", "Tune a kernel: tune KERNEL, such as tune gemm."),
        "init": ("inspection:init", "Write the file of a kernel of your own, from its .cu file."),
        "check": ("inspection:check", "Find mistakes in a kernel of your own, without a GPU."),
    },
    "See what was found": {
        "best": ("results:best", "Show the best configuration of each problem."),
        "trials": ("results:trials", "List trials, or show one in full: tune trials 12."),
        "report": ("results:report", "Write an HTML report with figures."),
        "bench": ("studies:bench", "Time winners again, beside libraries or your own code. [GPU]"),
    },
    "Understand a kernel": {
        "show": ("inspection:show", "Show a kernel's parameters; without a name, list the kernels."),
        "explain": ("inspection:explain", "Explain what limits a configuration, without running it."),
        "ladder": ("studies:ladder", "Show what each optimisation step gains, over a sweep of sizes."),
        "render": ("inspection:render", "Print the CUDA source and the launches of a configuration."),
    },
    "Use winners": {
        "bundle": ("winners:bundle", "Write winners as a folder that C++ and Python programs call."),
        "export": ("winners:export", "Write winners as a C++ header, or trials for other tools."),
    },
    "This machine": {
        "doctor": ("inspection:doctor", "Show what this machine has, what is missing, and how to get it."),
    },
}
"""The commands of the first help, by what people want: module and function in ``commands/``, and what each does."""
ADVANCED = {
    "Advanced": {
        "judge": ("studies:judge", "Judge a kernel that somebody else wrote: right, and faster? [GPU]"),
        "ablate": ("studies:ablate", "Measure what each parameter of a configuration gains. [GPU]"),
        "profile": ("inspection:profile", "Profile a configuration with Nsight Compute. [GPU]"),
        "sanitize": ("inspection:sanitize", "Run Compute Sanitizer on configurations. [GPU]"),
        "portfolio": ("studies:portfolio", "Choose a few configurations for all sizes. [GPU]"),
        "cluster": ("cluster:cluster", "Tune on the GPUs of many hosts."),
        "db": ("results:db", "Check, merge, import or back up the database; delete a run."),
    }
}
"""Those that ``tune --help-all`` lists as well."""
FORMER = {
    "table": "best --agreement",
    "query": "trials",
    "trial": "trials",
    "list": "show",
    "import": "db import",
}
"""Names of before, which no help lists, and what each is now."""
COMMANDS = {name: one for group in (GROUPS | ADVANCED).values() for name, one in group.items()}
READER_LEFT = 141
"""Exit status when the reader of the output has closed it (``tune trials | head``): that of a program ended by SIGPIPE,
as shells and other tools expect it."""


@contextlib.contextmanager
def _reader_may_leave() -> Iterator[None]:
    """End with :data:`READER_LEFT` where the output is closed: click would call it a failure."""
    try:
        yield
    except BrokenPipeError:
        _give_up_output()
        raise click.exceptions.Exit(READER_LEFT) from None


class _LazyGroup(click.Group):
    """A group that imports a command's options when it is named. Options without a command belong to ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] == "help":
            args = [*args[1:], "--help"]
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help", "--help-all", "--version"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name][0].split(":")
        return getattr(importlib.import_module(f"tuner.cli.commands.{module}"), name)  # type: ignore[no-any-return]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word in FORMER:
            args = [*FORMER[word].split(), *args[1:]]
        elif word not in COMMANDS:
            kernels = paths.builtin_kernels()
            if not (word in kernels or word.endswith((".toml", ".cu")) or "/" in word):
                close = difflib.get_close_matches(word, [*COMMANDS, *FORMER, *kernels], n=1)
                if Path(f"{word}.toml").is_file():
                    close = [f"{word}.toml"]
                guess = f"did you mean {FORMER.get(close[0], close[0])}? " if close else ""
                raise UsageError(f"{word!r} is neither a command nor a kernel", f"{guess}see tune --help")
            args = ["run", *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        kernels = kernels_like(ctx, None, incomplete) if incomplete else []
        return [*super().shell_complete(ctx, incomplete), *kernels]

    def make_context(self, *given: Any, **named: Any) -> click.Context:
        with _reader_may_leave():  # --version and --help are printed here
            return super().make_context(*given, **named)

    def invoke(self, ctx: click.Context) -> Any:
        with _reader_may_leave():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown, width = GROUPS | ADVANCED if all_help(ctx) else GROUPS, max(map(len, COMMANDS))
        for title, commands in shown.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])
        formatter.write_paragraph()
        with formatter.indentation():
            if shown is GROUPS:
                names = ", ".join(sorted(name for group in ADVANCED.values() for name in group))
                formatter.write_text(f"Advanced, with --help-all: {names}.")
            formatter.write_text("[GPU] needs an NVIDIA GPU. Without one, run and ladder replay a recording.")


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with:  tune gemm --trials 200",
    params=[help_all("commands")],
)
@click.version_option(__version__, prog_name="tune")
def cli() -> None:
    """Auto-tune CUDA kernels, and verify every result.

    Each configuration is rendered, compiled, verified against a reference, timed, and stored in SQLite. The best few
    are timed alternately with the default, the winner again in a new process.
    """


_OUTPUT = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF)
"""Errors of a file that is open already: the standard output."""


def _one_line(error: click.ClickException) -> str:
    context: click.Context | None = getattr(error, "ctx", None)
    takes = {spelling for one in context.command.params for spelling in one.opts} if context else set()
    if isinstance(error, click.NoSuchOption) and "--size" in takes and len(error.option_name) == len("--n"):
        name = error.option_name.lstrip("-")
        return (
            f"{error.format_message().partition(' Did')[0].rstrip('.')}; a size is given as --size {name}=N"
        )
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        nearest = difflib.get_close_matches(error.option_name, error.possibilities, 1, 0.0)
        error = click.NoSuchOption(error.option_name, possibilities=nearest, ctx=error.ctx)
    text = " ".join(error.format_message().split()).rstrip(".")
    if text.startswith("Got unexpected extra argument") and "--kernel" in takes:
        text += "; name one kernel; for several run the command for each"
    return text if context is None else f"{text}; see {context.command_path} --help"


def _give_up_output() -> None:
    """Discard the rest of the standard output's buffer: Python would try to write it again at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):  # no real file, so nothing can go wrong later
        pass


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal's signature
    """Take a signal where no run is under way: end at once, but remove what was half written."""
    if number == signal.SIGHUP:
        signals.leave_terminal()
    raise KeyboardInterrupt


def _indented(text: str) -> str:
    """Return text of several lines so that none can be taken for a message of its own."""
    return text.replace("\n", "\n  ")


def _say(text: str) -> None:
    for line in message_lines(text):
        click.echo(line, err=True)


def _status_of(arguments: list[str] | None) -> Any:
    """Run the command line, print its error, and return its exit status."""
    try:
        with signals.handled(_end):
            status = cli.main(args=arguments, prog_name="tune", standalone_mode=False)
            sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        with contextlib.suppress(OSError):  # of a terminal that is gone
            click.echo("tune: stopped", err=True)
        status = 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = error.exit_code
    except click.ClickException as error:
        _say(f"tune: {_one_line(error)}")
        status = error.exit_code
    except TunerError as error:
        _say(f"tune: {_indented(str(error))}")
        status = error.exit_code
    except (MemoryError, RuntimeError) as error:
        lack = "threads" if "start new thread" in str(error) else "memory"
        if lack == "memory" and not isinstance(error, MemoryError):
            raise
        click.echo(f"tune: no {lack} left; see `ulimit -a`, and what else runs here", err=True)
        status = 1
    except OSError as error:
        _give_up_output()
        where = f"{error.filename}: " if error.filename else ""
        if not where and error.errno in _OUTPUT:
            where = "cannot write: "
        click.echo(f"tune: {_indented(f'{where}{error.strerror or error}')}", err=True)
        status = 1
    return status


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; an error is one line on the standard error and an exit status."""
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by the parent process: the output is discarded
            setattr(sys, stream, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
    with escaped_output():
        status = _status_of(arguments)
    if arguments is None:
        signals.ignore()  # the program ends, and with its own exit status
        gc.freeze()  # else Python looks for garbage once more at its end: 0.2 s
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
