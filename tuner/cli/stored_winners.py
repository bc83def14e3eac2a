"""Which stored winners a command takes where one is asked for, and what it says where there is none; ``tune best``."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tuner.cli.commands.results import BestArguments, TableArguments
from tuner.cli.filters import (
    filters_of,
    kernel_filters,
    named_kernel,
    origin,
    refuse_unknown,
    report_damage,
    show_records,
)
from tuner.core import paths
from tuner.core.errors import DatabaseError, TunerError, suggestion
from tuner.database.database import Database
from tuner.database.records import Filters, Record, Selection, Winner
from tuner.devices.replay import as_options
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, kernel_of_run
from tuner.report import tables
from tuner.report.configurations import StoredTexts, head_of
from tuner.report.next_steps import database_option, show_next
from tuner.winners.current import BestWinner, KernelState, best_winners

WINNER_HEADS = (
    *("kernel", "problem", "gpu", "configuration", "time", "rate", "of peak", "timed", "versus default"),
    *("warm", "confirmed", "trial", "source"),
)
STACKED = ("confirmed", "warm", "timed", "source", "versus default", "gpu", "of peak", "rate")
"""Columns that move below their row on a narrow terminal, the first one first."""
ONLY_REPLAYED = "nothing that fits was measured: this is from replays of recordings"


def measured_else_replayed(
    read: Callable[[Filters], Selection[Record]], filters: Filters
) -> tuple[Selection[Record], str]:
    """Return the measured winners that fit, or if there is none the replayed ones and a note that says so.

    Args:
        read: returns what fits.
        filters: replayed winners fit at once unless ``replayed`` is False.
    """
    selection = read(filters)
    if selection.rows or filters.replayed is not False:
        return selection, ""
    selection = read(replace(filters, replayed=None))
    return selection, ONLY_REPLAYED if selection.rows else ""


def listed_winners(
    asked: BestArguments | TableArguments, read: Callable[[Database, Filters], Selection[Record]]
) -> tuple[Selection[Record], DatabaseError | None]:
    """Return the winners that a command lists, and the error if there is none; say what is left out.

    Args:
        asked: for which; of replays where nothing that fits was measured.
        read: returns what fits.
    """
    filters = filters_of(asked, replayed=None if asked.replayed else False)
    with Database.open(asked.db, write=False) as database:
        winners, note = measured_else_replayed(lambda fit: read(database, fit), filters)
        missing = None if winners.rows else no_winner(database, filters, asked.kernel)
    if note:
        tables.say(note)
    report_damage(winners.damaged)
    return winners, missing


def no_winner(database: Database, filters: Filters, kernel: str | None) -> DatabaseError:
    """Return the error that no winner fits, with what to do: there may be some that a filter leaves out.

    Args:
        database: has none.
        filters: that none fits.
        kernel: as the command line names it.

    Raises:
        UsageError: the filters name what there is nowhere.
    """
    refuse_unknown(database, filters)
    db = database_option(database.path)
    is_file = named_kernel(kernel) is not None
    stored = {winner.stored.run.problem.kernel for winner in best_winners(database, Filters()).rows}
    if replace(filters, replayed=None) != Filters() and stored and (not kernel or kernel in stored):
        remedy = "leave out a filter"
    elif resuming := _resuming(database, kernel or ""):
        remedy = f"finish the interrupted run: {resuming}{db}"
    elif not kernel or is_file or kernel in builtin_kernels():
        remedy = f"find one with: tune --kernel {shlex.quote(kernel or 'gemm')}{db}"
    else:
        remedy = suggestion(kernel, sorted({*builtin_kernels(), *stored}))
    return DatabaseError(f"no winner in {database.path} fits", remedy)


def _resuming(database: Database, kernel: str) -> str:
    """Return the command that goes on with the newest unfinished run, of a kernel if it is named, or an empty text."""
    for run_id in database.runs_that_fit(Filters(**kernel_filters(kernel))):
        with suppress(TunerError):  # a damaged run, or one whose kernel is gone
            run = database.run(run_id)
            spec = kernel_of_run(run)
            same_text = KernelIdentity(spec).same_text
            last = database.latest_unfinished(run.problem, run.device, same_text)
            if last is not None and same_text(last):
                builtin = spec.file.parent == paths.search_spaces()
                words = ["tune --kernel", spec.name if builtin else shlex.quote(str(spec.file))]
                default = spec.problem()
                words += [] if run.problem == default else [as_options(spec, default, run.problem)]
                words += ["--rules", ",".join(last.options.rules)] if last.options.rules else []
                words += [] if run.device == "cuda:0" else ["--device", shlex.quote(run.device)]
                return " ".join([*words, "--resume"])
    return ""


def best(asked: BestArguments) -> None:
    """Print the best configurations that fit; those of recordings where nothing that fits was measured.

    Raises:
        DatabaseError: none fits.
    """
    named = named_kernel(asked.kernel)
    winners, missing = listed_winners(asked, lambda database, fit: best_winners(database, fit, named))
    if asked.as_json or asked.as_csv:
        records = (
            {**tables.winner_record(winner.stored), "kernel_state": winner.state.name.lower()}
            for winner in winners.rows
        )
        show_records(asked, records, (*tables.WINNER_COLUMNS, "kernel_state"))
    elif winners.rows:
        texts = StoredTexts(full=asked.full)
        rows = [_row(winner, texts) for winner in winners.rows]
        head = head_of("configuration", full=asked.full)
        heads = [head if name == "configuration" else name for name in WINNER_HEADS]
        tables.show(heads, rows, right=("time", "rate", "of peak", "trial"), stacked=(head, *STACKED))
        if not (first := winners.rows[0].stored).run.foreign:
            limits = "what limits it" if len(rows) == 1 else "what limits the first"
            show_next({f"tune explain --trial {first.winner.trial_id}{database_option(asked.db)}": limits})
    if missing:
        raise missing


def _row(winner: BestWinner, texts: StoredTexts) -> tuple[object, ...]:
    stored = winner.stored
    return (
        stored.run.problem.kernel,
        tables.problem_text(stored.run.problem),
        stored.run.gpu.name,
        texts.of(stored.run).cell(stored.winner.configuration),
        tables.duration(stored.winner.time_ns),
        tables.throughput(stored.metrics),
        tables.percent(stored.metrics.speed_of_light),
        stored.run.conditions,
        tables.speedup(*_versus_default(stored.winner)),
        tables.warm_text(stored.winner.warm),
        _confirmation(stored.winner, stored.run.replayed, winner.state),
        stored.winner.trial_id,
        origin(stored.run),
    )


def _versus_default(winner: Winner) -> tuple[float | None, float | None, float | None, str]:
    return winner.ratio, winner.ratio_low, winner.ratio_high, winner.verdict


def _confirmation(winner: Winner, replayed: bool, standing: KernelState) -> str:
    if standing is KernelState.CHANGED:
        return f"no: {standing}"
    if replayed:
        return "recorded samples only, not confirmed"
    if not winner.exportable:
        return f"no: {winner.reason}" if winner.reason else "no"
    again = f"{tables.duration(winner.confirmed_ns)} in a fresh process" if winner.confirmed_ns else "yes"
    return again + (
        ", right at its edges" if winner.edges_verified else ", at no edge-case size: none suits it"
    )
