"""``tune query``, ``best``, ``trial`` and ``db``: what is in the database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource

from tuner.cli.options import MOST, Command, Option, database_option
from tuner.cli.problems import whole_number
from tuner.conditions import Mode, Regime
from tuner.database.database import Database, Filters, Found, Winner
from tuner.database.records import SORTS, StoredTrial, StoredWinner
from tuner.errors import DatabaseError, UsageError, suggestion
from tuner.kernel.load import builtin_kernels
from tuner.model import Status
from tuner.report import tables
from tuner.report import trial_details as details

_SINCE = re.compile(r"(\d{1,6})([mhdw])")
NEWEST = 5
"""So many runs are named where none is the one asked for: there may be thousands."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def mode_option(command: Command) -> Command:
    """Add ``--mode``."""
    choice = click.Choice([str(mode) for mode in Mode])
    return click.option("--mode", type=choice, help="Only times of this mode: what the caches held.")(command)


def regime_option(command: Command, default: Regime | None = None) -> Command:
    """Add ``--regime``."""
    return click.option(
        "--regime",
        type=click.Choice([str(regime) for regime in Regime]),
        default=default and str(default),
        show_default=default is not None,
        help="Only times of this regime: with pauses for the GPU, or without.",
    )(command)


def _filter_options(command: Command) -> Command:
    options: list[Option] = [
        click.option("--kernel", default="", metavar="NAME", help="Only this kernel."),
        click.option("--gpu", default="", metavar="TEXT", help="Only GPUs whose name contains this."),
        click.option("--dtype", default="", metavar="DTYPE", help="Only problems of this dtype."),
        click.option(
            "--size", "sizes", multiple=True, metavar="NAME=N", help="Only this size; may be repeated."
        ),
        click.option("--variant", default="", metavar="NAME", help="Only this variant."),
        mode_option,
        regime_option,
        click.option("--since", default="", metavar="WHEN", help="Not older than this: 2d, 3h, 2026-11-01."),
        click.option(
            "--run", "run_id", default="", metavar="ID", help="Only this run; the start of its id will do."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def parse_since(text: str, now: datetime | None = None) -> str:
    """Turn ``2d`` or a date into UTC text that compares with ``created_at``.

    Raises:
        UsageError: neither a length of time nor a date.
    """
    if not text:
        return ""
    if match := _SINCE.fullmatch(text):
        try:
            moment = (now or datetime.now(UTC)) - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            return ""
        return moment.strftime("%Y-%m-%dT%H:%M:%S")
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"--since {text!r} is not a time", "for example 2d, 3h or 2026-11-01") from None
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def parse_sizes(items: Sequence[str]) -> dict[str, int]:
    """Turn ``m=4096`` or ``m=2**12`` into a dictionary; several may be joined by commas.

    Raises:
        UsageError: not a name and a whole number.
    """
    sizes = {}
    for joined in items:
        names = set()
        for item in joined.split(","):
            name, _, text = item.partition("=")
            name = name.strip()
            if not re.fullmatch(r"[A-Za-z_]\w{0,63}", name, re.ASCII) or not text.strip():
                raise UsageError(f"--size {item!r} is not a size", "for example --size m=4096")
            if name in names:
                raise UsageError(f"--size {joined!r} gives {name} twice", "give it once")
            names.add(name)
            value = whole_number(name, text.strip())
            if not 0 < value < 2**63:
                raise UsageError(f"--size {item!r} is not a size", "it is a whole number from 1 up")
            sizes[name] = value
    return sizes


def _filters(options: dict[str, Any], **more: Any) -> Filters:
    if options["as_json"] and options["as_csv"]:
        raise UsageError("--json and --csv exclude each other", "give one of them")
    plain = ("kernel", "gpu", "dtype", "variant", "mode", "regime")
    named: dict[str, Any] = {name: options[name] or "" for name in plain}
    return Filters(
        sizes=parse_sizes(options["sizes"]),
        since=parse_since(options["since"]),
        run=options["run_id"],
        **named,
        **more,
    )


def _report_damage(found: Found[Any]) -> None:
    if found.damaged:
        more = f" and {len(found.damaged) - 1} more" if len(found.damaged) > 1 else ""
        click.echo(f"left out: {tables.printable(found.damaged[0])}{more}; run: tune db check", err=True)


def _print_records(options: dict[str, Any], records: list[dict[str, Any]], columns: Sequence[str]) -> None:
    if options["as_json"]:
        tables.show_json(records)
    else:
        tables.show_csv(columns, [[record[name] for name in columns] for record in records])


TRIAL_HEADS = (
    *("trial", "kernel", "problem", "gpu", "configuration", "status", "time", "95% interval", "rate"),
    *("of peak", "timed", "source"),
)
WINNER_HEADS = (
    *("kernel", "problem", "gpu", "configuration", "time", "rate", "of peak", "timed", "versus default"),
    *("confirmed", "trial", "source"),
)


@click.command()
@database_option
@_filter_options
@click.option(
    "--status", "statuses", multiple=True, metavar="STATUS", help="Only this status; may be repeated."
)
@click.option(
    "--sort", default="id", show_default=True, metavar="KEY", help=f"{', '.join(SORTS)}; -time and so on."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST),
    default=50,
    show_default=True,
    help="Rows at most; 0 for all.",
)
@click.option(
    "--sql", "text", metavar="TEXT", help="One SELECT statement instead of filters; it can only read."
)
@click.option(
    "--replayed/--measured", "replayed", default=None, help="Only trials of recordings, or none of them."
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
    """List trials.

    \b
    Examples:
      tune query --kernel gemm --status ok --sort time --limit 10
      tune query --size m=4096 --since 2d --csv > trials.csv
      tune query --sql "SELECT status, count(*) FROM trials GROUP BY status"
    """
    for status in statuses:
        if status not in list(Status):
            raise UsageError(f"there is no status {status!r}", suggestion(status, list(Status)))
    filters = _filters(options, statuses=statuses, replayed=replayed)
    with Database.open(db, write=False) as database:
        if text is not None:
            given = click.get_current_context().get_parameter_source
            if filters != Filters() or ParameterSource.COMMANDLINE in (given("sort"), given("limit")):
                raise UsageError(
                    "--sql and filters, --sort or --limit exclude each other", "write all of it into the SQL"
                )
            _print_sql(options, *database.sql(text))
            return
        found = database.query(filters, sort, limit)
        missing = "" if found.rows else _what_is_missing(database, filters)
    _report_damage(found)
    if not found.rows:
        click.echo(f"no trial fits{missing and ': '}{tables.printable(missing)}", err=True)
    if options["as_json"] or options["as_csv"]:
        _print_records(options, [tables.trial_record(stored) for stored in found.rows], tables.TRIAL_COLUMNS)
    else:
        rows = [_trial_row(stored) for stored in found.rows]
        tables.show(TRIAL_HEADS, rows, right=("trial", "time", "rate", "of peak"))


def _what_is_missing(database: Database, filters: Filters) -> str:
    """Say which name that was asked for is nowhere in the database, and what is there; nothing if all of them are."""
    asked: dict[Literal["kernel", "variant"], str] = {"kernel": filters.kernel, "variant": filters.variant}
    for what, name in asked.items():
        known = database.names(what) if name else []
        if known and name not in known:
            return f"there is no {what} {name!r} in {database.path}; {suggestion(name, known)}"
    ids = database.run_ids() if filters.run else []
    if ids and not any(run.startswith(filters.run) for run in ids):
        newest = ", ".join(run[:8] for run in ids[:NEWEST])
        return f"there is no run {filters.run!r} in {database.path}; the newest of {len(ids)}: {newest}"
    return ""


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
        _source_of(run.replayed),
    )


