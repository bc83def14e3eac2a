"""What to do next: commands, for people at a terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.core import paths
from tuner.report.layout import wrapped
from tuner.report.terminal import printable

if TYPE_CHECKING:
    from tuner.tuning.state import Result


def show_next(steps: Mapping[str, str]) -> None:
    """Print commands and what each is for, where the output goes to a terminal."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return
    for number, (command, use) in enumerate(steps.items()):
        first = "  " + ("" if number else "next").ljust(9) + "  "
        for line in wrapped(f"{printable(command)}  # {use}", first):  # a shell takes the whole line
            click.echo(line, err=True)


def database_option(database: Path) -> str:
    """Return what follows a command that reads a database; nothing for the default one."""
    return "" if database == paths.DATABASE else f" --db {shlex.quote(str(database))}"


def kernel_argument(name: str, file: Path) -> str:
    """Return what names a kernel in a command: its name if it is a built-in one, else its file."""
    return name if file.parent == paths.search_spaces() else str(file)


def next_steps(results: Sequence[Result], database: Path) -> dict[str, str]:
    """Return the commands that make use of the winners and what each is for; none without a winner."""
    db = database_option(database)
    won = [result for result in results if result.finish is not None]
    if len(won) > 1:
        return {f"tune best{db}": "all winners", f"tune report{db} --all": "figures of all"}
    return _of_one(won[0], db) if won else {}


def _of_one(result: Result, db: str) -> dict[str, str]:
    run, finish = result.state.run, result.finish
    assert finish is not None
    steps = {} if run.foreign else {f"tune explain --trial {finish.winner.id}{db}": "what limits it"}
    steps[f"tune report{db}"] = "figures of this run"
    if finish.exportable and not run.replayed:
        kernel = shlex.quote(kernel_argument(run.problem.kernel, Path(run.kernel_file)))
        folder = shlex.quote(f"{run.problem.kernel}_bundle")
        steps[f"tune bundle {kernel}{db} -o {folder}"] = "call it from C++ and Python"
    return steps
