"""``tune query``: trials by filters or SQL."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from tuner.cli.filters import origin, parse_filters, print_records, refuse_unknown, report_damage
from tuner.cli.resume import given_options
from tuner.database.database import Database
from tuner.database.records import Filters, StoredTrial
from tuner.errors import UsageError, suggestion
from tuner.model import Status
from tuner.report import tables

TRIAL_HEADS = (
    *("trial", "kernel", "problem", "gpu", "configuration", "status", "time", "95% interval", "rate"),
    *("of peak", "timed", "source"),
)


def query(
    db: Path,
    statuses: tuple[str, ...],
    sort: str,
    limit: int,
    text: str | None,
    replayed: bool | None,
    **options: Any,
) -> None:
    """List the trials that fit, or the rows of an SQL statement."""
    for status in statuses:
        if status not in list(Status):
            raise UsageError(f"there is no status {status!r}", suggestion(status, list(Status)))
    filters = parse_filters(options, statuses=statuses, replayed=replayed)
    with Database.open(db, write=False) as database:
        if text is not None:
            if filters != Filters() or given_options({"sort": "--sort", "limit": "--limit"}):
                raise UsageError(
                    "--sql and filters, --sort or --limit exclude each other", "write all of it into the SQL"
                )
            _print_sql(options, *database.sql(text))
            return
        damaged: list[str] = []
        trials = database.each_trial(damaged, filters, sort, limit)
        first = list(itertools.islice(trials, 1))
        if not first:
            refuse_unknown(database, filters)
        fitting = itertools.chain(first, trials)
        if options["as_json"] or options["as_csv"]:
            print_records(options, map(tables.trial_record, fitting), tables.TRIAL_COLUMNS)
        else:
            tables.show(TRIAL_HEADS, map(_trial_row, fitting), right=("trial", "time", "rate", "of peak"))
    report_damage(damaged)
    if not first:
        click.echo("no trial fits", err=True)


def _trial_row(stored: StoredTrial) -> tuple[object, ...]:
    trial, run = stored.trial, stored.run
    return (
        trial.id,
        run.problem.kernel,
        tables.problem_text(run.problem),
        run.gpu.name,
        trial.configuration,
        trial.status,
        tables.duration(trial.time_ns),
        tables.interval(trial.ci_low_ns, trial.ci_high_ns),
        tables.throughput(stored.metrics),
        tables.percent(stored.metrics.speed_of_light),
        run.conditions,
        origin(run.replayed),
    )


def _print_sql(options: dict[str, Any], columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    if options["as_json"]:
        if twice := [name for i, name in enumerate(columns) if name in columns[:i]]:
            raise UsageError(
                f"--sql gives two columns {twice[0]!r}", "name one of them otherwise: ... AS NAME"
            )
        tables.show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif options["as_csv"]:
        tables.show_csv(columns, rows)
    else:
        tables.show(
            columns, [[f"<{len(v)} bytes>" if isinstance(v, bytes) else v for v in row] for row in rows]
        )
