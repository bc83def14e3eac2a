"""``tune best``: the best configuration of each problem, GPU and way of timing."""

from __future__ import annotations

from pathlib import Path

from tuner.cli.filters import Listing, named_kernel, origin, report_damage
from tuner.cli.stored_winners import measured_else_replayed, no_winner
from tuner.database.database import Database
from tuner.database.records import Winner
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


def best(db: Path, replayed: bool, full: bool, listing: Listing) -> None:
    """Print the best configurations that fit; those of recordings where nothing that fits was measured.

    Raises:
        DatabaseError: none fits.
    """
    measured = listing.filters(replayed=None if replayed else False)
    named = named_kernel(listing.kernel)
    with Database.open(db, write=False) as database:
        winners, note = measured_else_replayed(lambda fit: best_winners(database, fit, named), measured)
        missing = None if winners.rows else no_winner(database, measured, listing.kernel)
    if note:
        tables.say(note)
    report_damage(winners.damaged)
    if listing.as_json or listing.as_csv:
        records = (
            {**tables.winner_record(winner.stored), "kernel_state": winner.state.name.lower()}
            for winner in winners.rows
        )
        listing.show_records(records, (*tables.WINNER_COLUMNS, "kernel_state"))
    elif winners.rows:
        texts = StoredTexts(full=full)
        rows = [_row(winner, texts) for winner in winners.rows]
        head = head_of("configuration", full=full)
        heads = [head if name == "configuration" else name for name in WINNER_HEADS]
        tables.show(heads, rows, right=("time", "rate", "of peak", "trial"), stacked=(head, *STACKED))
        if not (first := winners.rows[0].stored).run.foreign:
            limits = "what limits it" if len(rows) == 1 else "what limits the first"
            show_next({f"tune explain --trial {first.winner.trial_id}{database_option(db)}": limits})
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
