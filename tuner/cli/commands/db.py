"""Options of ``tune db``."""

from __future__ import annotations

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import FILE, database_option
from tuner.core import paths


@click.group()
def db() -> None:
    """Maintain the database: check, merge, back up, delete a run."""


@db.command(cls=Once, short_help="Check the structure and every row.")
@database_option
@runs("tuner.cli.db:check")
def check() -> None:
    """Check the file's structure and the digest of every row. Exit status 1 if something is damaged."""


@db.command(cls=Once, short_help="Add the runs of other files, and compare their cards.")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True, type=FILE)
@click.option(
    "--into",
    "--db",
    "db",
    type=FILE,
    default=paths.DATABASE,
    show_default=True,
    help="Database file to which they are added.",
)
@runs("tuner.cli.db:merge")
def merge() -> None:
    """Add the runs and benchmarks of the database files OTHER; none is added twice.

    Damaged rows are reported and left out. Then differences between the databases are reported: in the cards' times of
    the reference kernel and of default configurations, in driver and compiler, and in the text of a kernel.
    """


@db.command(cls=Once, short_help="Write a consistent copy.")
@click.argument("file", type=FILE)
@database_option
@runs("tuner.cli.db:backup")
def backup() -> None:
    """Write a consistent copy to the new file FILE, also while tuners write."""


@db.command(cls=Once, short_help="Delete a run and its trials.")
@click.argument("run_id", metavar="RUN")
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_option
@runs("tuner.cli.db:delete")
def delete() -> None:
    """Delete a run with its trials and winner; RUN is its id, or at least the first four characters of it.

    tune query --json prints the ids.
    """
