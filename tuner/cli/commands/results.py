"""Options of the commands that show what was found: best, trials, report; and of ``tune db``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tuner.cli import options as shared
from tuner.cli.commands.winners import import_results
from tuner.cli.loader import Once, argument, command, flag, option, texts
from tuner.cli.options import Listing, StoredArguments
from tuner.core import paths
from tuner.core.errors import UsageError


@dataclass(frozen=True)
class BestArguments(Listing):
    """Show the best configuration of each problem, GPU, mode and regime.

    Where several runs tuned the same problem, with other seeds or on other GPUs of a model, --agreement shows the
    configuration that most of them chose, unless another one is clearly faster; how many chose it, how far its times
    are apart, and how much longer it took than other winners in the same race.

    \b
    Examples:
      tune best gemm
      tune best --gpu h200 --dtype float16 --json
      tune best gemm --agreement
    """

    full: bool = flag("--full", help_="Show all columns, and all parameters of a configuration.")
    replayed: bool = flag("--replayed", help_="Include winners of replays, where others were measured.")
    agreement: bool = flag("--agreement", help_="Show how many runs and GPUs agree on each winner.")


best = command(BestArguments, "best:best")


@dataclass(frozen=True)
class QueryArguments(Listing):
    """List trials; tune trials N shows one in full.

    \b
    Examples:
      tune trials gemm --status ok --sort time --limit 10
      tune trials --size m=4096 --since 2d --limit 0 --csv > trials.csv
      tune trials gemm --columns trial,time,registers,block_m,stages
      tune trials --sql "SELECT status, count(*) FROM trials GROUP BY status"
      tune trials 12
    """

    statuses: tuple[str, ...] = texts(
        "--status",
        "STATUS",
        "Only this status, or failed: all but ok and slow; repeat for several.",
    )
    sort: str = option(
        "--sort",
        default="-id",
        show_default="newest first",
        metavar="KEY",
        help="time, number, id, created, kernel, variant, status, tflops, bandwidth, speed, registers; "
        "-time: descending.",
    )
    limit: int = shared.shown("--limit", 50, "At most this many rows; 0 for all.", shared.Count(min=0))
    text: str | None = option("--sql", metavar="TEXT", help="One SELECT statement instead of filters.")
    columns: str = shared.stored_filter(
        "--columns",
        "NAME,...",
        "Columns of table or CSV: trial, problem, configuration, time, interval, ..., any of --csv, any parameter.",
    )
    full: bool = flag("--full", help_="Show all columns, and all parameters of a configuration.")
    replayed: bool | None = option(
        "--replayed/--measured", default=None, help="Only replayed trials, or only measured ones."
    )


@dataclass(frozen=True)
class TrialArguments:
    """Show trial N in full; tune trials lists the numbers.

    Grid, block and shared memory come from the kernel's file. Where the file is gone or has changed, the output says
    so.

    \b
    Examples:
      tune trials 12
      tune trials 12 --source --launch 1 > kernel.cu
      tune trials 12 --again
    """

    number: int = argument(type=shared.Row(min=1), metavar="N")
    db: Path = shared.database()
    as_json: bool = flag("--json", help_="Print JSON, with sources and samples.")
    only_source: bool = flag("--source", help_="Print only the rendered source.")
    launch: int | None = option(
        "--launch", type=shared.Count(min=1), metavar="I", help="With --source: only of launch I."
    )
    only_log: bool = flag("--log", help_="Print only the compiler's log.")
    again: bool = flag("--again", help_="Run it again, alone, and compare.")
    device: str = shared.stored_filter(
        "--device", "DEVICE", "Where --again runs it; by default cuda:0, or the trial's recording."
    )


trial = command(TrialArguments, "trial:trial")


class _Trials(Once):
    """``tune trials``, of which ``tune trials N`` has the options of one trial, perhaps before the number."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        numbers = [word.removeprefix("#").isdecimal() for word in args]
        if any(numbers):
            with (
                contextlib.nullcontext() if numbers[0] else contextlib.suppress(click.UsageError, UsageError)
            ):
                return trial.make_context(info_name, [*args], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


trials = command(QueryArguments, "query:query", "trials", kind=_Trials)


@dataclass(frozen=True, kw_only=True)
class ReportArguments(StoredArguments):
    """Write an HTML report with figures and tables: one file that works offline.

    Without --run, --all and filters, it shows the latest run. With a filter it shows the newest run of each problem
    that fits. Runs of a part of the space (--variant, --fix, tune ladder) count only if there is no other.

    \b
    Examples:
      tune report
      tune report --run 3f2a --force
      tune report gemm --gpu h200 -o gemm.html
      tune report --all -o all.html --force
    """

    run_id: str = shared.stored_filter("--run", "ID", "This run, by its id or the start of it.")
    everything: bool = flag("--all", help_="Every problem and GPU of the database.")
    output: Path = shared.output("FILE.html", default=Path("report.html"))
    force: bool = flag("--force", help_="Overwrite FILE.html if it exists.")


report = command(ReportArguments, "report:report")


@click.group()
def db() -> None:
    """Maintain the database: check, merge, import, back up, delete a run."""


@dataclass(frozen=True)
class DbCheckArguments:
    """Check the file's structure and the digest of every row. Exit status 1 if something is damaged."""

    db: Path = shared.database()


db.add_command(command(DbCheckArguments, "db:check", short_help="Check the structure and every row."))


@dataclass(frozen=True)
class MergeArguments:
    """Add the runs and benchmarks of the database files OTHER; none is added twice.

    Damaged rows are reported and left out. Then differences between the databases are reported: in the GPUs' times of
    the reference kernel, in driver and compiler, and in the text of a kernel.
    """

    others: tuple[Path, ...] = argument(metavar="OTHER...", nargs=-1, type=shared.FILE)
    db: Path = option(
        "--into",
        "--db",
        type=shared.FILE,
        default=paths.DATABASE,
        help="Database file to which they are added.",
        show_default=True,
    )


merge_text = "Add the runs of other files, and compare their GPUs."
db.add_command(command(MergeArguments, "db:merge", short_help=merge_text))


@dataclass(frozen=True)
class BackupArguments:
    """Write a consistent copy to the new file FILE, also while tuners write."""

    file: Path = argument(type=shared.FILE)
    db: Path = shared.database()


db.add_command(command(BackupArguments, "db:backup", short_help="Write a consistent copy."))


@dataclass(frozen=True)
class DeleteArguments:
    """Delete a run with its trials and winner; RUN is its id, or at least the first four characters of it.

    tune trials --json prints the ids.
    """

    run_id: str = argument(metavar="RUN")
    yes: bool = flag("--yes", help_="Do not ask.")
    db: Path = shared.database()


db.add_command(command(DeleteArguments, "db:delete", short_help="Delete a run and its trials."))
db.add_command(import_results)
