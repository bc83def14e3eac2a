"""``tune best``: stored winners, and how far runs agree; which of them a command takes at all."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tuner.cli.commands.results import BestArguments
from tuner.cli.filters import listing_filters, origin, report_damage, show_records
from tuner.core.errors import DatabaseError, TunerError, suggestion
from tuner.database.database import Database
from tuner.database.records import Filters, Record, Selection, StoredWinner
from tuner.devices.replay import as_options
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, kernel_of_run
from tuner.report import tables
from tuner.report.configurations import StoredTexts, confirmation_text
from tuner.report.next_steps import database_option, kernel_argument, show_next
from tuner.winners.agreement import AgreedWinner, WinningConfiguration, agreed_winners, cards_of
from tuner.winners.current import BestWinner, Kernels, KernelState, best_winners, kernel_filters, named_kernel
from tuner.winners.wanted import measured_else_replayed, refuse_unknown

OF_AGREEMENT = (
    *("runs", "runs_agreeing", "cards", "cards_agreeing", "seeds", "seeds_agreeing"),
    *("spread", "raced_behind", "behind", "runs_of_other_texts", "others"),
)


def best(asked: BestArguments) -> None:
    """Print the winners that fit; those of recordings where nothing that fits was measured.

    Raises:
        DatabaseError: none fits.
        UsageError: two formats.
    """
    if asked.agreement:
        _agreement(asked)
    else:
        _best(asked)


def _agreement(asked: BestArguments) -> None:
    kernels = Kernels(named_kernel(asked.kernel))
    agreed, missing = listed_winners(asked, partial(agreed_winners, kernels=kernels))
    if asked.as_json or asked.as_csv:
        show_records(asked, map(_record, agreed.rows), (*tables.WINNER_COLUMNS, *OF_AGREEMENT))
    elif agreed.rows:
        texts = StoredTexts(full=asked.full)
        head = f"configuration{texts.note}"
        rows = [_agreed_row(row, texts) for row in agreed.rows]
        counts = ("runs", "GPUs", "seeds", "spread", "behind others")
        if not asked.full:
            always = ("problem", "time", "speedup", head, *counts)
            rows = tables.telling(rows, always, ("gpu", "timed", "source"))
        tables.show_rows(rows, right=("time", *counts), stacked=(head,))
        tables.show_line(_in_words(agreed.rows), err=True)
    if missing:
        raise missing


def _agreed_row(row: AgreedWinner, texts: StoredTexts) -> dict[str, object]:
    run, winner, chosen = row.stored.run, row.stored.winner, row.chosen
    runs, cards, seeds = (f"{agreeing} of {count}" for agreeing, count in _counts(row))
    return {
        "problem": run.problem,
        "gpu": run.gpu.name,
        "timed": run.conditions,
        "time": tables.duration(winner.time_ns),
        "speedup": tables.speedup(winner.ratio, None, None, winner.verdict),
        f"configuration{texts.note}": texts.of(run).cell(chosen.configuration),
        "runs": runs,
        "GPUs": cards,
        "seeds": seeds,
        "spread": tables.percent(chosen.spread, 2),
        "behind others": tables.percent(None if chosen.raced_behind is None else chosen.raced_behind - 1, 2),
        "source": origin(run),
    }


def _counts(row: AgreedWinner) -> tuple[tuple[int, int], ...]:
    """Return the numbers of runs, cards and random seeds: first of those that chose the winner, then of all."""
    chosen, every = _numbers(row.chosen.winners), _numbers(row.every)
    return tuple(zip(chosen, every, strict=True))


def _numbers(winners: Sequence[StoredWinner]) -> tuple[int, int, int]:
    return len(winners), len(cards_of(winners)), len({stored.run.options.seed for stored in winners})


def _record(row: AgreedWinner) -> dict[str, Any]:
    counts = dict(zip(("runs", "cards", "seeds"), _counts(row), strict=True))
    return {
        **tables.winner_record(row.stored),
        **{name: count for name, (_, count) in counts.items()},
        **{f"{name}_agreeing": agreeing for name, (agreeing, _) in counts.items()},
        **tables.picked(row.chosen, "spread raced_behind behind"),
        "runs_of_other_texts": row.other_texts,
        "others": [_other(one) for one in row.others],
    }


def _other(one: WinningConfiguration) -> dict[str, Any]:
    return {
        **tables.configuration_record(one.configuration),
        "runs": len(one.winners),
        "cards": len(one.cards),
        "seeds": _numbers(one.winners)[2],
        **tables.picked(one, "raced_behind behind"),
    }


def _in_words(rows: Sequence[AgreedWinner]) -> str:
    """Return how many problems several runs tuned, and how many of those have one winner."""
    several = [row for row in rows if len(row.every) > 1]
    count = tables.counted(len(rows), "problem")
    if not several:
        return f"{count}, each tuned once: tune again with another --seed to see how reproducible they are"
    same = sum(not row.others for row in several)
    share = f"{100 * same / len(several):.0f} %"
    text = f"{count}; all runs agree on {same} of {len(several)} tuned more than once ({share})"
    if texts := sum(row.other_texts for row in rows):
        text += f"; {tables.counted(texts, 'run')} of another text of the kernel left out"
    return text


STACKED = ("confirmed", "warm", "timed", "source", "gpu", "rate")
"""Columns that move below their row on a narrow terminal, the first one first."""


def listed_winners(
    asked: BestArguments, read: Callable[[Database, Filters], Selection[Record]]
) -> tuple[Selection[Record], DatabaseError | None]:
    """Return the winners that a command lists, and the error if there is none; say what is left out.

    Args:
        asked: for which; of replays where nothing that fits was measured.
        read: returns what fits.
    """
    filters = listing_filters(asked, replayed=None if asked.replayed else False)
    with Database.open(asked.db, write=False) as database:
        winners, note = measured_else_replayed(lambda fit: read(database, fit), filters)
        missing = None if winners.rows else no_winner(database, filters, asked.kernel)
    if note:
        tables.say(note)
    report_damage(winners.damaged, asked.db)
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
        remedy = f"find one with: tune {shlex.quote(kernel or 'gemm')}{db}"
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
                words = ["tune", shlex.quote(kernel_argument(spec.name, spec.file))]
                default = spec.problem()
                words += [] if run.problem == default else [as_options(spec, default, run.problem)]
                words += [] if run.device == "cuda:0" else ["--device", shlex.quote(run.device)]
                return " ".join([*words, "--resume"])
    return ""


def _best(asked: BestArguments) -> None:
    winners, missing = listed_winners(asked, partial(best_winners, named=named_kernel(asked.kernel)))
    if asked.as_json or asked.as_csv:
        records = (
            {**tables.winner_record(winner.stored), "kernel_state": winner.state.name.lower()}
            for winner in winners.rows
        )
        show_records(asked, records, (*tables.WINNER_COLUMNS, "kernel_state"))
    elif winners.rows:
        texts = StoredTexts(full=asked.full)
        head = f"configuration{texts.note}"
        rows = [_row(winner, texts, full=asked.full) for winner in winners.rows]
        if not asked.full:
            refused = ["confirmed"] if any(str(row["confirmed"]).startswith("no") for row in rows) else []
            always = ("problem", "time", "of peak", "speedup", head, *refused, "trial")
            rows = tables.telling(rows, always, ("gpu", "timed", "source"))
        tables.show_rows(rows, right=("time", "rate", "of peak", "trial"), stacked=(head, *STACKED))
        if not (first := winners.rows[0].stored).run.foreign:
            limits = "what limits it" if len(rows) == 1 else "what limits the first"
            show_next({f"tune explain --trial {first.winner.trial_id}{database_option(asked.db)}": limits})
    if missing:
        raise missing


def _row(best: BestWinner, texts: StoredTexts, *, full: bool) -> dict[str, object]:
    run, winner, figures = best.stored.run, best.stored.winner, best.stored.metrics
    ends = (winner.ratio_low, winner.ratio_high) if full else (None, None)
    confirmed = confirmation_text(winner, replayed=run.replayed)
    return {
        "problem": run.problem,
        "gpu": run.gpu.name,
        "time": tables.duration(winner.time_ns),
        "rate": tables.throughput(figures),
        "of peak": tables.percent(figures.of_peak),
        "speedup": tables.speedup(winner.ratio, *ends, winner.verdict),
        f"configuration{texts.note}": texts.of(run).cell(winner.configuration),
        "timed": run.conditions,
        "warm": tables.warm_text(winner.warm),
        "confirmed": f"no: {best.state}" if best.state is KernelState.CHANGED else confirmed,
        "source": origin(run),
        "trial": tables.row_number(winner.trial_id),
    }