def _source_of(replayed: bool) -> str:
    return "replayed" if replayed else "measured"


def _print_sql(options: dict[str, Any], columns: list[str], found: list[tuple[Any, ...]]) -> None:
    if options["as_json"]:
        if twice := [name for i, name in enumerate(columns) if name in columns[:i]]:
            raise UsageError(
                f"--sql gives two columns {twice[0]!r}", "name one of them otherwise: ... AS NAME"
            )
        tables.show_json([dict(zip(columns, row, strict=True)) for row in found])
    elif options["as_csv"]:
        tables.show_csv(columns, found)
    else:
        tables.show(
            columns, [[f"<{len(v)} bytes>" if isinstance(v, bytes) else v for v in row] for row in found]
        )


@click.command()
@database_option
@_filter_options
@click.option("--replayed", is_flag=True, help="Also winners that come from a recording.")
def best(db: Path, replayed: bool, **options: Any) -> None:
    """Show the best configuration of each problem, GPU and way of timing.

    \b
    Examples:
      tune best --kernel gemm
      tune best --gpu h200 --dtype float16 --json
    """
    filters = _filters(options, replayed=None if replayed else False)
    with Database.open(db, write=False) as database:
        found = database.best(filters)
        known = found if found.rows else database.best()
    _report_damage(found)
    if options["as_json"] or options["as_csv"]:
        _print_records(
            options, [tables.winner_record(stored) for stored in found.rows], tables.WINNER_COLUMNS
        )
    elif found.rows:
        rows = [
            (
                stored.run.problem.kernel,
                tables.problem_text(stored.run.problem),
                stored.run.gpu.name,
                stored.winner.configuration,
                tables.duration(stored.winner.time_ns),
                tables.throughput(stored.metrics),
                tables.percent(stored.metrics.speed_of_light),
                stored.run.conditions,
                tables.speedup(*_versus_default(stored.winner)),
                _confirmation(stored.winner, stored.run.replayed),
                stored.winner.trial_id,
                _source_of(stored.run.replayed),
            )
            for stored in found.rows
        ]
        tables.show(WINNER_HEADS, rows, right=("time", "rate", "of peak", "trial"))
    if not found.rows:
        raise DatabaseError(f"no winner in {db} fits", _how_to_find_one(options["kernel"], known, replayed))


