"""``tune best``: the best configuration of each problem, GPU and way of timing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.cli.filters import (
    named_kernel,
    origin,
    parse_filters,
    print_records,
    refuse_unknown,
    report_damage,
)
from tuner.database.database import Database
from tuner.database.records import Filters, Winner
from tuner.errors import DatabaseError, suggestion
from tuner.kernel.load import builtin_kernels
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


def best(db: Path, replayed: bool, full: bool, **options: Any) -> None:
    """Print the best configurations that fit; those of recordings where nothing that fits was measured.

    Raises:
        DatabaseError: none fits.
    """
    measured = parse_filters(options, replayed=None if replayed else False)
    named = named_kernel(options["kernel"])
    with Database.open(db, write=False) as database:
        winners = best_winners(database, measured, named)
        if not winners.rows:
            winners = best_winners(database, replace(measured, replayed=None), named)
            if winners.rows:
                tables.say("nothing that fits was measured: these are replays of recordings")
        every = winners.rows if winners.rows else best_winners(database, Filters()).rows
        if not winners.rows:
            refuse_unknown(database, measured)
    report_damage(winners.damaged)
    if options["as_json"] or options["as_csv"]:
        records = (
            {**tables.winner_record(winner.stored), "kernel_state": winner.state.name.lower()}
            for winner in winners.rows
        )
        print_records(options, records, (*tables.WINNER_COLUMNS, "kernel_state"))
    elif winners.rows:
        texts = StoredTexts(full=full)
        rows = [_row(winner, texts) for winner in winners.rows]
        head = head_of("configuration", full=full)
        heads = [head if name == "configuration" else name for name in WINNER_HEADS]
        tables.show(heads, rows, right=("time", "rate", "of peak", "trial"), stacked=(head, *STACKED))
        if not (first := winners.rows[0].stored).run.foreign:
            limits = "what limits it" if len(rows) == 1 else "what limits the first"
            show_next({f"tune explain --trial {first.winner.trial_id}{database_option(db)}": limits})
    if not winners.rows:
        given = measured != parse_filters(
            dict.fromkeys(options, "") | {"sizes": ()}, replayed=measured.replayed
        )
        raise DatabaseError(
            f"no winner in {db} fits",
            _how_to_find_one(options["kernel"], every, is_file=named is not None, filtered=given),
        )


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


def _how_to_find_one(
    kernel: str | None, every: Sequence[BestWinner], *, is_file: bool, filtered: bool
) -> str:
    """Say what to do where nothing fits: of the kernel there may be winners that a filter leaves out."""
    stored = {winner.stored.run.problem.kernel for winner in every}
    if filtered and stored and (not kernel or kernel in stored):
        return "leave out a filter"
    if not kernel or is_file or kernel in builtin_kernels():
        return f"find one with: tune --kernel {kernel or 'gemm'}"
    return suggestion(kernel, sorted({*builtin_kernels(), *stored}))


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
