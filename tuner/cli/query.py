"""``tune trials``: trials by filters or SQL."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from tuner.cli.commands.results import QueryArguments
from tuner.cli.filters import (
    flat,
    flat_names,
    listing_filters,
    nested_names,
    origin,
    report_damage,
)
from tuner.cli.loader import given_options
from tuner.cli.options import Listing
from tuner.core.errors import UsageError, suggestion
from tuner.core.model import Status
from tuner.database.database import Database
from tuner.database.records import Filters, StoredTrial
from tuner.report import tables
from tuner.report.configurations import StoredTexts
from tuner.winners.wanted import refuse_unknown

Cell = Callable[[StoredTrial, StoredTexts], object]
COLUMNS: dict[str, tuple[str, Cell]] = {
    "trial": ("trial", lambda stored, _: tables.row_number(stored.trial.id)),
    "kernel": ("kernel", lambda stored, _: stored.run.problem.kernel),
    "problem": ("problem", lambda stored, _: tables.problem_text(stored.run.problem)),
    "gpu": ("gpu", lambda stored, _: stored.run.gpu.name),
    "configuration": (
        "configuration",
        lambda stored, texts: texts.of(stored.run).cell(stored.trial.configuration),
    ),
    "status": ("status", lambda stored, _: stored.trial.status),
    "time": ("time", lambda stored, _: tables.duration(stored.trial.time_ns)),
    "interval": (
        "95 % interval",
        lambda stored, _: tables.interval(stored.trial.ci_low_ns, stored.trial.ci_high_ns),
    ),
    "rate": ("rate", lambda stored, _: tables.throughput(stored.metrics)),
    "peak": ("of peak", lambda stored, _: tables.percent(stored.metrics.of_peak)),
    "timed": ("timed", lambda stored, _: stored.run.conditions),
    "source": ("source", lambda stored, _: origin(stored.run)),
}
"""What a table shows with ``--full``, in this order; ``--columns`` may name these, and those of CSV."""
SHOWN = ("trial", "problem", "status", "time", "of peak")
"""What it shows otherwise, with the configuration."""
DIFFERING = ("gpu", "timed", "source")
"""Columns that a table shows as well where the trials differ in them."""
IN_CSV = {"trial": "id", "time": "time_ns", "peak": "speed_of_light"}
"""Columns of a table that CSV has as bare numbers, by another name."""
HELD = 1000
"""Trials that are held to learn which parameters they have; of more, which may be millions, the database is asked."""
RIGHT = ("trial", "time", "rate", "of peak")
FAILED = "failed"
"""For ``--status``: all but those that can be the best."""
STACKED = ("timed", "source", "95 % interval", "problem", "gpu", "kernel", "rate")
"""Columns that move below their row, the first one first; of the configuration a line of its own shows most."""


def query(asked: QueryArguments) -> None:
    """List the trials that fit, or the rows of an SQL statement."""
    for status in asked.statuses:
        if status not in (*Status, FAILED):
            raise UsageError(f"there is no status {status!r}", suggestion(status, [*Status, FAILED]))
    failed = tuple(status for status in Status if not status.ranked) if FAILED in asked.statuses else ()
    filters = listing_filters(asked, statuses=(*asked.statuses, *failed), replayed=asked.replayed)
    if asked.columns and asked.as_json:
        raise UsageError("--columns chooses those of a table or of CSV", "leave it out: --json has all")
    if asked.kernel.lower().startswith(("select ", "with ")):
        raise UsageError("SQL is no kernel's name", f'write --sql "{asked.kernel}"')
    with Database.open(asked.db, write=False) as database:
        if asked.text is not None:
            if filters != Filters() or given_options("sort", "limit", "columns"):
                raise UsageError(
                    "--sql and filters, --sort, --limit or --columns exclude each other",
                    "write all of it into the SQL",
                )
            _print_sql(asked, *database.sql(asked.text))
            return
        damaged: list[str] = []
        trials = database.each_trial(damaged, filters, asked.sort, asked.limit + 1 if asked.limit else 0)
        first = list(itertools.islice(trials, 1))
        if not first:
            refuse_unknown(database, filters)
        rest = itertools.islice(trials, asked.limit - 1) if asked.limit else trials
        fitting: Iterable[StoredTrial] = itertools.chain(first, rest)
        if asked.as_json:
            tables.show_records(map(tables.trial_record, fitting))
        else:
            nested: Mapping[str, Sequence[str]] = {}
            if asked.columns or asked.as_csv:
                if 0 < asked.limit <= HELD:
                    fitting = list(fitting)
                    nested = nested_names(map(tables.trial_record, fitting))
                else:
                    nested = database.nested_names(filters)
            names = flat_names(tables.TRIAL_COLUMNS, nested)
            chosen = _chosen(asked.columns, names, as_csv=asked.as_csv)
            if asked.as_csv:
                tables.show_csv(chosen, _rows(chosen, set(names), fitting, StoredTexts(full=True)))
            else:
                _show(chosen, fitting, full=asked.full, some=not (asked.full or asked.columns))
        cut = asked.limit and not given_options("limit") and next(trials, None) is not None
    report_damage(damaged, asked.db)
    if cut:
        tables.say(f"more than {asked.limit} trials fit; --limit 0 lists all")
    if not first:
        click.echo("no trial fits", err=True)


def _chosen(text: str, names: Sequence[str], *, as_csv: bool) -> list[str]:
    """Return the columns that ``--columns`` names, by their full names.

    Raises:
        UsageError: there is no such column.
    """
    if not text:
        return list(names if as_csv else COLUMNS)
    short = {name.rpartition(".")[2]: name for name in reversed(names)}  # m for sizes.m
    short |= {name: name for name in (*names, *COLUMNS)} | (IN_CSV if as_csv else {})
    chosen = []
    for part in text.split(","):
        name = part.strip()
        if name not in short:
            remedy = suggestion(name, dict.fromkeys((*COLUMNS, *(one.rpartition(".")[2] for one in names))))
            raise UsageError(f"--columns: there is no column {name!r}", remedy)
        chosen.append(short[name])
    return list(dict.fromkeys(chosen))


def _rows(
    chosen: Sequence[str], raw: set[str], trials: Iterable[StoredTrial], texts: StoredTexts
) -> Iterator[list[object]]:
    """Yield each trial's values: those in ``raw`` as CSV has them, the others as a table does."""
    for stored in trials:
        record = flat(tables.trial_record(stored)) if not raw.isdisjoint(chosen) else {}
        yield [record.get(name) if name in raw else COLUMNS[name][1](stored, texts) for name in chosen]