def _how_to_find_one(kernel: str | None, known: Found[StoredWinner], replayed: bool) -> str:
    """Say what to do where nothing fits: of the kernel there may be winners that a filter leaves out."""
    stored = {winner.run.problem.kernel for winner in known.rows}
    more = "" if replayed else ", or add --replayed"
    if stored and (not kernel or kernel in stored):
        return f"leave out a filter{more}"
    if not kernel or kernel in builtin_kernels():
        return f"find one with: tune --kernel {kernel or 'gemm'}{more}"
    return suggestion(kernel, sorted({*builtin_kernels(), *stored}))


def _versus_default(winner: Winner) -> tuple[float | None, float | None, float | None, str]:
    return winner.ratio, winner.ratio_low, winner.ratio_high, winner.verdict


def _confirmation(winner: Winner, replayed: bool) -> str:
    if replayed:
        return "recorded samples only, not confirmed"
    if not winner.exportable:
        return f"no: {winner.reason}" if winner.reason else "no"
    again = f"{tables.duration(winner.confirmed_ns)} in a fresh process" if winner.confirmed_ns else "yes"
    return again + (
        ", right at its edges" if winner.edges_verified else ", at no awkward size: none suits it"
    )


@click.command()
@click.argument("number", type=click.IntRange(min=1, max=MOST), metavar="N")
@database_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with sources and samples.")
@click.option("--source", "only_source", is_flag=True, help="Print only the rendered source.")
@click.option("--log", "only_log", is_flag=True, help="Print only the compiler's log.")
@click.option("--again", is_flag=True, help="Run it alone on the GPU, and compare.")
@click.option(
    "--device", default="", metavar="DEVICE", help="Where --again runs it; cuda:0, or the trial's recording."
)
def trial(
    number: int, db: Path, as_json: bool, only_source: bool, only_log: bool, again: bool, device: str
) -> None:
    """Show everything about trial N; tune query lists their numbers.

    \b
    Examples:
      tune trial 12
      tune trial 12 --source > kernel.cu
      tune trial 12 --again
    """
    if as_json + only_source + only_log > 1:
        raise UsageError("--json, --source and --log exclude each other", "give one of them")
    with Database.open(db, write=False) as database:
        stored = database.trial(number)
        if again:
            from tuner.bench.rerun import rerun

            device = device or (stored.run.device if stored.run.replayed else "cuda:0")
            new = rerun(database, number, device)
            details.show_again(stored.trial, new, as_json=as_json)
            return
    if as_json:
        samples = {"samples_ns": stored.trial.samples_ns, "sources": stored.trial.sources}
        verification = dict(vars(stored.trial.verification)) if stored.trial.verification else None
        if verification and stored.run.replayed:  # a recording says whether it was right, not by how much
            verification.update(worst_ratio=None, norm_error=None)
        calibration = stored.run.calibration.to_json() if stored.run.calibration else None
        more = {
            "verification": verification,
            "calibration": calibration,
            "compile_log": stored.trial.compile_log,
            **samples,
        }
        seconds = {name: getattr(stored.trial, name) for name in ("compile_s", "measure_s")}
        tables.show_json({**tables.trial_record(stored), **seconds, **more})
    elif only_source:
        for source in stored.trial.sources:
            click.echo(tables.printable_lines(source))
    elif only_log and not stored.trial.compile_log.strip():
        click.echo(f"tune: the compiler said nothing about trial {number}", err=True)
    elif only_log:
        click.echo(tables.printable_lines(stored.trial.compile_log))
    else:
        details.show_trial(stored)
