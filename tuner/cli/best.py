"""``tune best``: the best configuration of each problem, GPU and way of timing."""

from __future__ import annotations

from collections.abc import Sequence
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
from tuner.winners.current import BestWinner, KernelState, best_winners

WINNER_HEADS = (
    *("kernel", "problem", "gpu", "configuration", "time", "rate", "of peak", "timed", "versus default"),
    *("warm", "confirmed", "trial", "source"),
)


def best(db: Path, replayed: bool, **options: Any) -> None:
    """Print the best configurations that fit.

    Raises:
        DatabaseError: none fits.
    """
    filters = parse_filters(options, replayed=None if replayed else False)
    with Database.open(db, write=False) as database:
        winners = best_winners(database, filters, named_kernel(options["kernel"]))
        every = winners.rows if winners.rows else best_winners(database, Filters()).rows
        if not winners.rows:
            refuse_unknown(database, filters)
    report_damage(winners.damaged)
    if options["as_json"] or options["as_csv"]:
        print_records(
            options,
            [
                {**tables.winner_record(winner.stored), "kernel_state": winner.state.name.lower()}
                for winner in winners.rows
            ],
            (*tables.WINNER_COLUMNS, "kernel_state"),
        )
    elif winners.rows:
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
                tables.warm_text(stored.winner.warm),
                _confirmation(stored.winner, stored.run.replayed, winner.state),
                stored.winner.trial_id,
                origin(stored.run.replayed),
            )
            for winner in winners.rows
            for stored in (winner.stored,)
        ]
        tables.show(WINNER_HEADS, rows, right=("time", "rate", "of peak", "trial"))
    if not winners.rows:
        raise DatabaseError(f"no winner in {db} fits", _how_to_find_one(options["kernel"], every, replayed))


def _how_to_find_one(kernel: str | None, every: Sequence[BestWinner], replayed: bool) -> str:
    """Say what to do where nothing fits: of the kernel there may be winners that a filter leaves out."""
    stored = {winner.stored.run.problem.kernel for winner in every}
    more = "" if replayed else ", or add --replayed"
    if stored and (not kernel or kernel in stored):
        return f"leave out a filter{more}"
    if not kernel or kernel in builtin_kernels():
        return f"find one with: tune --kernel {kernel or 'gemm'}{more}"
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