def _show(chosen: Sequence[str], trials: Iterable[StoredTrial], *, full: bool, some: bool) -> None:
    texts = StoredTexts(full=full)
    head = f"configuration{texts.note}"
    heads = [COLUMNS[name][0] if name in COLUMNS else name.rpartition(".")[2] for name in chosen]
    heads = [name if heads.count(head) > 1 else head for name, head in zip(chosen, heads, strict=True)]
    heads = [head if name == "configuration" else text for name, text in zip(chosen, heads, strict=True)]
    rows = list(_rows(chosen, set(chosen) - COLUMNS.keys(), trials, texts))
    if some:
        named = [dict(zip(heads, row, strict=True)) for row in rows]
        joined = [row | {"problem": f"{row['kernel']} {row['problem']}"} for row in named]
        told = tables.telling(joined, [head, *SHOWN], DIFFERING)
        heads, rows = list(told[0]) if told else heads, [list(row.values()) for row in told]
    numbers = set(heads)
    for row in rows:
        numbers -= {head for head, cell in zip(heads, row, strict=True) if isinstance(cell, (str, bool))}
    tables.show(heads, rows, right={*RIGHT, *numbers}, stacked=(head, *STACKED))


def _print_sql(listing: Listing, columns: list[str], rows: list[tuple[Any, ...]]) -> None:
    if listing.as_json:
        if twice := [name for i, name in enumerate(columns) if name in columns[:i]]:
            raise UsageError(
                f"--sql gives two columns {twice[0]!r}", "name one of them otherwise: ... AS NAME"
            )
        tables.show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif listing.as_csv:
        tables.show_csv(columns, rows)
    else:
        tables.show(
            columns, [[f"<{len(v)} bytes>" if isinstance(v, bytes) else v for v in row] for row in rows]
        )
