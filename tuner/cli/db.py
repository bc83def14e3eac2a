"""``tune db``: look after the file."""

from __future__ import annotations

import os
import sys

import click

from tuner.cli.commands.results import BackupArguments, DbCheckArguments, DeleteArguments, MergeArguments
from tuner.core.errors import DatabaseError, UsageError
from tuner.core.files import refuse_missing_parent
from tuner.database.database import Database
from tuner.database.opening import is_ours
from tuner.report.tables import counted, show_line
from tuner.report.terminal import printable
from tuner.winners.agreement import compare_cards

ADDED = "name the files whose runs are to be added"
NAMED_ROWS = 10
"""Rows of a file that are named if they cannot be merged: a damaged file has thousands."""


def check(asked: DbCheckArguments) -> None:
    """Check the file's structure and the digest of every row."""
    with Database.open(asked.db, write=False) as database:
        result = database.check()
    if result.rows:  # else the file is too damaged to be counted
        show_line(", ".join(counted(count, table.removesuffix("s")) for table, count in result.rows.items()))
    for problem in result.problems:
        show_line(problem)
    if count := len(result.problems):
        raise DatabaseError(
            f"{counted(count, 'problem')} in {asked.db}",
            "best and export leave damaged rows out; restore a backup",
        )
    click.echo("no problems")


def merge(asked: MergeArguments) -> None:
    """Add the runs and benchmarks of other database files, and say what about the cards does not fit together."""
    for other in asked.others:  # before DB is made: a mistyped OTHER must leave no empty database
        if not other.is_file():
            raise UsageError(f"there is no database {other}", ADDED)
        if os.access(other, os.R_OK) and not is_ours(other):
            raise UsageError(f"{other} is not a database of kernel-tune", ADDED)
        with Database.open(other, write=False):
            pass
    refused = 0
    with Database.open(asked.db) as database:
        for other in asked.others:
            result = database.merge(other)
            which = f"{other}: " if len(asked.others) > 1 else ""
            added = (("run", result.runs), ("trial", result.trials), ("winner", result.winners))
            counts = ", ".join(
                counted(count, noun) for noun, count in (*added, ("benchmark", result.benchmarks))
            )
            show_line(f"{which}added {counts}")
            for line in result.refused[:NAMED_ROWS]:
                show_line(f"not taken: {line}", err=True)
            if (more := len(result.refused) - NAMED_ROWS) > 0:
                show_line(f"not taken: {counted(more, 'more row')} of {other}", err=True)
            refused += len(result.refused)
        for line in compare_cards(database):
            show_line(line)
    if refused:
        raise DatabaseError(
            f"{refused} rows of {', '.join(map(str, asked.others))} were not taken", "the others were"
        )


def backup(asked: BackupArguments) -> None:
    """Write a consistent copy to the new file FILE, also while tuners write."""
    refuse_missing_parent(asked.file)
    with Database.open(asked.db, write=False) as database:
        database.backup(asked.file)
    show_line(f"wrote {asked.file}")


MIN_PREFIX = 4
"""Characters of a run's id that are enough to delete it."""


def _run_text(database: Database, run_id: str) -> str:
    try:
        problem = printable(database.run(run_id).problem)
    except DatabaseError:
        problem = "damaged"
    return f"{problem}, {counted(database.tables['trials'].count_where('run_id = ?', [run_id]), 'trial')}"


def delete(asked: DeleteArguments) -> None:
    """Delete a run with its trials and winner; RUN is its id or the start of it."""
    if len(asked.run_id) < MIN_PREFIX:
        raise UsageError(
            f"{asked.run_id!r} is too short", f"give at least {MIN_PREFIX} characters of the run's id"
        )
    with Database.open(asked.db, create=False) as database:
        full_id = database.run_id(asked.run_id)
        if not asked.yes:
            try:
                sure = click.confirm(
                    f"Delete run {full_id} ({_run_text(database, full_id)}) of {asked.db} permanently?"
                )
            except click.Abort:
                if sys.stdin.isatty():
                    raise
                click.echo()
                raise UsageError("there is no answer", "add --yes") from None
            if not sure:
                raise click.Abort
        click.echo(f"deleted run {full_id} with {counted(database.delete_run(full_id), 'trial')}")
