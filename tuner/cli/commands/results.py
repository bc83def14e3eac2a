"""Options of the commands that show what was found: best, table, query, trial, report; and of ``tune db``."""

from __future__ import annotations

from pathlib import Path

import click

from tuner.cli.loader import Once, runs
from tuner.cli.options import (
    FILE,
    Count,
    database_option,
    filter_options,
    full_option,
    kind_filter_options,
    output_option,
)
from tuner.core import paths

or_replayed = click.option(
    "--replayed", is_flag=True, help="Include winners of replays, where others were measured."
)


@click.command(cls=Once)
@database_option
@filter_options
@full_option
@or_replayed
@runs("tuner.cli.stored_winners:best")
def best() -> None:
    """Show the best configuration of each problem, GPU, mode and regime.

    \b
    Examples:
      tune best --kernel gemm
      tune best --gpu h200 --dtype float16 --json
    """


@click.command(cls=Once)
@database_option
@filter_options
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table.")
@full_option
@click.option(
    "--again",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.csv",
    help="Also write the problems on which at most half of the runs agree, for tune run --problems.",
)
@or_replayed
@runs("tuner.cli.table:table")
def table() -> None:
    """Show the winners, and how many runs and cards agree on each.

    Several runs, with other seeds or on other cards of a model, may have tuned the same problem. The table shows the
    configuration that most cards and runs chose, unless another one is clearly faster. It also shows how many chose it,
    how far its times are apart, and how much longer it took than other winners in the same race.

    \b
    Examples:
      tune table --kernel gemm
      tune table --gpu h200 --markdown > winners.md
      tune table --kernel gemm --again again.csv
    """


@click.command(cls=Once)
@database_option
@filter_options
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Only this status, or failed: all but ok and slow; repeat for several.",
)
@click.option(
    "--sort",
    default="-id",
    show_default="newest first",
    metavar="KEY",
    help="time, number, id, created, kernel, variant, status, tflops, bandwidth, speed, registers; -time: descending.",
)
@click.option(
    "--limit",
    type=Count(min=0),
    default=50,
    show_default=True,
    help="At most this many rows; 0 for all.",
)
@click.option("--sql", "text", metavar="TEXT", help="One SELECT statement instead of filters.")
@click.option(
    "--columns",
    default="",
    metavar="NAME,...",
    help="Columns of table or CSV: trial, problem, configuration, time, interval, ..., any of --csv, any parameter.",
)
@full_option
@click.option(
    "--replayed/--measured", "replayed", default=None, help="Only replayed trials, or only measured ones."
)
@runs("tuner.cli.query:query")
def query() -> None:
    """List trials.

    \b
    Examples:
      tune query --kernel gemm --status ok --sort time --limit 10
      tune query --size m=4096 --since 2d --limit 0 --csv > trials.csv
      tune query --kernel gemm --columns trial,time,registers,block_m,stages
      tune query --sql "SELECT status, count(*) FROM trials GROUP BY status"
    """


@click.command(cls=Once)
@click.argument("number", type=Count(min=1), metavar="N")
@database_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with sources and samples.")
@click.option("--source", "only_source", is_flag=True, help="Print only the rendered source.")
@click.option(
    "--launch",
    "launch",
    type=Count(min=1),
    metavar="I",
    help="With --source: only of launch I.",
)
@click.option(
    "--source-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the rendered source of each launch to a file in DIR, a new folder.",
)
@click.option("--log", "only_log", is_flag=True, help="Print only the compiler's log.")
@click.option("--again", is_flag=True, help="Run it again, alone, and compare.")
@click.option(
    "--device",
    default="",
    metavar="DEVICE",
    help="Where --again runs it; by default cuda:0, or the trial's recording.",
)
@runs("tuner.cli.trial:trial")
def trial() -> None:
    """Show trial N in full; tune query lists the numbers.

    Grid, block and shared memory come from the kernel's file. Where the file is gone or has changed, the output says
    so.

    \b
    Examples:
      tune trial 12
      tune trial 12 --source --launch 1 > kernel.cu
      tune trial 12 --source-dir sources
      tune trial 12 --again
    """


@click.command(cls=Once)
@database_option
@click.option("--run", "run_id", default="", metavar="ID", help="This run, by its id or the start of it.")
@kind_filter_options
@click.option("--all", "everything", is_flag=True, help="Every problem and GPU of the database.")
@output_option("FILE.html")
@click.option("--force", is_flag=True, help="Overwrite FILE.html if it exists.")
@runs("tuner.cli.report:report")
def report() -> None:
    """Write an HTML report with figures and tables: one file, which needs no network.

    Without --run, --all and filters, it shows the latest run. With a filter it shows the newest run of each problem
    that fits. Runs of a part of the space (--variant, --fix, --rules, tune ladder) count only if there is no other.

    \b
    Examples:
      tune report -o report.html
      tune report --run 3f2a -o report.html
      tune report --kernel gemm --gpu h200 -o gemm.html
      tune report --all -o all.html --force
    """


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
